package server

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// MemberPage is a page of members, ordered by user id. NextCursor is empty on the last page.
type MemberPage struct {
	Members []tidemark.Member
	// Version is the version of the membership that the page is from.
	Version    uint64
	NextCursor string
}

// Members returns a page of the current members. limit is at least 1. A backend without a user may
// read the members of any chat.
//
// Errors: NotFound, NotMember.
func (s *Server) Members(
	ctx context.Context, c Caller, chat tidemark.ChatID, limit int, cursor string,
) (MemberPage, error) {
	after, err := pagetoken.DecodeID[tidemark.UserID](pagetoken.Members, cursor)
	if err != nil {
		return MemberPage{}, err
	}
	roster, err := s.rosterFor(ctx, c, chat)
	if err != nil {
		return MemberPage{}, err
	}
	return pageOfMembers(roster, after, limit), nil
}

// rosterFor returns the members of a chat for a caller who may see them.
func (s *Server) rosterFor(
	ctx context.Context, c Caller, id tidemark.ChatID,
) (*chat.Roster, error) {
	if c.noUser() {
		roster, err := s.chats.Roster(ctx, id, 0)
		if err == nil {
			err = exists(c, id, roster.State)
		}
		return roster, err
	}
	roster, _, err := s.chats.Member(ctx, c.User, id)
	return roster, err
}

func pageOfMembers(roster *chat.Roster, after tidemark.UserID, limit int) MemberPage {
	page := MemberPage{Members: roster.After(after), Version: roster.Version}
	if len(page.Members) > limit {
		page.Members = page.Members[:limit]
		page.NextCursor = pagetoken.Encode(pagetoken.Members, string(page.Members[limit-1].UserID))
	}
	return page
}

// AddMembers makes users members of a group and returns the first page of its members. For the
// users it is like a send: what they may see and have not acknowledged is marked pending, and they
// are notified. Owners, admins and backends may add members. role is the role of the new members;
// "" means tidemark.Ordinary. The caller must be allowed to give that role (UpdateMember). Users
// who are members already keep theirs.
//
// Errors: Invalid, NotFound, NotMember, Denied (also above tidemark.MaxMembers and
// tidemark.MaxIntervals, for a user who is banned, and for one between whom and the caller's user a
// block stands), Unavailable (repeat the call).
func (s *Server) AddMembers(
	ctx context.Context, c Caller, chat tidemark.ChatID, users []tidemark.UserID,
	role tidemark.Role,
) (MemberPage, error) {
	if role == "" {
		role = tidemark.Ordinary
	}
	if err := tidemark.CheckRole(role); err != nil {
		return MemberPage{}, err
	}
	users, err := distinct("user_ids", users)
	switch {
	case err != nil:
		return MemberPage{}, err
	case len(users) == 0:
		return MemberPage{}, tidemark.BadParam(tidemark.Invalid,
			"user_ids", "is empty; name at least one user")
	case len(users) > tidemark.MaxMembersPerCall:
		return MemberPage{}, tidemark.BadParam(tidemark.Invalid,
			"user_ids", "names %d users, at most %d are allowed in one call",
			len(users), tidemark.MaxMembersPerCall)
	}
	if err := s.erased(users...); err != nil {
		return MemberPage{}, err
	}
	if err := s.calls.begin(); err != nil {
		return MemberPage{}, err
	}
	defer s.calls.end()
	_, m, err := s.mayManage(ctx, c, chat)
	if err != nil {
		return MemberPage{}, err
	}
	if err := mayGrant(c, m, role); err != nil {
		return MemberPage{}, err
	}
	if err := s.notApart(ctx, c, "user_ids", users); err != nil {
		return MemberPage{}, err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	added, err := s.add(ctx, chat, users, role)
	if err != nil {
		return MemberPage{}, concealed(c, chat, err)
	}
	s.chats.Chat(chat).Invalidate(added.Version)
	// Users who were members already get a row as well: this call may repeat one whose answer was
	// lost.
	var rows []tidemark.PendingDelivery
	//rule:pending_or_delivered.rows-for-returning-members
	for _, st := range added.States {
		//rule:pending_or_delivered.row-when-behind-head
		if st.Acked < added.Head {
			rows = append(rows, tidemark.PendingDelivery{
				UserID:           st.UserID,
				ChatID:           chat,
				FirstUndelivered: tidemark.First(st.Acked),
			})
		}
	}
	//rule:pending_or_delivered.mark-added-members
	markErr := s.delivery.MarkOrRetry(ctx, rows)
	roster, err := s.chats.Roster(ctx, chat, added.Version)
	if err != nil {
		return MemberPage{}, afterwards(err)
	}
	s.announce(ctx, roster.Users, bus.Membership{
		Changes: additions(roster, added.New, role), Version: added.Version,
		Members: len(roster.Users),
	})
	return pageOfMembers(roster, "", 1000), markErr
}

// additions returns the changes that say that users were added. Each has the user's role of the
// roster. A user who is not in the roster has left again, and the change has the role of the call.
func additions(
	roster *chat.Roster, users []tidemark.UserID, role tidemark.Role,
) []tidemark.MembershipChange {
	changes := make([]tidemark.MembershipChange, len(users))
	for i, user := range users {
		changes[i] = tidemark.MembershipChange{
			ChatID: roster.ChatID, UserID: user, Change: tidemark.Added, Role: role,
		}
		if m, there := roster.Member(user); there {
			changes[i].Role = m.Role
		}
	}
	return changes
}

// A change of members whose outcome is unknown is tried up to changeAttempts times. The pause
// starts at twice changePause and doubles.
const (
	changeAttempts = 4
	changePause    = 50 * time.Millisecond
)

// add makes users members. If the outcome stays unknown, this node cannot know who must receive
// what: Overflow then makes all sessions reconcile.
func (s *Server) add(
	ctx context.Context, chat tidemark.ChatID, users []tidemark.UserID, role tidemark.Role,
) (storage.Added, error) {
	for attempt := 1; ; attempt++ {
		added, err := s.storage.AddMembers(ctx, chat, users, role, s.now())
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			if err == nil && attempt > 1 {
				added.New = users // an attempt whose answer was lost may have added them
			}
			return added, err
		}
		s.chats.ForgetRoster(chat)
		//rule:pending_or_delivered.retry-unknown-addition
		if attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			//rule:pending_or_delivered.compare-after-unknown-addition
			s.delivery.Retry.Overflow()
			return added, err
		}
	}
}

