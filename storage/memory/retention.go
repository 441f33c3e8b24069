package memory

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Expire implements storage.Retention.
func (s *Store) Expire(
	ctx context.Context, id tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	if err := storage.CheckExpire(before, limit); err != nil {
		return storage.Expired{}, err
	}
	if err := s.enter(ctx); err != nil {
		return storage.Expired{}, err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err == nil {
		//rule:held_is_kept.nothing-expires-in-memory
		err = storage.OnHold(id, c.Policy)
	}
	if err != nil {
		return storage.Expired{}, err
	}
	before = stored(before)
	removed := 0
	for ; removed < limit; removed++ {
		m := c.message(c.Floor)
		//rule:floor_recorded.stop-at-the-first-younger-message
		if m == nil || !m.CreatedAt.Before(before) {
			break
		}
		delete(c.keys, sendKey{m.SenderID, m.ClientMessageID})
		delete(c.mentions, m.Sequence)
		*m = tidemark.Message{}
		c.Floor++
	}
	if removed > 0 {
		c.roster = nil // It has the floor.
	}
	return storage.Expired{Floor: c.Floor, Removed: removed}, nil
}

// Policies implements storage.Retention.
func (s *Store) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Policy, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	policies := make([]tidemark.Policy, len(chats))
	for i, id := range chats {
		if c := s.chats[id]; c != nil {
			policies[i] = c.Policy
		}
	}
	return policies, nil
}
