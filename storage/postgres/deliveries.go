package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// hiddenBy says whether what the user of a row r reads in the chat of a row c is hidden.
//
//rule:shown_within_real.decide-in-the-step-in-postgres
const hiddenBy = `CASE c.read_receipts WHEN 'required' THEN false WHEN 'off' THEN true
			ELSE coalesce(
			(SELECT hidden FROM receipts WHERE user_id = r.user_id AND chat = c.key LIMIT 1),
			(SELECT hidden FROM receipts WHERE user_id = r.user_id AND chat = 0 LIMIT 1), false)
			END`

// raiseStates is tidemark.Raise.Apply for many rows in one step, each of another user and chat.
//
// The statement computes each raise from its snapshot, and writes only rows that still are as in
// the snapshot. If another transaction changed a row, the raise has moves, but no written row. The
// caller then tries it again. Comparing with the head needs no lock, since heads only grow.
//
// The first rows returned are the raises whose chat exists and is not deleted, with the state
// before. Then come the keys of the rows that were written.
//
//rule:watermark_monotonic.raise-states-statement
const raiseStates = `WITH raise AS MATERIALIZED (
	SELECT r.*, c.key, c.head, c.floor, s.ctid AS place,
		coalesce(s.last_acked_sequence, 0) AS acked, coalesce(s.last_read_sequence, 0) AS read,
		coalesce(s.acked_at, 0) AS acked_at, coalesce(s.read_at, 0) AS read_at,
		coalesce(s.unread_from, 0) AS unread_from,
		coalesce(s.sent_before, 0) AS sent_before,
		coalesce(s.hidden_from, 0) AS hidden_from, coalesce(s.shown_at, 0) AS shown_at,
		r.to_read > 0 AND ` + hiddenBy + ` AS hidden
	FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::boolean[],
		$7::bigint[], $8::bigint[], $9::bigint[])
		WITH ORDINALITY AS r (chat_id, user_id, to_acked, acked_from, to_read, within_acked,
			first_read, first_now, read_now, no)
	CROSS JOIN LATERAL (SELECT key, head, floor, read_receipts FROM chats
		WHERE id = r.chat_id AND state IS DISTINCT FROM 'deleted' LIMIT 1) AS c
	LEFT JOIN LATERAL (SELECT ctid, * FROM delivery_state
		WHERE chat = c.key AND user_id = r.user_id LIMIT 1) AS s ON true
), applied AS MATERIALIZED (
	SELECT r.*, a.acked AS new_acked, d.read AS new_read,
		CASE WHEN a.acked > r.acked THEN r.first_now ELSE r.acked_at END AS new_acked_at,
		CASE WHEN d.read > greatest(r.read, r.first_read) THEN r.read_now
			WHEN d.read > r.read THEN r.first_now ELSE r.read_at END AS new_read_at,
		greatest(r.to_acked, r.to_read) <= r.head
			AND (a.acked, d.read) <> (r.acked, r.read) AS moves,
		CASE WHEN d.read = r.read THEN r.hidden_from WHEN NOT r.hidden THEN 0
			WHEN r.hidden_from = 0 THEN r.read + 1 ELSE r.hidden_from END AS new_hidden_from,
		CASE WHEN d.read = r.read THEN r.shown_at WHEN NOT r.hidden THEN 0
			WHEN r.hidden_from = 0 THEN r.read_at ELSE r.shown_at END AS new_shown_at,
		CASE WHEN d.read = r.read THEN r.sent_before
			WHEN coalesce(` + lastSentBy + `, 0) <= d.read
				THEN coalesce(` + sentBy + `, 0)
			ELSE CASE WHEN u.first < r.floor THEN coalesce(` + expiredBy + `, 0)
				ELSE r.sent_before END + (
				SELECT count(*) FILTER (WHERE m.sender_id = r.user_id AND m.kind IS NULL)
				FROM (SELECT sender_id, kind FROM messages
					WHERE chat = r.key AND sequence BETWEEN greatest(u.first, r.floor) AND d.read
					ORDER BY sequence) AS m)
		END AS new_sent_before
	FROM raise AS r
	CROSS JOIN LATERAL (
		SELECT CASE WHEN r.to_acked > r.acked AND r.acked + 1 >= r.acked_from THEN r.to_acked
			ELSE r.acked END AS acked
	) AS a
	CROSS JOIN LATERAL (
		SELECT greatest(r.read, least(r.to_read, CASE WHEN r.within_acked THEN a.acked END)) AS read
	) AS d
	CROSS JOIN LATERAL (
		SELECT CASE r.unread_from WHEN 0 THEN r.read + 1 ELSE r.unread_from END AS first
	) AS u
), raised AS (
	UPDATE delivery_state AS s
		SET last_acked_sequence = a.new_acked, last_read_sequence = a.new_read,
			acked_at = a.new_acked_at, read_at = a.new_read_at,
			unread_from = CASE a.new_read WHEN a.read THEN a.unread_from ELSE 0 END,
			hidden_from = a.new_hidden_from, shown_at = a.new_shown_at,
			sent_before = a.new_sent_before
	FROM applied AS a
	WHERE a.moves
		AND s.ctid = a.place AND s.last_acked_sequence = a.acked AND s.last_read_sequence = a.read
	RETURNING s.chat, s.user_id
), created AS (
	INSERT INTO delivery_state
		(chat, user_id, last_acked_sequence, last_read_sequence, acked_at, read_at, hidden_from,
			shown_at, sent_before)
	SELECT key, user_id, new_acked, new_read, new_acked_at, new_read_at, new_hidden_from,
			new_shown_at, new_sent_before
		FROM applied WHERE moves AND place IS NULL ORDER BY no
	ON CONFLICT DO NOTHING RETURNING chat, user_id
)
SELECT no, key, '', head, moves, hidden, acked, read, acked_at, read_at, unread_from, hidden_from,
	shown_at FROM applied
UNION ALL SELECT 0, chat, user_id, 0, true, false, 0, 0, 0, 0, 0, 0, 0 FROM raised
UNION ALL SELECT 0, chat, user_id, 0, true, false, 0, 0, 0, 0, 0, 0, 0 FROM created`

