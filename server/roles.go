package server

import (
	"context"
	"encoding/json"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// MemberChange says what to change of a member. What is zero stays as it is. Metadata takes the
// place of the whole object; an empty object removes it.
type MemberChange = storage.MemberChange

// MemberView is a member of a chat at a version of its membership.
type MemberView struct {
	tidemark.Member
	Version uint64
}

// UpdateMember changes the role or the metadata of a member of a group. Owners and backends may do
// so of all members. Admins may do so of members and readers, and make them members or readers.
// Admins may also become members or readers themselves. Nobody else may change a member, also not
// themselves.
//
// If the last owner stops being one, tidemark.Roster.Successor becomes an owner in the same step.
// The sessions of all members are notified, also of a change that changes nothing: an earlier
// attempt may have changed it and got no answer.
//
// Errors: Invalid, TooLarge, NotFound (no such chat, or the user is no member of it), NotMember
// (the caller), Denied (also if nobody can succeed the last owner), Unavailable.
func (s *Server) UpdateMember(
	ctx context.Context, c Caller, id tidemark.ChatID, user tidemark.UserID, change MemberChange,
) (MemberView, error) {
	if change.Role != "" {
		if err := tidemark.CheckRole(change.Role); err != nil {
			return MemberView{}, err
		}
	}
	if err := tidemark.CheckMemberMetadata(change.Metadata); err != nil {
		return MemberView{}, err
	}
	if emptyObject(change.Metadata) {
		change.Metadata = json.RawMessage{}
	}
	if err := s.calls.begin(); err != nil {
		return MemberView{}, err
	}
	defer s.calls.end()
	if err := s.mayUpdate(ctx, c, id, user, change.Role); err != nil {
		return MemberView{}, err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	updated, err := s.update(ctx, id, user, change)
	if tidemark.CodeOf(err) == tidemark.NotMember {
		err = noMember(id, user)
	}
	if err != nil {
		return MemberView{}, concealed(c, id, err)
	}
	s.chats.Chat(id).Invalidate(updated.Version)
	kind := tidemark.MetadataChanged
	if change.Role != "" {
		kind = tidemark.RoleChanged
	}
	changes := []tidemark.MembershipChange{
		{ChatID: id, UserID: user, Change: kind, Role: updated.Member.Role},
	}
	view := MemberView{Member: updated.Member, Version: updated.Version}
	roster, err := s.chats.Roster(ctx, id, updated.Version)
	if err != nil {
		s.log.Warn("a change of a member is not announced, because the members cannot be read",
			"chat", id, "error", err)
		return view, nil
	}
	s.announce(ctx, roster.Users, bus.Membership{
		Changes: succeeded(changes, updated.Successor), Version: updated.Version,
	})
	return view, nil
}

// succeeded adds to the changes that a user became an owner. It adds nothing for "".
func succeeded(
	changes []tidemark.MembershipChange, heir tidemark.UserID,
) []tidemark.MembershipChange {
	if heir == "" {
		return changes
	}
	return append(changes, tidemark.MembershipChange{
		ChatID: changes[0].ChatID, UserID: heir, Change: tidemark.RoleChanged, Role: tidemark.Owner,
	})
}

// update changes a member. If an outcome is unknown, it tries again: a repeated change changes
// nothing more.
func (s *Server) update(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID, change MemberChange,
) (storage.UpdatedMember, error) {
	for attempt := 1; ; attempt++ {
		updated, err := s.storage.UpdateMember(ctx, id, user, change)
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			return updated, err
		}
		s.chats.ForgetRoster(id) // the change may have happened
		if attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			return updated, err
		}
	}
}

// mayUpdate returns nil if the caller may change the user's metadata, and give them the role unless
// it is "".
//
// Errors: NotFound (no such chat, or the user is no member of it), NotMember (the caller), Denied.
func (s *Server) mayUpdate(
	ctx context.Context, c Caller, id tidemark.ChatID, user tidemark.UserID, role tidemark.Role,
) error {
	roster, m, err := s.mayManage(ctx, c, id)
	if err != nil {
		return err
	}
	target, there := roster.Member(user)
	own := user == m.UserID
	switch {
	case !there && c.Backend: // the roster may be old
		return nil
	case !there:
		return noMember(id, user)
	case c.Backend:
		return nil
	//rule:caller_does_only_what_they_may.admins-change-those-below
	case !own && !m.Role.Manages(target.Role):
		return tidemark.Errorf(tidemark.Denied, "an admin may not change an owner or an admin")
	case role != "" && role != target.Role:
		return mayGrant(c, m, role)
	}
	return nil
}

// mayGrant returns nil if the caller, whose membership is m, may give a role to others, else
// Denied.
func mayGrant(c Caller, m tidemark.Member, role tidemark.Role) error {
	//rule:caller_does_only_what_they_may.admins-promote-nobody
	if !c.Backend && !m.Role.Manages(role) {
		return tidemark.BadParam(tidemark.Denied, "role",
			"must be member or reader: only an owner makes owners and admins")
	}
	return nil
}

func noMember(id tidemark.ChatID, user tidemark.UserID) error {
	return tidemark.BadParam(tidemark.NotFound, "user_id", "%s is not a member of the chat %s",
		user, id)
}

// mayManage returns the members of a group, and the caller's membership if they may change the
// group. The membership is empty if the caller is a backend whose user is no member. The members
// are read from storage, unless the caller is a backend. So a role that was taken away before this
// call allows nothing.
//
// Errors: NotFound, NotMember, Denied, Unavailable (the chat is being imported).
func (s *Server) mayManage(
	ctx context.Context, c Caller, id tidemark.ChatID,
) (*chat.Roster, tidemark.Member, error) {
	read := s.chats.Current
	if c.Backend {
		read = func(ctx context.Context, id tidemark.ChatID) (*chat.Roster, error) {
			return s.chats.Roster(ctx, id, 0)
		}
	}
	//rule:caller_does_only_what_they_may.managers-as-stored
	roster, err := read(ctx, id)
	if err != nil {
		return nil, tidemark.Member{}, err
	}
	if err := exists(c, id, roster.State); err != nil {
		return nil, tidemark.Member{}, err
	}
	m, there := roster.Member(c.User)
	switch {
	case !there && !c.Backend:
		return nil, m, storage.NotSender(id, c.User, false)
	//rule:caller_does_only_what_they_may.direct-chats-have-no-manager
	case roster.Type == tidemark.Direct:
		return nil, m, tidemark.Errorf(tidemark.Denied,
			"the name, the metadata and the members of a direct chat cannot be changed")
	//rule:caller_does_only_what_they_may.owner-manages-group
	case !m.Role.Manages(tidemark.Ordinary) && !c.Backend:
		return nil, m, tidemark.Errorf(tidemark.Denied,
			"only an owner or an admin of the chat may do that")
	}
	return roster, m, s.changeable(ctx, roster)
}
