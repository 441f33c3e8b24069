package sqlite

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Mark implements storage.Pending. It first reads on a connection of the pool, which sees every
// Mark and Clear that returned before. Rows that stand cost no commit and no place in the queue.
// For them, the call takes effect at that read. A Clear that commits later comes after it.
func (s *Store) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	if err := checkBatch(len(rows)); err != nil || len(rows) == 0 {
		return nil, err
	}
	written := make([]bool, len(rows))
	missing, err := s.unmarked(ctx, rows)
	if err != nil || len(missing) == 0 {
		return written, err
	}
	err = s.change(ctx, func(w *writer) error {
		//rule:pending_once.mark-statement
		q, err := w.c.prepared(`INSERT INTO pending_deliveries (user_id, chat_id,
				first_undelivered_seq)
			VALUES (?, ?, ?)
			ON CONFLICT (user_id, chat_id) DO UPDATE
			SET first_undelivered_seq = excluded.first_undelivered_seq
			WHERE excluded.first_undelivered_seq < first_undelivered_seq`)
		if err != nil {
			return err
		}
		for _, i := range missing {
			q.string(1, string(rows[i].UserID))
			q.string(2, string(rows[i].ChatID))
			q.integer(3, int64(rows[i].FirstUndelivered))
			if err := q.run(); err != nil {
				return err
			}
			written[i] = w.c.Changes() > 0
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return written, nil
}

// unmarked returns the indexes of the rows for which no row at or below their sequence stands.
func (s *Store) unmarked(
	ctx context.Context, rows []tidemark.PendingDelivery,
) (missing []int, err error) {
	err = s.snapshot(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT 1 FROM pending_deliveries
			WHERE user_id = ? AND chat_id = ? AND first_undelivered_seq <= ?`)
		if err != nil {
			return err
		}
		for i := range rows {
			q.string(1, string(rows[i].UserID))
			q.string(2, string(rows[i].ChatID))
			q.integer(3, int64(rows[i].FirstUndelivered))
			found, err := q.one(func(*stmt) {})
			if err != nil {
				return err
			}
			if !found {
				missing = append(missing, i)
			}
		}
		return nil
	})
	return missing, err
}

// Clear implements storage.Pending. It reads the head in the same transaction, so no append comes
// between the read and the write.
func (s *Store) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	if err := checkBatch(len(items)); err != nil || len(items) == 0 {
		return nil, err
	}
	cleared := make([]bool, len(items))
	err := s.change(ctx, func(w *writer) error {
		for i := range items {
			var err error
			if cleared[i], err = w.clear(&items[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return cleared, nil
}

func (w *writer) clear(item *storage.Clear) (bool, error) {
	c, err := w.chat(item.Chat)
	if err != nil {
		return false, err
	}
	//rule:pending_or_delivered.remove-row-in-range
	text := `DELETE FROM pending_deliveries
		WHERE user_id = ?1 AND chat_id = ?2 AND first_undelivered_seq BETWEEN 1 AND ?3`
	//rule:R_CLEAR.clear-at-head-only-in-sqlite
	if c != nil && item.Through < c.head {
		//rule:R_CLEAR.trim-row-statement
		text = `UPDATE pending_deliveries
			SET first_undelivered_seq = ?3 + 1 WHERE user_id = ?1 AND chat_id = ?2
				AND first_undelivered_seq BETWEEN 1 AND ?3`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return false, err
	}
	q.string(1, string(item.User))
	q.string(2, string(item.Chat))
	q.integer(3, int64(item.Through))
	if err := q.run(); err != nil {
		return false, err
	}
	cleared := w.c.Changes() > 0
	//rule:R_STANDS.version-of-removed-row-in-sqlite
	if cleared && c != nil {
		w.rowRemoved(c)
	}
	return cleared, nil
}

// addStandingRows writes the standing row of each member of a Large chat.
func (w *writer) addStandingRows(c *chat) error {
	q, err := w.c.prepared(`INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq)
		SELECT user_id, chat_id, 0 FROM members WHERE chat = ? AND current = 1
		ON CONFLICT (user_id, chat_id) DO UPDATE
		SET first_undelivered_seq = 0 WHERE first_undelivered_seq > 0`)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	return q.run()
}

// addStandingRow writes the standing row of one member of a Large chat. So adding a member does not
// read all the others.
func (w *writer) addStandingRow(c *chat, user tidemark.UserID) error {
	q, err := w.c.prepared(`INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq)
		VALUES (?, ?, 0)
		ON CONFLICT (user_id, chat_id) DO UPDATE
		SET first_undelivered_seq = 0 WHERE first_undelivered_seq > 0`)
	if err != nil {
		return err
	}
	q.string(1, string(user))
	q.string(2, string(c.id))
	return q.run()
}

// unmark removes the row of a user in a chat, whatever its sequence.
func (w *writer) unmark(c *chat, user tidemark.UserID) error {
	q, err := w.c.prepared(`DELETE FROM pending_deliveries WHERE user_id = ? AND chat_id = ?`)
	if err != nil {
		return err
	}
	q.string(1, string(user))
	q.string(2, string(c.id))
	return q.run()
}

// pendingOfUser makes two look-ups for each row.
const pendingOfUser = `SELECT p.chat_id, p.first_undelivered_seq,
		coalesce(d.last_acked_sequence, 0)
	FROM pending_deliveries AS p
	LEFT JOIN chats AS c ON c.id = p.chat_id
	LEFT JOIN delivery_state AS d ON d.chat = c.key AND d.user_id = p.user_id
	WHERE p.user_id = ? AND p.chat_id > ? ORDER BY p.chat_id LIMIT ?`

// PendingOf implements storage.Pending.
func (s *Store) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	return page(ctx, s, pendingOfUser, limit, func(q *stmt) {
		q.string(1, string(user))
		q.string(2, string(after))
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) storage.PendingRow {
		return storage.PendingRow{
			PendingDelivery: tidemark.PendingDelivery{
				UserID:           user,
				ChatID:           tidemark.ChatID(row.stringAt(0)),
				FirstUndelivered: tidemark.Sequence(row.integerAt(1)),
			},
			Acked: tidemark.Sequence(row.integerAt(2)),
		}
	})
}

// behind reads every chat of the user up to the end of the page, with two look-ups each.
//
//rule:pending_or_delivered.behind-statement
const behind = `SELECT m.chat_id, c.head, coalesce(d.last_acked_sequence, 0), c.activity_at >= ?5
	FROM members AS m
	CROSS JOIN chats AS c ON c.key = m.chat
	LEFT JOIN delivery_state AS d ON d.chat = m.chat AND d.user_id = m.user_id
	WHERE m.user_id = ?1 AND m.chat_id > ?2 AND m.current = 1 AND c.large >= ?3
		AND (c.activity_at >= ?5 OR c.head > coalesce(d.last_acked_sequence, 0))
	ORDER BY m.chat_id LIMIT ?4`

// Behind implements storage.Pending.
func (s *Store) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	lags, more, err := page(ctx, s, behind, q.Limit, func(query *stmt) {
		query.string(1, string(user))
		query.string(2, string(q.After))
		query.integer(3, flag(q.LargeOnly))
		query.integer(4, int64(q.Limit)+1)
		query.integer(5, q.SinceMillis())
	}, func(row *stmt) storage.Lag {
		return storage.Lag{
			Chat:   tidemark.ChatID(row.stringAt(0)),
			Head:   tidemark.Sequence(row.integerAt(1)),
			Acked:  tidemark.Sequence(row.integerAt(2)),
			Active: row.integerAt(3) == 1,
		}
	})
	if err != nil || !more {
		return lags, "", false, err
	}
	return lags, lags[len(lags)-1].Chat, true, nil
}
