package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// typingEvery is how often a user's typing in a chat is told. A notice counts for twice as long
// (tidemark.TypingExpires), so it does not go out between two.
const typingEvery = 3 * time.Second

// maxTypists bounds the users and chats that are remembered. Beyond it, notices are dropped.
const maxTypists = 10_000

// typists remembers who was told to be typing, and when. sent counts the notices.
type typists struct {
	sent atomic.Int64

	mu   sync.Mutex
	last map[storage.StateKey]time.Time
}

// allow reports whether a notice may be sent now, and remembers it then.
func (t *typists) allow(key storage.StateKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	last, there := t.last[key]
	//rule:bounded_use.one-typing-notice-at-a-time
	if there && now.Sub(last) < typingEvery {
		return false
	}
	if !there && len(t.last) >= maxTypists {
		for key, last := range t.last {
			if now.Sub(last) >= typingEvery {
				delete(t.last, key)
			}
		}
		//rule:bounded_use.bound-typists
		if len(t.last) >= maxTypists {
			return false
		}
	}
	if t.last == nil {
		t.last = make(map[storage.StateKey]time.Time)
	}
	t.last[key] = now
	return true
}

// Typing notifies the other members' sessions that a user is typing. It does nothing in a chat of
// more than Config.StatusFanout members, or within typingEvery of the user's last notice. A notice
// is not stored, and may be lost.
//
// Errors: NotFound, NotMember, Denied (a reader, or the chat is closed), Unavailable.
func (s *Server) Typing(ctx context.Context, user tidemark.UserID, chat tidemark.ChatID) error {
	//rule:nothing_outside_membership.typing-by-members-only
	roster, m, err := s.chats.Member(ctx, user, chat)
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.readers-do-not-type
	if !m.Role.MaySend() {
		return storage.NotSender(chat, user, true)
	}
	if err := s.open(ctx, roster); err != nil {
		return err
	}
	if len(roster.Users) > s.cfg.StatusFanout ||
		!s.typists.allow(storage.StateKey{User: user, Chat: chat}, s.now()) {
		return nil
	}
	s.typists.sent.Add(1)
	others := slices.DeleteFunc(slices.Clone(roster.Users),
		func(u tidemark.UserID) bool { return u == user })
	event := bus.Event{Typing: &tidemark.Typing{ChatID: chat, UserID: user}}
	s.delivery.Publish(ctx, []delivery.Announcement{{To: others, Event: event}}, false)
	return nil
}

// receiveTyping passes a typing notice to the sessions.
func (s *Server) receiveTyping(to []registry.Lease, t tidemark.Typing) {
	for _, sess := range s.table.Held(nil, to) {
		if sess != nil {
			sess.Typing(t)
		}
	}
}
