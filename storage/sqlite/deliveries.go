package sqlite

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// stateColumns are the columns that scanState reads, of a row d that may be missing.
const stateColumns = `d.last_acked_sequence, d.last_read_sequence, d.acked_at, d.read_at,
	d.unread_from, d.hidden_from, d.shown_at`

// stateWidth is the number of stateColumns.
const stateWidth = 7

// scanState reads stateColumns from column i on. All are NULL if there is no row.
func scanState(
	row *stmt, i int, user tidemark.UserID, chat tidemark.ChatID,
) tidemark.DeliveryState {
	state := tidemark.DeliveryState{UserID: user, ChatID: chat}
	if row.nullAt(i) {
		return state
	}
	state.Acked = tidemark.Sequence(row.integerAt(i))
	state.Read = tidemark.Sequence(row.integerAt(i + 1))
	state.AckedAt = timeOrNever(row.integerAt(i + 2))
	state.ReadAt = timeOrNever(row.integerAt(i + 3))
	state.UnreadFrom = tidemark.Sequence(row.integerAt(i + 4))
	state.HiddenFrom = tidemark.Sequence(row.integerAt(i + 5))
	state.ShownAt = timeOrNever(row.integerAt(i + 6))
	return state
}

// A storedState is a row of delivery_state.
type storedState struct {
	tidemark.DeliveryState
	// sentBefore is the column of this name. stored reports that there is a row.
	sentBefore int64
	stored     bool
}

// state returns the delivery state of a user.
func (w *writer) state(c *chat, user tidemark.UserID) (storedState, error) {
	found := storedState{DeliveryState: tidemark.DeliveryState{UserID: user, ChatID: c.id}}
	q, err := w.c.prepared(`SELECT ` + stateColumns + `, d.sent_before
		FROM delivery_state AS d WHERE d.chat = ? AND d.user_id = ?`)
	if err != nil {
		return found, err
	}
	q.integer(1, c.key)
	q.string(2, string(user))
	found.stored, err = q.one(func(row *stmt) {
		found.DeliveryState = scanState(row, 0, user, c.id)
		found.sentBefore = row.integerAt(stateWidth)
	})
	return found, err
}

