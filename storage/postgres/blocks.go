package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The statements of blocks. Those of a pair run one after the other, and after the creation of the
// direct chat of the pair: each transaction locks the pair first. There may be no row to lock.
const (
	lockPair = `SELECT pg_advisory_xact_lock(hashtextextended('direct chat ' || $1, 0))`
	// blocksOfPair says who of a pair has blocked the other one, and whom the first has blocked.
	blocksOfPair = `SELECT EXISTS (SELECT 1 FROM blocks WHERE user_id = $1 AND blocked_id = $2),
		EXISTS (SELECT 1 FROM blocks WHERE user_id = $2 AND blocked_id = $1)`
	countBlocks = `SELECT count(*) FROM blocks WHERE user_id = $1`
	insertBlock = `INSERT INTO blocks (user_id, blocked_id, blocked_at) VALUES ($1, $2, $3)`
	deleteBlock = `DELETE FROM blocks WHERE user_id = $1 AND blocked_id = $2`
	lockDirect  = `SELECT ` + chatColumns + `, c.key FROM chats AS c WHERE c.direct_key = $1
		FOR NO KEY UPDATE`
	closeChat = `UPDATE chats AS c SET state = nullif($2::text, ''), version = $3,
		members_version = $4, ` + opened + ` WHERE key = $1`
	// closeByOther changes who has closed a chat. That is no news.
	closeByOther = `UPDATE chats SET state = $2::text WHERE key = $1`
	listBlocks   = `SELECT blocked_id, blocked_at FROM blocks
		WHERE user_id = $1 AND blocked_id > $2 ORDER BY blocked_id LIMIT $3`
	apartFrom = `SELECT u.id FROM unnest($2::text[]) WITH ORDINALITY AS u (id, no)
		WHERE EXISTS (SELECT 1 FROM blocks WHERE user_id = $1 AND blocked_id = u.id OFFSET 0)
			OR EXISTS (SELECT 1 FROM blocks WHERE user_id = u.id AND blocked_id = $1 OFFSET 0)
		ORDER BY u.no`
)

// A querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, text string, parameters ...any) pgx.Row
}

// pairBlocks says whether the user with the smaller id has blocked the other one, and the reverse.
func pairBlocks(
	ctx context.Context, by querier, a, b tidemark.UserID,
) (first, second bool, err error) {
	if b < a {
		a, b = b, a
	}
	err = by.QueryRow(ctx, blocksOfPair, string(a), string(b)).Scan(&first, &second)
	return first, second, err
}

// open runs the creation of a direct chat, unless a block stands between its members.
func (c *conn) open(
	ctx context.Context, new storage.NewChat, insert func(querier) error,
) error {
	a, b := new.Members[0], new.Members[1]
	return c.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockPair, tidemark.DirectKey(a, b)); err != nil {
			return err
		}
		first, second, err := pairBlocks(ctx, tx, a, b)
		switch {
		case err != nil:
			return err
		//rule:blocked_is_closed.no-new-chat-in-postgres
		case first || second:
			return storage.Closed()
		}
		return insert(tx)
	})
}

// PutBlock implements storage.Blocks.
func (s *Store) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	return s.changeBlock(ctx, user, blocked, func(ctx context.Context, tx pgx.Tx) error {
		var stands, back bool
		err := tx.QueryRow(ctx, blocksOfPair, string(user), string(blocked)).Scan(&stands, &back)
		if err != nil || stands {
			return err
		}
		var n int
		err = tx.QueryRow(ctx, countBlocks, string(user)).Scan(&n)
		if err == nil {
			err = storage.CheckBlocks(n)
		}
		if err == nil {
			_, err = tx.Exec(ctx, insertBlock, string(user), string(blocked), now.UnixMilli())
		}
		return err
	})
}

// RemoveBlock implements storage.Blocks.
func (s *Store) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	return s.changeBlock(ctx, user, blocked, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, deleteBlock, string(user), string(blocked))
		return err
	})
}

// changeBlock changes a block, and the state of the direct chat of its users, in one transaction.
func (s *Store) changeBlock(
	ctx context.Context, user, blocked tidemark.UserID,
	change func(ctx context.Context, tx pgx.Tx) error,
) (pair storage.PairChat, err error) {
	key := tidemark.DirectKey(user, blocked)
	err = s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			pair = storage.PairChat{}
			if _, err := tx.Exec(ctx, lockPair, key); err != nil {
				return err
			}
			if err := change(ctx, tx); err != nil {
				return err
			}
			var row chatRow
			var chat int64
			err := tx.QueryRow(ctx, lockDirect, key).Scan(append(row.columns(), &chat)...)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			first, second, err := pairBlocks(ctx, tx, user, blocked)
			if err != nil {
				return err
			}
			before := row.chat()
			//rule:blocked_is_closed.close-with-the-block-in-postgres
			after, changed := storage.CloseBy(before, first, second)
			if pair = storage.PairChatOf(&after); !changed {
				return nil
			}
			if pair = storage.PairAfter(&before, &after); !pair.Turned {
				_, err = tx.Exec(ctx, closeByOther, chat, string(after.State))
				return err
			}
			_, err = tx.Exec(ctx, closeChat, chat, string(after.State),
				int64(after.Version), int64(after.MembersVersion))
			return err
		})
	})
	if err != nil {
		return storage.PairChat{}, err
	}
	return pair, nil
}

// closing returns the state of a locked direct chat by the blocks between its members.
func (m *membership) closing(ctx context.Context) (tidemark.ChatState, error) {
	roster, err := m.roster(ctx)
	if err != nil || len(roster.Members) < 2 { // The other member was erased.
		return tidemark.ChatLive, err
	}
	first, second, err := pairBlocks(ctx, m.tx, roster.Members[0].UserID, roster.Members[1].UserID)
	//rule:blocked_is_closed.close-at-the-end-of-an-import-in-postgres
	return storage.Closing(first, second), err
}

// BlocksOf implements storage.Blocks.
func (s *Store) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) ([]storage.Block, bool, error) {
	parameters := []any{string(user), string(after), int64(limit) + 1}
	return list(ctx, s, listBlocks, limit, parameters,
		func(row pgx.Rows) (block storage.Block, err error) {
			var at int64
			err = row.Scan((*string)(&block.User), &at)
			block.At = timeOf(at)
			return block, err
		})
}

// Apart implements storage.Blocks.
func (s *Store) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) (found []tidemark.UserID, err error) {
	if err := checkBatch(len(others)); err != nil || len(others) == 0 {
		return nil, err
	}
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		found = nil
		return c.each(ctx, apartFrom, []any{string(user), texts(others)},
			func(row pgx.Rows) error {
				var other string
				err := row.Scan(&other)
				found = append(found, tidemark.UserID(other))
				return err
			})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
