package sqlite

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// live finds the present life of the data. If the file is not as the last life has left it, a new
// one begins. closed is the incarnation that has left it so.
func (s *Store) live(closed tidemark.Incarnation) error {
	c := s.writer.c
	all, err := storedLives(c)
	if err != nil {
		return err
	}
	identity := "another"
	if len(all) > 0 && all[len(all)-1].ID == closed {
		identity = ""
	}
	life, begins := lives.Next(all, identity)
	if !begins {
		s.lives = all
		return nil
	}
	s.lives = append(all, life)
	insert, err := c.prepare(`INSERT INTO lives (number, id) VALUES (?, ?)`)
	if err != nil {
		return err
	}
	defer insert.Finalize()
	insert.integer(1, life.Number)
	insert.string(2, string(life.ID))
	//rule:restore_is_noticed.life-is-stored-before-its-messages-in-sqlite
	return insert.run()
}

// storedLives returns the lives of the data, the oldest first.
func storedLives(c *conn) (all []lives.Life, err error) {
	stored, err := c.prepare(`SELECT number, id FROM lives ORDER BY number`)
	if err != nil {
		return nil, err
	}
	defer stored.Finalize()
	err = stored.each(func(row *stmt) bool {
		all = append(all, lives.Life{
			Number: row.integerAt(0),
			ID:     tidemark.Incarnation(row.stringAt(1)),
		})
		return true
	})
	return all, err
}

// Incarnation implements storage.Lives.
func (s *Store) Incarnation() tidemark.Incarnation { return s.lives[len(s.lives)-1].ID }

// Shared implements storage.Lives.
func (s *Store) Shared(
	ctx context.Context, claims []storage.Claim,
) (shared []tidemark.Sequence, err error) {
	if err := checkBatch(len(claims)); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(c *conn) (err error) {
		shared, err = lives.Shared(s.lives, claims, c.livesOf)
		return err
	})
	return shared, err
}

// livesOf returns the number of the life that stored each message.
func (c *conn) livesOf(messages []lives.Message) ([]int64, error) {
	found := make([]int64, len(messages))
	q, err := c.prepared(`SELECT iif(?2 < c.floor, ?3, (SELECT coalesce(life, 1) FROM messages
			WHERE chat = c.key AND sequence = ?2))
		FROM chats AS c WHERE c.id = ?1`)
	if err != nil {
		return nil, err
	}
	for i, m := range messages {
		found[i] = lives.Never
		q.string(1, string(m.Chat))
		q.integer(2, int64(m.Sequence))
		q.integer(3, lives.Expired)
		_, err := q.one(func(row *stmt) {
			if !row.nullAt(0) {
				found[i] = row.integerAt(0)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}
