package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// Incarnation implements storage.Lives.
func (s *Store) Incarnation() tidemark.Incarnation { return s.lives[len(s.lives)-1].ID }

// Shared implements storage.Lives.
func (s *Store) Shared(
	ctx context.Context, claims []storage.Claim,
) ([]tidemark.Sequence, error) {
	if err := s.enterBatch(ctx, len(claims)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return lives.Shared(s.lives, claims, s.livesOf)
}

// Copy returns a store with a copy of the data, as after a restored backup. Its data begin a new
// incarnation. A closed store can be copied.
func (s *Store) Copy() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := New()
	life, _ := lives.Next(s.lives, s.lives[len(s.lives)-1].Identity+"copied ")
	c.lives = append(slices.Clone(s.lives), life)
	for id, from := range s.chats {
		to := *from
		to.messages, to.lives = slices.Clone(from.messages), slices.Clone(from.lives)
		to.keys, to.members = maps.Clone(from.keys), maps.Clone(from.members)
		to.changed, to.mentions = maps.Clone(from.changed), maps.Clone(from.mentions)
		c.chats[id] = &to
	}
	for key, from := range s.direct {
		c.direct[key] = c.chats[from.ID]
	}
	for user, in := range s.memberOf {
		c.memberOf[user] = map[tidemark.ChatID]*chat{}
		for id := range in {
			c.memberOf[user][id] = c.chats[id]
		}
	}
	c.states = maps.Clone(s.states)
	for user, rows := range s.pending {
		c.pending[user] = maps.Clone(rows)
	}
	c.backlogs, c.stamps = maps.Clone(s.backlogs), s.stamps
	for kind, documents := range s.documents {
		c.documents[kind] = maps.Clone(documents)
	}
	for user, blocks := range s.blocks {
		c.blocks[user] = maps.Clone(blocks)
	}
	c.hides, c.audit = maps.Clone(s.hides), maps.Clone(s.audit)
	return c
}

// livesOf returns the number of the life that stored each message. The mutex is held.
func (s *Store) livesOf(messages []lives.Message) ([]int64, error) {
	found := make([]int64, len(messages))
	for i, m := range messages {
		found[i] = lives.Never
		switch c := s.chats[m.Chat]; {
		case c == nil || m.Sequence > c.Head:
		//rule:restore_is_noticed.expired-messages-are-shared
		case m.Sequence < c.Floor:
			found[i] = lives.Expired
		default:
			found[i] = c.lives[m.Sequence-1]
		}
	}
	return found, nil
}