// Advance implements storage.Deliveries.
func (s *Store) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	if err := storage.CheckDistinct(advances); err != nil {
		return nil, err
	}
	return through(ctx, s, s.advances, advances)
}

// advance writes the raises of many calls. Raises of the same user and chat become one raise if
// they are plain. Otherwise they are written one after the other.
func (s *Store) advance(
	ctx context.Context, c *conn, advances []storage.Advance,
) ([]storage.Advanced, error) {
	results := make([]storage.Advanced, len(advances))
	todo := make([]int, len(advances))
	for i := range todo {
		todo[i] = i
	}
	for round := 0; len(todo) > 0; round++ {
		if round > maxRounds+len(advances) {
			return nil, tidemark.Errorf(tidemark.Unavailable,
				"the watermarks of a user change too quickly; try again")
		}
		began := time.Now()
		folds, rest := foldPlain(advances, todo)
		if err := c.raise(ctx, advances, folds); err != nil {
			return nil, err
		}
		if err := c.absent(ctx, folds); err != nil {
			return nil, err
		}
		todo = todo[:0]
		acks := 0
		for _, f := range folds {
			moved, again := f.answer(advances, results)
			acks += moved
			todo = append(todo, again...)
		}
		todo = append(todo, rest...)
		if acks > 0 {
			s.committed(0, acks, time.Since(began))
		}
	}
	return results, nil
}

// A fold is one raise that stands for several raises of the same user and chat.
type fold struct {
	storage.Advance
	// first is the index of the item with the highest Acked, read of the one with the highest Read.
	// Applied in this order, they do all that the fold does. The other items then change nothing.
	first, read int
	items       []int // of the advances
	// The result of the statement. known: the chat exists and is not deleted, with this head and
	// state before. moves: the raise changes the state. done: the statement has written it.
	// hidden: the user hides what they read. deleted: the chat is unknown because it was deleted.
	known, moves, done, hidden bool
	deleted                    bool
	head                       tidemark.Sequence
	before                     tidemark.DeliveryState
}

