package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/storage"
)

// Deletions finish what DeleteChat begins.
type Deletions interface {
	// Begin records that a chat is about to be deleted. From then on, what is left of the chat will
	// be removed, also if this process ends.
	Begin(ctx context.Context, chat tidemark.ChatID) error
	// Wake says that a chat was deleted. It does not block.
	Wake()
}

// tellAtOnce is how many former members are looked up together.
const tellAtOnce = 4096

// DeleteChat deletes a chat with its messages, for good. Owners may delete a group, and backends
// any chat. All nodes drop what they have cached of it, and the former members' sessions get the
// event of a removal. A user who joins in the same moment gets no event. Their session then finds
// no membership, as when such an event is lost.
//
// A backend may repeat the call. It then returns nil.
//
// Errors: NotFound, NotMember, Denied, Unavailable (the chat may be deleted; repeat the call).
func (s *Server) DeleteChat(ctx context.Context, c Caller, id tidemark.ChatID) error {
	if err := s.calls.begin(); err != nil {
		return err
	}
	defer s.calls.end()
	before, err := s.mayDelete(ctx, c, id)
	if err != nil {
		return err
	}
	//rule:deleted_is_gone.delete-nothing-while-cut-off
	if err := s.leases.Degraded(); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"this node is cut off from the others, so it deletes no chats; repeat the request")
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	if s.cfg.Deletions != nil {
		//rule:deleted_is_gone.record-before-the-step
		if err := s.cfg.Deletions.Begin(ctx, id); err != nil {
			return err
		}
		defer s.cfg.Deletions.Wake()
	}
	deleted, err := s.deleteStored(ctx, id)
	if err != nil {
		return err
	}
	s.chats.Chat(id).Invalidate(deleted.Version)
	//rule:deleted_is_gone.drop-the-messages-of-all-nodes
	s.delivery.Wipe(ctx, tidemark.MessageRef{ChatID: id, Sequence: deleted.Head + 1})
	s.announceDeletion(ctx, id, deleted.Version, before.Users)
	return nil
}

// mayDelete returns the members of a chat, as they are stored, if the caller may delete it.
//
// Errors: NotFound, NotMember, Denied, Unavailable (it is being imported).
func (s *Server) mayDelete(
	ctx context.Context, c Caller, id tidemark.ChatID,
) (*chat.Roster, error) {
	roster, err := s.chats.Current(ctx, id)
	if err != nil || c.Backend {
		return roster, err
	}
	m, there := roster.Member(c.User)
	switch {
	case !there:
		return nil, storage.NotSender(id, c.User, false)
	//rule:caller_does_only_what_they_may.direct-chats-are-of-both
	case roster.Type == tidemark.Direct:
		return nil, tidemark.Errorf(tidemark.Denied,
			"only a backend may delete a direct chat, because it belongs to both members")
	//rule:caller_does_only_what_they_may.owners-delete-groups
	case m.Role != tidemark.Owner:
		return nil, tidemark.Errorf(tidemark.Denied, "only an owner of the chat may delete it")
	case roster.State == tidemark.ChatImporting:
		return nil, storage.BeingImported(id)
	}
	return roster, nil
}

// deleteStored deletes a chat in storage. If the outcome stays unknown, it cannot notify the nodes
// of a version. So Overflow makes all nodes drop what they have cached.
func (s *Server) deleteStored(ctx context.Context, id tidemark.ChatID) (storage.Deleted, error) {
	for attempt := 1; ; attempt++ {
		deleted, err := s.storage.DeleteChat(ctx, id, s.now())
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			return deleted, err
		}
		if attempt == changeAttempts || !signal.Pause(ctx, changePause<<attempt) {
			//rule:deleted_is_gone.forget-all-after-unknown-deletion
			s.delivery.Retry.Overflow()
			return deleted, err
		}
	}
}

// forNodes is the user in the event that is only for nodes, because an event must name one. No
// session gets that event.
const forNodes tidemark.UserID = "all"

// announceDeletion notifies all nodes that a chat has no members any more, and the sessions of each
// former member that they were removed.
func (s *Server) announceDeletion(
	ctx context.Context, id tidemark.ChatID, version uint64, users []tidemark.UserID,
) {
	removed := func(user tidemark.UserID) bus.Membership {
		return bus.Membership{
			Changes: []tidemark.MembershipChange{
				{ChatID: id, UserID: user, Change: tidemark.Removed},
			},
			Version: version,
		}
	}
	//rule:deleted_is_gone.outdate-the-rosters-of-all-nodes
	s.announce(ctx, nil, removed(forNodes))
	for some := range slices.Chunk(users, tellAtOnce) {
		all := make([]delivery.Announcement, len(some))
		for i, user := range some {
			m := removed(user)
			all[i] = delivery.Announcement{
				To: some[i : i+1], Event: bus.Event{Membership: &m},
			}
		}
		//rule:deleted_is_gone.tell-former-members
		s.delivery.Publish(ctx, all, false)
	}
}

// exists returns nil, unless a chat of a state was deleted. Only backends learn that it was.
func exists(c Caller, id tidemark.ChatID, state tidemark.ChatState) error {
	if state != tidemark.ChatDeleted {
		return nil
	}
	//rule:deleted_is_gone.tell-only-backends
	if c.Backend {
		return storage.WasDeleted(id)
	}
	return storage.NotSender(id, c.User, false)
}

// conceal replaces the error of a send that says that the chat was deleted, unless a backend sends.
func conceal(d *tidemark.Draft, sent *Sent) {
	sent.Err = concealed(Caller{User: d.SenderID, Backend: d.ByBackend}, d.ChatID, sent.Err)
}

// concealed returns an error of storage as the caller may see it. The chat may be deleted after
// their membership was checked, and before the step. Then only a backend learns of it.
func concealed(c Caller, id tidemark.ChatID, err error) error {
	//rule:deleted_is_gone.tell-only-backends-in-time
	if storage.IsDeletion(err) {
		return exists(c, id, tidemark.ChatDeleted)
	}
	return err
}

// changeable returns nil if the state of a chat lets its members change it. The roster may be old:
// no node is notified when an import ends. So changeable reads the roster again before it refuses.
//
// Unavailable: the chat is being imported.
func (s *Server) changeable(ctx context.Context, roster *chat.Roster) error {
	if roster.State != tidemark.ChatImporting {
		return nil
	}
	now, err := s.chats.Current(ctx, roster.ChatID)
	//rule:importing_is_closed.ask-storage-before-refusing
	if err == nil && now.State == tidemark.ChatImporting {
		err = storage.BeingImported(roster.ChatID)
	}
	return err
}
