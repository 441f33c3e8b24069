package memory

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// unread looks at each message after the user's mark. The mutex is held.
func (c *chat) unread(user tidemark.UserID, state tidemark.DeliveryState) storage.Unread {
	var u storage.Unread
	intervals := c.members[user].Intervals
	for n := max(state.UnreadAfter()+1, c.Floor); n <= c.Head; n++ {
		m := &c.messages[n-1]
		//rule:unread_exact.leave-out-own-in-memory
		if !m.Kind.Counts() || !intervals.Contains(n) || m.SenderID == user {
			continue
		}
		u.Messages++
		names, changed := c.mentions[n]
		if !changed {
			names = m.Mentions
		}
		if names.Name(user) {
			u.Mentions++
		}
	}
	return u
}

// Unread implements storage.Unreads.
func (s *Store) Unread(
	ctx context.Context, keys []storage.StateKey,
) ([]storage.Unread, error) {
	if err := s.enterBatch(ctx, len(keys)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	counts := make([]storage.Unread, len(keys))
	for i, key := range keys {
		if c := s.chats[key.Chat]; c != nil {
			counts[i] = c.unread(key.User, s.state(key.User, key.Chat))
		}
	}
	return counts, nil
}

// UnreadOf implements storage.Unreads.
func (s *Store) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	if err := s.enter(ctx); err != nil {
		return storage.UnreadTotal{}, err
	}
	defer s.mu.Unlock()
	var total storage.UnreadTotal
	for id, c := range s.memberOf[user] {
		total.Add(c.unread(user, s.state(user, id)))
	}
	return total, nil
}

// MarkUnread implements storage.Unreads.
func (s *Store) MarkUnread(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	if err := s.enter(ctx); err != nil {
		return tidemark.DeliveryState{}, err
	}
	defer s.mu.Unlock()
	c, err := s.alive(id)
	if err == nil {
		err = storage.CheckMark(from, c.Head)
	}
	if err != nil {
		return tidemark.DeliveryState{}, err
	}
	before := s.state(user, id)
	state := before.MarkUnread(from)
	if state != before {
		s.states[storage.StateKey{User: user, Chat: id}] = state
	}
	return state, nil
}