// plain reports whether a raise does not depend on the state before it. The higher of two plain
// raises has the effect of both.
func plain(r tidemark.Raise) bool { return r.AckedFrom == 0 && !r.ReadWithinAcked }

// foldPlain makes one fold of the plain raises of the same user and chat. It returns at most
// maxItems folds, and in rest the items that wait for the next statement.
func foldPlain(advances []storage.Advance, todo []int) (folds []*fold, rest []int) {
	at := make(map[storage.StateKey]*fold, len(todo))
	for _, i := range todo {
		a := &advances[i]
		key := storage.StateKey{User: a.User, Chat: a.Chat}
		f := at[key]
		switch {
		case f == nil && len(folds) == maxItems:
			rest = append(rest, i)
		case f == nil:
			f = &fold{Advance: *a, first: i, read: i, items: []int{i}}
			at[key] = f
			folds = append(folds, f)
		case plain(f.Raise) && plain(a.Raise):
			f.items = append(f.items, i)
			first := &advances[f.first]
			if a.Acked > first.Acked || a.Acked == first.Acked && a.Read > first.Read {
				f.first = i
			}
			if a.Read > advances[f.read].Read {
				f.read = i
			}
			f.Acked, f.Read = advances[f.first].Acked, advances[f.read].Read
		default:
			rest = append(rest, i)
		}
	}
	return folds, rest
}

// answer sets the results of the fold's items. It returns how many of them changed the state, and
// which ones must be tried again.
func (f *fold) answer(
	advances []storage.Advance, results []storage.Advanced,
) (moved int, again []int) {
	state := f.before
	refused := f.Bounded(f.head) != nil
	answered := map[int]bool{}
	for _, i := range append([]int{f.first, f.read}, f.items...) {
		if answered[i] {
			continue
		}
		answered[i] = true
		own := advances[i].Bounded(f.head)
		switch {
		case f.deleted:
			results[i] = storage.Advanced{Err: storage.WasDeleted(f.Chat)}
		case !f.known:
			results[i] = storage.Advanced{Err: noChat(f.Chat)}
		case own != nil:
			results[i] = storage.Advanced{Err: own}
		//rule:conditional_write_prevents_regression.retry-lost-race
		case refused, f.moves && !f.done:
			again = append(again, i)
		default:
			raise := advances[i]
			raise.Hidden = f.hidden
			results[i] = raise.Of(state, timeOf(advances[i].Now.UnixMilli()))
			if state = results[i].State; results[i].Moved {
				moved++
			}
		}
	}
	return moved, again
}

// raise runs the statement for folds of different users or chats, in the order of their keys.
func (c *conn) raise(ctx context.Context, advances []storage.Advance, folds []*fold) error {
	slices.SortFunc(folds, func(a, b *fold) int {
		return cmp.Or(strings.Compare(string(a.Chat), string(b.Chat)),
			strings.Compare(string(a.User), string(b.User)))
	})
	n := len(folds)
	text, numbers, within := make([]string, 2*n), make([]int64, 6*n), make([]bool, n)
	chats, users := text[:n], text[n:]
	acked, from, read := numbers[:n], numbers[n:2*n], numbers[2*n:3*n]
	firstRead, firstNow, readNow := numbers[3*n:4*n], numbers[4*n:5*n], numbers[5*n:]
	for i, f := range folds {
		chats[i], users[i] = string(f.Chat), string(f.User)
		acked[i], from[i], read[i] = column(f.Acked), column(f.AckedFrom), column(f.Read)
		first := &advances[f.first]
		within[i], firstRead[i] = f.ReadWithinAcked, column(first.Read)
		firstNow[i], readNow[i] = first.Now.UnixMilli(), advances[f.read].Now.UnixMilli()
	}
	type pair struct {
		chat int64
		user string
	}
	stored := make(map[pair]*fold, n)
	var no, chat, head int64
	var user string
	var moves, hidden bool
	var before stateRow
	to := append([]any{&no, &chat, &user, &head, &moves, &hidden}, before.columns()...)
	return c.each(ctx, raiseStates,
		[]any{chats, users, acked, from, read, within, firstRead, firstNow, readNow},
		func(row pgx.Rows) error {
			if err := row.Scan(to...); err != nil {
				return err
			}
			if no == 0 {
				stored[pair{chat, user}].done = true
				return nil
			}
			f := folds[no-1]
			f.known, f.head, f.moves, f.hidden = true, tidemark.Sequence(head), moves, hidden
			f.before = before.state(f.User, f.Chat)
			stored[pair{chat, string(f.User)}] = f
			return nil
		})
}