// RemoveMember ends the membership of a user. Owners and backends may remove any member, admins may
// remove members and readers, and every member may leave. The last owner is succeeded
// (tidemark.Roster.Successor). The user's delivery state is kept. Messages that they have not
// received yet never arrive (ADR-008 §6.1).
//
// It returns nil if the user is not a member, so the call may be repeated.
//
// Errors: Invalid (the user), NotFound, NotMember (the caller, who is not the user), Denied.
func (s *Server) RemoveMember(
	ctx context.Context, c Caller, chat tidemark.ChatID, user tidemark.UserID,
) error {
	if err := tidemark.CheckID("user_id", user); err != nil {
		return err
	}
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	err := s.mayRemove(ctx, c, chat, user)
	//rule:post_retry_safe.leave-again
	if c.User == user && tidemark.CodeOf(err) == tidemark.NotMember {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	removed, err := s.remove(ctx, chat, user)
	//rule:post_retry_safe.remove-again
	if tidemark.CodeOf(err) == tidemark.NotMember {
		return nil
	}
	if err != nil {
		err = concealed(c, chat, err)
		//rule:post_retry_safe.leave-what-was-deleted
		if c.User == user && tidemark.CodeOf(err) == tidemark.NotMember {
			return nil
		}
		return err
	}
	s.announceRemoval(ctx, chat, user, removed)
	return nil
}

// announceRemoval notifies all nodes, the sessions of a user whose membership has ended, and those
// of the other members.
func (s *Server) announceRemoval(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, removed storage.Removed,
) {
	s.chats.Chat(chat).Invalidate(removed.Version)
	//rule:nothing_outside_membership.tell-removed-member
	recipients := []tidemark.UserID{user}
	wasLarge := true
	roster, err := s.chats.Roster(ctx, chat, removed.Version)
	if err != nil {
		s.log.Warn("a removal is not announced to the other members: their roster cannot be read",
			"chat", chat, "error", err)
	} else {
		recipients = append(recipients, roster.Users...)
		// Each later version has at most one member less than the one before.
		later := int(roster.Version - removed.Version)
		//rule:group_delivered_requires_all_members.count-members-before-removal
		wasLarge = len(roster.Users)+1+later > s.cfg.StatusFanout
	}
	changes := []tidemark.MembershipChange{
		{ChatID: chat, UserID: user, Change: tidemark.Removed},
	}
	s.announce(ctx, recipients, bus.Membership{
		Changes: succeeded(changes, removed.Successor), Version: removed.Version,
	})
	if wasLarge {
		//rule:group_delivered_requires_all_members.recompute-after-removal
		s.receipts.Recompute(chat)
	}
}

// mayRemove returns nil if the caller may end the user's membership.
//
// Errors: NotFound, NotMember (the caller), Denied, Unavailable (the chat is being imported).
func (s *Server) mayRemove(
	ctx context.Context, c Caller, chat tidemark.ChatID, user tidemark.UserID,
) error {
	if c.User != user || c.Backend {
		roster, m, err := s.mayManage(ctx, c, chat)
		if err != nil || c.Backend {
			return err
		}
		//rule:caller_does_only_what_they_may.admins-remove-those-below
		if target, there := roster.Member(user); there && !m.Role.Manages(target.Role) {
			err = tidemark.Errorf(tidemark.Denied, "an admin may not remove an owner or an admin")
		}
		return err
	}
	roster, _, err := s.chats.Member(ctx, user, chat)
	switch {
	case err != nil:
		return err
	case roster.Type == tidemark.Direct:
		return tidemark.Errorf(tidemark.Denied, "the members of a direct chat are fixed")
	}
	return s.changeable(ctx, roster)
}

// remove ends a membership. If an outcome is unknown, remove tries again. NotMember then counts as
// success, because an earlier attempt may have removed the user.
func (s *Server) remove(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) (storage.Removed, error) {
	for attempt := 1; ; attempt++ {
		removed, err := s.storage.RemoveMember(ctx, chat, user, s.now())
		code := tidemark.CodeOf(err)
		//rule:nothing_outside_membership.retried-removal-succeeds
		if code == tidemark.NotMember && attempt > 1 {
			roster, err := s.chats.Roster(ctx, chat, 0)
			if err != nil {
				return removed, err
			}
			heads, err := s.storage.Heads(ctx, []tidemark.ChatID{chat})
			if err != nil {
				return removed, err
			}
			return storage.Removed{Version: roster.Version, Head: heads[0]}, nil
		}
		if code != tidemark.Unavailable {
			return removed, err
		}
		s.chats.ForgetRoster(chat) // the removal may have happened
		if attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			return removed, err
		}
	}
}

