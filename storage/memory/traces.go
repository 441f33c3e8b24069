package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// UsersNamed implements storage.Traces. The ids ascend.
func (s *Store) UsersNamed(
	ctx context.Context, after string, limit int,
) (users []tidemark.UserID, next string, more bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return nil, "", false, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, "", false, err
	}
	defer s.mu.Unlock()
	found := make(map[tidemark.UserID]struct{})
	note := func(user tidemark.UserID) {
		if string(user) > after {
			found[user] = struct{}{}
		}
	}
	for user, blocks := range s.blocks {
		for blocked := range blocks {
			note(user)
			note(blocked)
		}
	}
	for of := range s.hides {
		note(of.User)
	}
	for _, c := range s.chats {
		for user := range c.bans {
			note(user)
		}
		for n := c.Floor; n <= c.Head; n++ {
			for _, user := range c.message(n).Mentions.Users {
				note(user)
			}
		}
		for _, m := range c.mentions {
			for _, user := range m.Users {
				note(user)
			}
		}
	}
	users = slices.Sorted(maps.Keys(found))
	if more = len(users) > limit; more {
		users = users[:limit]
		next = string(users[limit-1])
	}
	return users, next, more, nil
}