// absent finds out which of the chats that raise did not find were deleted. Most statements find
// all of them, and then it reads nothing.
func (c *conn) absent(ctx context.Context, folds []*fold) error {
	var unknown []*fold
	var chats []tidemark.ChatID
	for _, f := range folds {
		if !f.known {
			unknown, chats = append(unknown, f), append(chats, f.Chat)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	found, err := readRosters(ctx, c, chats)
	if err != nil {
		return err
	}
	for i, f := range unknown {
		r := found[i].roster
		//rule:deleted_is_gone.advance-says-so-in-postgres
		f.deleted = r != nil && r.State == tidemark.ChatDeleted
	}
	return nil
}

// stateColumns are the columns that stateRow.columns scans, of a row d that may be missing.
const stateColumns = `coalesce(d.last_acked_sequence, 0), coalesce(d.last_read_sequence, 0),
	coalesce(d.acked_at, 0), coalesce(d.read_at, 0), coalesce(d.unread_from, 0),
	coalesce(d.hidden_from, 0), coalesce(d.shown_at, 0)`

// A stateRow is a row of delivery_state. A missing row is all zeros.
type stateRow struct {
	acked, read, ackedAt, readAt, unreadFrom, hiddenFrom, shownAt int64
}

// columns returns the destinations of stateColumns.
func (r *stateRow) columns() []any {
	return []any{
		&r.acked, &r.read, &r.ackedAt, &r.readAt, &r.unreadFrom, &r.hiddenFrom, &r.shownAt,
	}
}

func (r *stateRow) state(user tidemark.UserID, chat tidemark.ChatID) tidemark.DeliveryState {
	s := tidemark.DeliveryState{
		UserID:     user,
		ChatID:     chat,
		Acked:      tidemark.Sequence(r.acked),
		Read:       tidemark.Sequence(r.read),
		UnreadFrom: tidemark.Sequence(r.unreadFrom),
		HiddenFrom: tidemark.Sequence(r.hiddenFrom),
	}
	if r.shownAt != 0 {
		s.ShownAt = timeOf(r.shownAt)
	}
	if r.ackedAt != 0 {
		s.AckedAt = timeOf(r.ackedAt)
	}
	if r.readAt != 0 {
		s.ReadAt = timeOf(r.readAt)
	}
	return s
}

// statesOfPairs returns a row for each pair: one without a state may hide what it reads.
const statesOfPairs = `SELECT r.no, ` + hiddenBy + `, ` + stateColumns + `
	FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS r (chat_id, user_id, no)
	LEFT JOIN LATERAL (SELECT key, read_receipts FROM chats WHERE id = r.chat_id LIMIT 1) AS c
		ON true
	LEFT JOIN LATERAL (SELECT * FROM delivery_state
		WHERE chat = c.key AND user_id = r.user_id LIMIT 1) AS d ON true`

// States implements storage.Deliveries.
func (s *Store) States(
	ctx context.Context, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	return through(ctx, s, s.states, keys)
}

func readStates(
	ctx context.Context, c *conn, keys []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	states := make([]tidemark.DeliveryState, len(keys))
	chats, users := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		chats[i], users[i] = string(key.Chat), string(key.User)
		states[i] = tidemark.DeliveryState{UserID: key.User, ChatID: key.Chat}
	}
	var no int64
	var found stateRow
	var hides bool
	to := append([]any{&no, &hides}, found.columns()...)
	return states, c.each(ctx, statesOfPairs, []any{chats, users}, func(row pgx.Rows) error {
		if err := row.Scan(to...); err != nil {
			return err
		}
		states[no-1] = found.state(keys[no-1].User, keys[no-1].Chat)
		states[no-1].Hides = hides
		return nil
	})
}

const statesOfUser = `SELECT m.chat_id, ` + stateColumns + ` FROM members AS m
	CROSS JOIN LATERAL (SELECT * FROM delivery_state
		WHERE chat = m.chat AND user_id = m.user_id LIMIT 1) AS d
	WHERE m.user_id = $1 AND m.chat_id > $2 AND m.current ORDER BY m.chat_id LIMIT $3`

// StatesOf implements storage.Deliveries.
func (s *Store) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return list(ctx, s, statesOfUser, limit, []any{string(user), string(after), int64(limit) + 1},
		func(row pgx.Rows) (tidemark.DeliveryState, error) {
			var chat string
			var found stateRow
			err := row.Scan(append([]any{&chat}, found.columns()...)...)
			return found.state(user, tidemark.ChatID(chat)), err
		})
}

