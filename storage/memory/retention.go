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