// putState stores a delivery state that follows another one.
func (w *writer) putState(c *chat, before storedState, state tidemark.DeliveryState) error {
	sentBefore, err := w.sentBefore(c, before, state.UnreadAfter())
	if err != nil {
		return err
	}
	text := `INSERT INTO delivery_state (last_acked_sequence, last_read_sequence, acked_at, read_at,
			unread_from, hidden_from, shown_at, sent_before, chat, user_id)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	if before.stored {
		text = `UPDATE delivery_state SET last_acked_sequence = ?, last_read_sequence = ?,
				acked_at = ?, read_at = ?, unread_from = ?, hidden_from = ?, shown_at = ?,
				sent_before = ?
			WHERE chat = ? AND user_id = ?`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	q.integer(1, int64(state.Acked))
	q.integer(2, int64(state.Read))
	q.integer(3, orNever(state.AckedAt))
	q.integer(4, orNever(state.ReadAt))
	q.integer(5, int64(state.UnreadFrom))
	q.integer(6, int64(state.HiddenFrom))
	q.integer(7, orNever(state.ShownAt))
	q.integer(8, sentBefore)
	q.integer(9, c.key)
	q.string(10, string(state.UserID))
	return q.run()
}

// timeOrNever returns the time of a column in milliseconds. 0 is the zero time.
func timeOrNever(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return timeOf(milliseconds)
}

// orNever returns a time as timeOrNever reads it.
func orNever(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// sentBefore returns how many of a user's messages that count are not after a new mark. Usually
// none is after it. Only if the user sent messages before and after the mark, those between the old
// mark and the new one are counted.
func (w *writer) sentBefore(
	c *chat, before storedState, after tidemark.Sequence,
) (int64, error) {
	if after == before.UnreadAfter() {
		return before.sentBefore, nil
	}
	from, _, err := w.former(c, before.UserID)
	if err != nil {
		return 0, err
	}
	//rule:unread_exact.all-own-before-the-mark-in-sqlite
	if from.last <= after {
		return from.sent, nil
	}
	old, err := w.countedUpTo(c, before)
	if err != nil {
		return 0, err
	}
	//rule:unread_exact.own-may-name-others
	q, err := w.c.prepared(`SELECT count(*) FROM messages
		WHERE chat = ? AND sequence > ? AND sequence <= ? AND sender_id = ?
			AND (kind_mentions IS NULL OR kind_mentions GLOB 'message *')`)
	if err != nil {
		return 0, err
	}
	q.integer(1, c.key)
	q.integer(2, int64(min(old.At, after)))
	q.integer(3, int64(max(old.At, after)))
	q.string(4, string(before.UserID))
	var n int64
	if _, err := q.one(func(row *stmt) { n = row.integerAt(0) }); err != nil {
		return 0, err
	}
	//rule:unread_exact.count-own-between-marks
	if after < old.At {
		n = -n
	}
	return old.Sent + n, nil
}

// countedUpTo returns the mark of a state from which the user's messages are counted.
func (w *writer) countedUpTo(c *chat, before storedState) (unread.Mark, error) {
	mark := unread.Mark{At: before.UnreadAfter(), Sent: before.sentBefore}
	if mark.At+1 >= c.floor {
		return mark, nil
	}
	q, err := w.c.prepared(`SELECT expired FROM members WHERE chat = ? AND user_id = ?`)
	if err != nil {
		return mark, err
	}
	q.integer(1, c.key)
	q.string(2, string(before.UserID))
	var expired int64
	_, err = q.one(func(row *stmt) { expired = row.integerAt(0) })
	return mark.NotBelow(c.floor, expired), err
}

// Advance implements storage.Deliveries. If no watermark moves, it writes nothing and costs no
// fsync.
func (s *Store) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	if err := checkBatch(len(advances)); err != nil || len(advances) == 0 {
		return nil, err
	}
	if err := storage.CheckDistinct(advances); err != nil {
		return nil, err
	}
	results := make([]storage.Advanced, len(advances))
	err := s.change(ctx, func(w *writer) error {
		for i := range advances {
			var err error
			if results[i], err = w.advance(&advances[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// advance returns errors of the contract in Advanced.Err, and others as its own error.
func (w *writer) advance(a *storage.Advance) (storage.Advanced, error) {
	c, err := w.alive(a.Chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return storage.Advanced{Err: err}, nil
	}
	if err != nil {
		return storage.Advanced{}, err
	}
	//rule:watermark_bounded_by_counter.check-against-head-in-sqlite
	if err := a.Raise.Bounded(c.head); err != nil {
		return storage.Advanced{Err: err}, nil
	}
	before, err := w.state(c, a.User)
	if err != nil {
		return storage.Advanced{}, err
	}
	raise := *a
	//rule:shown_within_real.decide-in-the-step-in-sqlite
	if raise.Read > before.Read {
		if raise.Hidden, err = w.hides(c, a.User); err != nil {
			return storage.Advanced{}, err
		}
	}
	//rule:watermark_monotonic.raise-what-is-stored
	done := raise.Of(before.DeliveryState, timeOf(a.Now.UnixMilli()))
	if done.Moved {
		w.acks++
		err = w.putState(c, before, done.State)
	}
	return done, err
}

const statesOfPairs = `SELECT ` + stateColumns + `, CASE c.read_receipts
		WHEN 'required' THEN 0 WHEN 'off' THEN 1 ELSE coalesce(
			(SELECT hidden FROM receipts WHERE user_id = j.value ->> 0 AND chat = c.key),
			(SELECT hidden FROM receipts WHERE user_id = j.value ->> 0 AND chat = 0), 0) END
	FROM json_each(?) AS j
	LEFT JOIN chats AS c ON c.id = j.value ->> 1
	LEFT JOIN delivery_state AS d ON d.chat = c.key AND d.user_id = j.value ->> 0`

// jsonPairs returns the users and chats as a JSON array of pairs, for json_each.
func jsonPairs(keys []storage.StateKey) string {
	b := []byte{'['}
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(tidemark.AppendString(append(b, '['), string(key.User)), ',')
		b = append(tidemark.AppendString(b, string(key.Chat)), ']')
	}
	return string(append(b, ']'))
}

// States implements storage.Deliveries.
func (s *Store) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	if err := checkBatch(len(keys)); err != nil || len(keys) == 0 {
		return nil, err
	}
	states := make([]tidemark.DeliveryState, 0, len(keys))
	err := s.read(ctx, func(c *conn) error {
		q, err := c.prepared(statesOfPairs)
		if err != nil {
			return err
		}
		q.string(1, jsonPairs(keys))
		return q.each(func(row *stmt) bool {
			key := keys[len(states)]
			state := scanState(row, 0, key.User, key.Chat)
			state.Hides = row.integerAt(stateWidth) != 0
			states = append(states, state)
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return states, nil
}

const statesOfUser = `SELECT m.chat_id, ` + stateColumns + `
	FROM members AS m
	CROSS JOIN delivery_state AS d ON d.chat = m.chat AND d.user_id = m.user_id
	WHERE m.user_id = ? AND m.chat_id > ? AND m.current = 1 ORDER BY m.chat_id LIMIT ?`

// StatesOf implements storage.Deliveries.
func (s *Store) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return page(ctx, s, statesOfUser, limit, func(q *stmt) {
		q.string(1, string(user))
		q.string(2, string(after))
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) tidemark.DeliveryState {
		return scanState(row, 1, user, tidemark.ChatID(row.stringAt(0)))
	})
}

const statesInChat = `SELECT m.user_id, ` + stateColumns + `
	FROM members AS m
	LEFT JOIN delivery_state AS d ON d.chat = m.chat AND d.user_id = m.user_id
	WHERE m.chat = (SELECT key FROM chats WHERE id = ?) AND m.user_id > ? AND m.current = 1
	ORDER BY m.user_id LIMIT ?`

// StatesIn implements storage.Deliveries.
func (s *Store) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return page(ctx, s, statesInChat, limit, func(q *stmt) {
		q.string(1, string(chat))
		q.string(2, string(after))
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) tidemark.DeliveryState {
		return scanState(row, 1, tidemark.UserID(row.stringAt(0)), chat)
	})
}

// page reads at most limit rows of a statement, and reports whether there are more.
func page[T any](
	ctx context.Context, s *Store, text string, limit int, bind func(*stmt), scan func(*stmt) T,
) (rows []T, more bool, err error) {
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(text)
		if err != nil {
			return err
		}
		bind(q)
		return q.each(func(row *stmt) bool {
			if more = len(rows) == limit; more {
				return false
			}
			rows = append(rows, scan(row))
			return true
		})
	})
	if err != nil {
		return nil, false, err
	}
	return rows, more, nil
}

// shownRead is tidemark.DeliveryState.ShownRead of a row d that may be missing.
//
//rule:shown_within_real.summary-in-sqlite
const shownRead = `coalesce(CASE d.hidden_from WHEN 0 THEN d.last_read_sequence
			ELSE d.hidden_from - 1 END, 0)`

// summary returns one row, also for a chat without members.
//
//rule:group_delivered_requires_all_members.summary-statement
const summary = `SELECT c.key, count(m.user_id),
		coalesce(sum(max(coalesce(d.last_acked_sequence, 0), ` + shownRead + `) >= ?2), 0),
		coalesce(sum(CASE m.user_id
			WHEN ?3 THEN max(coalesce(d.last_acked_sequence, 0), ` + shownRead + `)
			ELSE ` + shownRead + ` END >= ?2), 0),
		coalesce(min(max(coalesce(d.last_acked_sequence, 0), ` + shownRead + `)), 0),
		coalesce(min(` + shownRead + `), 0)
	FROM chats AS c
	LEFT JOIN members AS m ON m.chat = c.key AND m.current = 1
	LEFT JOIN delivery_state AS d ON d.chat = m.chat AND d.user_id = m.user_id
	WHERE c.id = ?1`

// Summary implements storage.Deliveries.
func (s *Store) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence, author tidemark.UserID,
) (storage.Summary, error) {
	var result storage.Summary
	err := s.read(ctx, func(c *conn) error {
		q, err := c.prepared(summary)
		if err != nil {
			return err
		}
		q.string(1, string(chat))
		q.integer(2, int64(sequence))
		q.string(3, string(author))
		known := false
		_, err = q.one(func(row *stmt) {
			known = !row.nullAt(0)
			result = storage.Summary{
				Members:   int(row.integerAt(1)),
				Delivered: int(row.integerAt(2)),
				Read:      int(row.integerAt(3)),
				Least: tidemark.Boundary{
					Acked: tidemark.Sequence(row.integerAt(4)),
					Read:  tidemark.Sequence(row.integerAt(5)),
				},
			}
		})
		// Without members, the LEFT JOIN makes one row with a NULL member. count ignores it, but
		// sum counts it.
		if result.Members == 0 {
			result = storage.Summary{}
		}
		if err == nil && !known {
			err = noChat(chat)
		}
		return err
	})
	if err != nil {
		return storage.Summary{}, err
	}
	return result, nil
}