// announce publishes a change of members to the users' sessions and to every node. Nodes need it
// because they may have the roster in memory. For sessions it is a hint.
func (s *Server) announce(ctx context.Context, users []tidemark.UserID, m bus.Membership) {
	if len(m.Changes) == 0 {
		return
	}
	s.delivery.Publish(ctx, []delivery.Announcement{
		{To: users, Event: bus.Event{Membership: &m}, AllNodes: true},
	}, false)
}

// receiveMembership invalidates older rosters of the chat and passes the changes to the sessions.
func (s *Server) receiveMembership(to []registry.Lease, e *bus.Membership) {
	//rule:nothing_outside_membership.outdate-roster-on-change
	s.chats.Chat(e.Changes[0].ChatID).Invalidate(e.Version)
	s.presence.MembersChanged(e.Changes[0].ChatID)
	//rule:published_if_a_tick_changes.read-after-growth
	if e.Members > s.cfg.StatusFanout && s.chats.Chat(e.Changes[0].ChatID).TakeLeftOut() {
		s.receipts.Recompute(e.Changes[0].ChatID)
	}
	for _, c := range e.Changes {
		//rule:delivered_is_eventually_consistent.add-joined-chat
		if c.Change == tidemark.Added {
			s.host.Latest.Add(c.UserID, c.ChatID)
		}
	}
	for _, sess := range s.table.Held(nil, to) {
		if sess != nil {
			sess.MembersChanged(e)
		}
	}
}
