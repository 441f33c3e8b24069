package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/access"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// Erasures knows who was erased (package erasure).
type Erasures interface {
	// Erased returns Denied if a user was erased, or is being erased, and nil for anybody else. It
	// does no I/O. Another node may know of an erasure some seconds later.
	Erased(user tidemark.UserID) error
}

// erased returns Denied if one of the users was erased.
func (s *Server) erased(users ...tidemark.UserID) error {
	if s.cfg.Erasures == nil {
		return nil
	}
	for _, user := range users {
		//rule:erased_nowhere.id-is-not-used-again
		if err := s.cfg.Erasures.Erased(user); err != nil {
			return err
		}
	}
	return nil
}

// LeaveForGood ends the membership of a user who is erased, and notifies the other members. A group
// gets another owner if it needs one. In a direct chat, the other member becomes a reader. If the
// user is no member, nothing changes.
//
// Errors: NotFound (no such chat, or it was deleted), Unavailable (repeat the call).
func (s *Server) LeaveForGood(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID,
) error {
	found, err := s.storage.Chat(ctx, id)
	if err != nil {
		return err
	}
	if found.State == tidemark.ChatDeleted {
		return storage.WasDeleted(id)
	}
	if found.Type != tidemark.Direct {
		return s.RemoveMember(ctx, Caller{Backend: true}, id, user)
	}
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	removed, err := s.closeDirect(ctx, id, user)
	if tidemark.CodeOf(err) == tidemark.NotMember {
		return nil
	}
	if err != nil {
		return err
	}
	s.chats.Chat(id).Invalidate(removed.Version)
	roster, err := s.chats.Roster(ctx, id, removed.Version)
	if err != nil {
		return err
	}
	changes := []tidemark.MembershipChange{{ChatID: id, UserID: user, Change: tidemark.Removed}}
	for _, other := range roster.Users {
		changes = append(changes, tidemark.MembershipChange{
			ChatID: id, UserID: other, Change: tidemark.RoleChanged, Role: tidemark.Reader,
		})
	}
	s.announce(ctx, append([]tidemark.UserID{user}, roster.Users...), bus.Membership{
		Changes: changes, Version: removed.Version,
	})
	return nil
}

// closeDirect closes a direct chat in storage. After an attempt with an unknown outcome, NotMember
// may be its success. Then all nodes drop what they have cached.
func (s *Server) closeDirect(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID,
) (storage.Removed, error) {
	for attempt := 1; ; attempt++ {
		removed, err := s.storage.CloseDirect(ctx, id, user, s.now())
		if tidemark.CodeOf(err) == tidemark.NotMember && attempt > 1 {
			s.delivery.Retry.Overflow()
		}
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			return removed, err
		}
		s.chats.ForgetRoster(id)
		if attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			s.delivery.Retry.Overflow()
			return removed, err
		}
	}
}

// Forget removes the settings of a user, when they were seen, and whether they are suspended or
// have signed out (erasure.Keeper). Nodes refuse the user without that.
func (s *Server) Forget(ctx context.Context, user tidemark.UserID) error {
	if err := s.access.Erase(ctx, user); err != nil {
		return err
	}
	return s.presence.Forget(ctx, user)
}

// ExportPresence returns what is kept of when a user is online (erasure.Part).
func (s *Server) ExportPresence(ctx context.Context, user tidemark.UserID) (any, error) {
	return s.presence.Export(ctx, user)
}

// Kinds returns the kinds of documents in storage that are named by users (erasure.Keeper).
func (s *Server) Kinds() []string { return append(s.presence.Kinds(), access.Kinds()...) }

// Reread makes all nodes drop what they have cached of a chat's messages up to a sequence, because
// the stored ones have changed.
func (s *Server) Reread(ctx context.Context, id tidemark.ChatID, through tidemark.Sequence) {
	s.delivery.Wipe(ctx, tidemark.MessageRef{ChatID: id, Sequence: through + 1})
}
