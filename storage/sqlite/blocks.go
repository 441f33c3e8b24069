package sqlite

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// PutBlock implements storage.Blocks.
func (s *Store) PutBlock(
	ctx context.Context, user, blocked tidemark.UserID, now time.Time,
) (storage.PairChat, error) {
	return s.changeBlock(ctx, user, blocked, func(w *writer) error {
		stands, err := w.blocks(user, blocked)
		if err != nil || stands {
			return err
		}
		n, err := w.number(`SELECT count(*) FROM blocks WHERE user_id = ?1`, func(q *stmt) {
			q.string(1, string(user))
		})
		if err == nil {
			err = storage.CheckBlocks(int(n))
		}
		if err != nil {
			return err
		}
		return w.do(`INSERT INTO blocks (user_id, blocked_id, blocked_at) VALUES (?, ?, ?)`,
			func(q *stmt) {
				q.string(1, string(user))
				q.string(2, string(blocked))
				q.integer(3, now.UnixMilli())
			})
	})
}

// RemoveBlock implements storage.Blocks.
func (s *Store) RemoveBlock(
	ctx context.Context, user, blocked tidemark.UserID,
) (storage.PairChat, error) {
	return s.changeBlock(ctx, user, blocked, func(w *writer) error {
		return w.do(`DELETE FROM blocks WHERE user_id = ? AND blocked_id = ?`, func(q *stmt) {
			q.string(1, string(user))
			q.string(2, string(blocked))
		})
	})
}

// changeBlock changes a block, and the state of the direct chat of its users, in one transaction.
func (s *Store) changeBlock(
	ctx context.Context, user, blocked tidemark.UserID, change func(w *writer) error,
) (pair storage.PairChat, err error) {
	err = s.change(ctx, func(w *writer) error {
		if err := change(w); err != nil {
			return err
		}
		pair, err = w.closePair(user, blocked)
		return err
	})
	if err != nil {
		return storage.PairChat{}, err
	}
	return pair, nil
}

// closePair gives the direct chat of two users the state that their blocks ask for.
func (w *writer) closePair(a, b tidemark.UserID) (storage.PairChat, error) {
	if err := w.flush(); err != nil {
		return storage.PairChat{}, err
	}
	before, found, err := oneChat(w.c,
		`SELECT `+chatColumns+` FROM chats AS c WHERE c.direct_key = ?`, tidemark.DirectKey(a, b))
	if err != nil || !found {
		return storage.PairChat{}, err
	}
	first, second, err := w.blocking(a, b)
	if err != nil {
		return storage.PairChat{}, err
	}
	//rule:blocked_is_closed.close-with-the-block-in-sqlite
	after, changed := storage.CloseBy(before, first, second)
	if !changed {
		return storage.PairChatOf(&after), nil
	}
	c, err := w.existing(after.ID)
	if err != nil {
		return storage.PairChat{}, err
	}
	pair := storage.PairAfter(&before, &after)
	// If the chat stays closed, a cached state may say by whom it was closed before. Nobody asks.
	//rule:blocked_is_closed.forget-the-state-in-sqlite
	if pair.Turned {
		if err := w.setMembership(c, c.members); err != nil {
			return storage.PairChat{}, err
		}
	}
	err = w.do(`UPDATE chats SET state = nullif(?, ''), version = ? WHERE key = ?`,
		func(q *stmt) {
			q.string(1, string(after.State))
			q.integer(2, int64(after.Version))
			q.integer(3, c.key)
		})
	return pair, err
}

// blocking says whether the user with the smaller id has blocked the other one, and the reverse.
func (w *writer) blocking(a, b tidemark.UserID) (first, second bool, err error) {
	if b < a {
		a, b = b, a
	}
	if first, err = w.blocks(a, b); err != nil {
		return false, false, err
	}
	second, err = w.blocks(b, a)
	return first, second, err
}

// blocks reports whether a user has blocked another one.
func (w *writer) blocks(user, other tidemark.UserID) (bool, error) {
	n, err := w.number(`SELECT count(*) FROM blocks WHERE user_id = ?1 AND blocked_id = ?2`,
		func(q *stmt) {
			q.string(1, string(user))
			q.string(2, string(other))
		})
	return n > 0, err
}

// closingOf returns the state of a direct chat by the blocks between its members.
func (w *writer) closingOf(c *chat) (tidemark.ChatState, error) {
	r, err := roster(w.c, c.id)
	if err != nil || len(r.Members) < 2 { // The other member was erased.
		return tidemark.ChatLive, err
	}
	first, second, err := w.blocking(r.Members[0].UserID, r.Members[1].UserID)
	//rule:blocked_is_closed.close-at-the-end-of-an-import-in-sqlite
	return storage.Closing(first, second), err
}

// mayOpen returns Denied for a new direct chat of two users between whom a block stands.
func (w *writer) mayOpen(new storage.NewChat) error {
	first, second, err := w.blocking(new.Members[0], new.Members[1])
	//rule:blocked_is_closed.no-new-chat-in-sqlite
	if err == nil && new.State == tidemark.ChatLive && (first || second) {
		err = storage.Closed()
	}
	return err
}

// number runs a statement that returns one number.
func (w *writer) number(text string, bind func(*stmt)) (n int64, err error) {
	q, err := w.c.prepared(text)
	if err != nil {
		return 0, err
	}
	bind(q)
	_, err = q.one(func(row *stmt) { n = row.integerAt(0) })
	return n, err
}

// do runs a statement that returns nothing.
func (w *writer) do(text string, bind func(*stmt)) error {
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	bind(q)
	return q.run()
}

// BlocksOf implements storage.Blocks.
func (s *Store) BlocksOf(
	ctx context.Context, user, after tidemark.UserID, limit int,
) ([]storage.Block, bool, error) {
	return page(ctx, s, `SELECT blocked_id, blocked_at FROM blocks
		WHERE user_id = ? AND blocked_id > ? ORDER BY blocked_id LIMIT ?`, limit, func(q *stmt) {
		q.string(1, string(user))
		q.string(2, string(after))
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) storage.Block {
		return storage.Block{
			User: tidemark.UserID(row.stringAt(0)), At: timeOf(row.integerAt(1)),
		}
	})
}

// Apart implements storage.Blocks.
func (s *Store) Apart(
	ctx context.Context, user tidemark.UserID, others []tidemark.UserID,
) (found []tidemark.UserID, err error) {
	if err := checkBatch(len(others)); err != nil || len(others) == 0 {
		return nil, err
	}
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT j.value FROM json_each(?1) AS j
			WHERE EXISTS (SELECT 1 FROM blocks WHERE user_id = ?2 AND blocked_id = j.value)
				OR EXISTS (SELECT 1 FROM blocks WHERE user_id = j.value AND blocked_id = ?2)`)
		if err != nil {
			return err
		}
		q.string(1, jsonArray(others))
		q.string(2, string(user))
		return q.each(func(row *stmt) bool {
			found = append(found, tidemark.UserID(row.stringAt(0)))
			return true
		})
	})
	return found, err
}