const statesInChat = `SELECT m.user_id, ` + stateColumns + ` FROM members AS m
	LEFT JOIN LATERAL (SELECT * FROM delivery_state
		WHERE chat = m.chat AND user_id = m.user_id LIMIT 1) AS d ON true
	WHERE m.chat = (SELECT key FROM chats WHERE id = $1) AND m.user_id > $2
		AND m.current::int = 1 ORDER BY m.user_id LIMIT $3`

// StatesIn implements storage.Deliveries.
func (s *Store) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	return list(ctx, s, statesInChat, limit, []any{string(chat), string(after), int64(limit) + 1},
		func(row pgx.Rows) (tidemark.DeliveryState, error) {
			var user string
			var found stateRow
			err := row.Scan(append([]any{&user}, found.columns()...)...)
			return found.state(tidemark.UserID(user), chat), err
		})
}

// summaryOf returns one row for each existing chat, also for a chat without members.
//
//rule:group_delivered_requires_all_members.summary-statement-in-postgres
//rule:shown_within_real.summary-in-postgres
const summaryOf = `SELECT s.* FROM (SELECT key FROM chats WHERE id = $1 LIMIT 1) AS c
	CROSS JOIN LATERAL (
	SELECT count(*),
		count(*) FILTER (WHERE coalesce(greatest(d.acked, d.read), 0) >= $2),
		count(*) FILTER (WHERE coalesce(CASE m.user_id
			WHEN $3 THEN greatest(d.acked, d.read) ELSE d.read END, 0) >= $2),
		coalesce(min(coalesce(greatest(d.acked, d.read), 0)), 0),
		coalesce(min(coalesce(d.read, 0)), 0)
	FROM members AS m
	LEFT JOIN LATERAL (SELECT last_acked_sequence AS acked,
			CASE hidden_from WHEN 0 THEN last_read_sequence ELSE hidden_from - 1 END AS read
		FROM delivery_state
		WHERE chat = m.chat AND user_id = m.user_id LIMIT 1) AS d ON true
	WHERE m.chat = c.key AND m.current::int = 1
) AS s`

// Summary implements storage.Deliveries.
func (s *Store) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence, author tidemark.UserID,
) (storage.Summary, error) {
	var found storage.Summary
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		var acked, read int64
		err := c.QueryRow(ctx, summaryOf, string(chat), column(sequence), string(author)).Scan(
			&found.Members, &found.Delivered, &found.Read, &acked, &read)
		found.Least = tidemark.Boundary{
			Acked: tidemark.Sequence(acked),
			Read:  tidemark.Sequence(read),
		}
		return missing(err, chat)
	})
	if err != nil {
		return storage.Summary{}, err
	}
	return found, nil
}
