package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// Replaced is closed when the database at the store's address has become another one, such as a
// promoted standby. Every later call returns Unavailable. The caller opens the store again.
func (s *Store) Replaced() <-chan struct{} { return s.place.Replaced() }

// Incarnation implements storage.Lives.
func (s *Store) Incarnation() tidemark.Incarnation { return s.life().ID }

// life returns the present life of the data.
func (s *Store) life() lives.Life { return s.lives[len(s.lives)-1] }

// Shared implements storage.Lives.
func (s *Store) Shared(
	ctx context.Context, claims []storage.Claim,
) (shared []tidemark.Sequence, err error) {
	if err := checkBatch(len(claims)); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(ctx context.Context, c *conn) (err error) {
		shared, err = lives.Shared(s.lives, claims, func(m []lives.Message) ([]int64, error) {
			return c.livesOf(ctx, m)
		})
		return err
	})
	return shared, err
}

// readLivesOf reads the life of each message, and 0 for one that is missing. The range and the
// order leave the planner no index but the primary key's.
const readLivesOf = `SELECT n.no, CASE WHEN n.sequence < c.floor THEN $3
		ELSE coalesce((SELECT coalesce(m.life, 1) FROM messages AS m
			WHERE m.chat = c.key AND m.sequence BETWEEN n.sequence AND n.sequence
			ORDER BY m.sequence LIMIT 1), $4) END
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS n (id, sequence, no)
CROSS JOIN LATERAL (SELECT key, floor FROM chats WHERE id = n.id LIMIT 1) AS c`

// livesOf returns the number of the life that stored each message.
func (c *conn) livesOf(ctx context.Context, messages []lives.Message) ([]int64, error) {
	chats, sequences := make([]string, len(messages)), make([]int64, len(messages))
	for i, m := range messages {
		chats[i], sequences[i] = string(m.Chat), column(m.Sequence)
	}
	found := slices.Repeat([]int64{lives.Never}, len(messages))
	parameters := []any{chats, sequences, lives.Expired, lives.Never}
	err := c.each(ctx, readLivesOf, parameters, func(row pgx.Rows) error {
		var no, life int64
		err := row.Scan(&no, &life)
		if err == nil {
			found[no-1] = life
		}
		return err
	})
	return found, err
}
