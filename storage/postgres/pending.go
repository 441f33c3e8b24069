package postgres

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// markRows writes each row unless one with the same or a lower sequence exists. It returns the rows
// that it wrote. A row that exists costs a look-up and no lock. A transaction that raises or
// removes the row meanwhile has seen the head of the marked message. A Clear locks the counter
// first (delivery.md §4, R_CLEAR).
const markRows = `INSERT INTO pending_deliveries AS p (user_id, chat_id, first_undelivered_seq)
	SELECT r.user_id, r.chat_id, r.first
	FROM unnest($1::text[], $2::text[], $3::bigint[])
		WITH ORDINALITY AS r (user_id, chat_id, first, no)
	WHERE (SELECT true FROM pending_deliveries AS q
		WHERE q.user_id = r.user_id AND q.chat_id = r.chat_id AND q.first_undelivered_seq <= r.first
		LIMIT 1) IS NULL
	ORDER BY r.no
	ON CONFLICT (user_id, chat_id) DO UPDATE
		SET first_undelivered_seq = excluded.first_undelivered_seq
	WHERE excluded.first_undelivered_seq < p.first_undelivered_seq
	RETURNING user_id, chat_id`

// Mark implements storage.Pending.
func (s *Store) Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error) {
	return through(ctx, s, s.marks, rows)
}

func (s *Store) mark(
	ctx context.Context, c *conn, rows []tidemark.PendingDelivery,
) ([]bool, error) {
	key := func(i int) storage.StateKey {
		return storage.StateKey{User: rows[i].UserID, Chat: rows[i].ChatID}
	}
	return inTurns(len(rows), key, func(turn []int, written []bool) error {
		users, chats := columnsOf(turn, key)
		first := make([]int64, len(turn))
		at := make(map[storage.StateKey]int, len(turn))
		for n, i := range turn {
			first[n] = column(rows[i].FirstUndelivered)
			at[key(i)] = i
		}
		return c.each(ctx, markRows, []any{users, chats, first}, func(row pgx.Rows) error {
			var user, chat string
			err := row.Scan(&user, &chat)
			k := storage.StateKey{User: tidemark.UserID(user), Chat: tidemark.ChatID(chat)}
			written[at[k]] = true
			return err
		})
	})
}

// clearRows removes or raises pending rows, by the latest heads of their chats.
//
// It locks the counters of the chats that have something to clear. So no message that is appended
// later can be below a removed row, and an existing one keeps its row (delivery.md §4, R_CLEAR).
// The last row of the result is how many rows the snapshot had. If the statement touched fewer,
// another transaction changed some of them.
//
//rule:pending_or_delivered.clear-statement
const clearRows = `WITH item AS MATERIALIZED (
	SELECT i.*, p.ctid AS place, c.key
	FROM unnest($1::text[], $2::text[], $3::bigint[])
		WITH ORDINALITY AS i (user_id, chat_id, through, no)
	CROSS JOIN LATERAL (SELECT ctid FROM pending_deliveries
		WHERE user_id = i.user_id AND chat_id = i.chat_id
			AND first_undelivered_seq BETWEEN 1 AND i.through LIMIT 1) AS p
	LEFT JOIN LATERAL (SELECT key FROM chats WHERE id = i.chat_id LIMIT 1) AS c ON true
), locked AS MATERIALIZED (
	SELECT c.key, c.head FROM chats AS c
		WHERE c.key = ANY ((SELECT array_agg(key) FROM item)::bigint[])
		ORDER BY c.key FOR NO KEY UPDATE
), latest AS MATERIALIZED (
	SELECT array_agg(key) AS keys, array_agg(head) AS heads FROM locked
), judged AS MATERIALIZED (
	SELECT i.*, i.through >= coalesce(l.heads[array_position(l.keys, i.key)], 0) AS all
		FROM item AS i, latest AS l
), removed AS (
	DELETE FROM pending_deliveries AS p USING judged AS j
		WHERE j.all AND p.ctid = j.place AND p.first_undelivered_seq BETWEEN 1 AND j.through
		RETURNING j.no
), raised AS (
	UPDATE pending_deliveries AS p SET first_undelivered_seq = j.through + 1
	FROM judged AS j
		WHERE NOT j.all AND p.ctid = j.place AND p.first_undelivered_seq BETWEEN 1 AND j.through
		RETURNING j.no
)
SELECT no, 0 FROM removed UNION ALL SELECT no, 0 FROM raised UNION ALL SELECT 0, count(*) FROM item`

// Clear implements storage.Pending.
func (s *Store) Clear(ctx context.Context, items []storage.Clear) ([]bool, error) {
	return through(ctx, s, s.clears, items)
}

func (s *Store) clear(ctx context.Context, c *conn, items []storage.Clear) ([]bool, error) {
	key := func(i int) storage.StateKey {
		return storage.StateKey{User: items[i].User, Chat: items[i].Chat}
	}
	return inTurns(len(items), key, func(turn []int, cleared []bool) error {
		for again := 0; ; again++ {
			stood, touched, err := clearOnce(ctx, c, items, turn, key, cleared)
			//rule:R_CLEAR.clear-again-after-race
			if err != nil || touched == stood {
				return err
			}
			if again == maxRounds {
				return tidemark.Errorf(tidemark.Unavailable,
					"the pending rows of a user change too quickly; try again")
			}
			// A row that was cleared may have been marked again since; it must stay.
			//rule:R_CLEAR.clear-once
			turn = slices.DeleteFunc(turn, func(i int) bool { return cleared[i] })
		}
	})
}

// clearOnce runs clearRows for the items of the turn and notes in cleared whose row it touched.
// stood is how many rows were to be cleared when the statement began.
func clearOnce(
	ctx context.Context, c *conn, items []storage.Clear, turn []int,
	key func(i int) storage.StateKey, cleared []bool,
) (stood, touched int, err error) {
	users, chats := columnsOf(turn, key)
	through := make([]int64, len(turn))
	for n, i := range turn {
		through[n] = column(items[i].Through)
	}
	err = c.each(ctx, clearRows, []any{users, chats, through}, func(row pgx.Rows) error {
		var no, count int
		err := row.Scan(&no, &count)
		switch {
		case err != nil:
		case no == 0:
			stood = count
		default:
			cleared[turn[no-1]] = true
			touched++
		}
		return err
	})
	return stood, touched, err
}

// inTurns calls write with the indexes of at most maxItems items, in the order of their keys. Each
// call names a user and chat once. Items with equal keys go to successive calls.
func inTurns(
	n int, key func(i int) storage.StateKey, write func(turn []int, results []bool) error,
) ([]bool, error) {
	results := make([]bool, n)
	todo := make([]int, n)
	for i := range todo {
		todo[i] = i
	}
	for len(todo) > 0 {
		named := make(map[storage.StateKey]bool, len(todo))
		var turn, rest []int
		for _, i := range todo {
			if k := key(i); named[k] || len(turn) == maxItems {
				rest = append(rest, i)
			} else {
				named[k] = true
				turn = append(turn, i)
			}
		}
		slices.SortFunc(turn, func(a, b int) int {
			x, y := key(a), key(b)
			return cmp.Or(strings.Compare(string(x.User), string(y.User)),
				strings.Compare(string(x.Chat), string(y.Chat)))
		})
		if err := write(turn, results); err != nil {
			return nil, err
		}
		todo = rest
	}
	return results, nil
}

// columnsOf returns the users and the chats of the keys of a turn, as two columns.
func columnsOf(turn []int, key func(i int) storage.StateKey) (users, chats []string) {
	users, chats = make([]string, len(turn)), make([]string, len(turn))
	for n, i := range turn {
		users[n], chats[n] = string(key(i).User), string(key(i).Chat)
	}
	return users, chats
}

// pendingOfUsers reads a page of each user's rows. For each row it looks up the chat and the
// delivery state.
const pendingOfUsers = `SELECT u.no, p.chat_id, p.first_undelivered_seq,
	coalesce(d.last_acked_sequence, 0)
	FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS u (id, after, page, no)
	CROSS JOIN LATERAL (SELECT * FROM pending_deliveries WHERE user_id = u.id AND chat_id > u.after
		ORDER BY chat_id LIMIT u.page) AS p
	LEFT JOIN LATERAL (SELECT key FROM chats WHERE id = p.chat_id LIMIT 1) AS c ON true
	LEFT JOIN LATERAL (SELECT * FROM delivery_state
		WHERE chat = c.key AND user_id = p.user_id LIMIT 1) AS d ON true
	ORDER BY u.no, p.chat_id`

// A pendingQuery is a call of PendingOf. A pendingPage is its result, with one row more than the
// limit if there are more.
type (
	pendingQuery struct {
		user  tidemark.UserID
		after tidemark.ChatID
		limit int
	}
	pendingPage []storage.PendingRow
)

// PendingOf implements storage.Pending. Concurrent calls share a statement.
func (s *Store) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	pages, err := through(ctx, s, s.pending, []pendingQuery{{user, after, limit}})
	if err != nil {
		return nil, false, err
	}
	if rows := pages[0]; len(rows) > limit {
		return rows[:limit], true, nil
	}
	return pages[0], false, nil
}

func readPending(ctx context.Context, c *conn, queries []pendingQuery) ([]pendingPage, error) {
	n := len(queries)
	users, afters, limits := make([]string, n), make([]string, n), make([]int64, n)
	for i, q := range queries {
		users[i], afters[i], limits[i] = string(q.user), string(q.after), int64(q.limit)+1
	}
	pages := make([]pendingPage, n)
	var no, first, acked int64
	var chat string
	to := []any{&no, &chat, &first, &acked}
	return pages, c.each(ctx, pendingOfUsers, []any{users, afters, limits},
		func(row pgx.Rows) error {
			if err := row.Scan(to...); err != nil {
				return err
			}
			pages[no-1] = append(pages[no-1], storage.PendingRow{
				PendingDelivery: tidemark.PendingDelivery{
					UserID:           queries[no-1].user,
					ChatID:           tidemark.ChatID(chat),
					FirstUndelivered: tidemark.Sequence(first),
				},
				Acked: tidemark.Sequence(acked),
			})
			return nil
		})
}

// behindOfUsers looks at up to $6 chats of each user, with two look-ups for each. It makes the
// look-ups in the order of the chats, which is that of the tables. So the look-ups of many users
// read the same pages. It returns the chats up to the end of each user's page. If it looked at $6
// chats, a row with the head -1 names the last of them. The watermark is looked up last, because
// that costs most.
//
// rule:R_EPOCH.active-chats-in-postgres
const behindOfUsers = `WITH looked AS MATERIALIZED (
		SELECT u.no, u.id, u.large, u.since, u.page, m.chat, m.chat_id, m.nth
		FROM unnest($1::text[], $2::text[], $3::boolean[], $4::bigint[], $5::bigint[])
			WITH ORDINALITY AS u (id, after, large, since, page, no)
		CROSS JOIN LATERAL (SELECT chat, chat_id, row_number() OVER (ORDER BY chat_id) AS nth
			FROM members
			WHERE user_id = u.id AND chat_id > u.after AND current
			ORDER BY chat_id LIMIT $6) AS m
		ORDER BY m.chat, u.id COLLATE "C")
	SELECT no, chat_id, head, acked, active FROM (
		SELECT l.no, l.chat_id, l.page, c.head, coalesce((SELECT last_acked_sequence
				FROM delivery_state
				WHERE chat = l.chat AND user_id = l.id LIMIT 1), 0) AS acked,
			c.activity_at >= l.since AS active,
			row_number() OVER (PARTITION BY l.no ORDER BY l.chat_id) AS place
		FROM looked AS l
		CROSS JOIN LATERAL (SELECT head, activity_at, large FROM chats
			WHERE key = l.chat LIMIT 1) AS c
		WHERE (c.large OR NOT l.large) AND (c.activity_at >= l.since
			OR c.head > coalesce((SELECT last_acked_sequence FROM delivery_state
				WHERE chat = l.chat AND user_id = l.id LIMIT 1), 0))) AS b
	WHERE place <= page
	UNION ALL SELECT no, chat_id, -1, 0, false FROM looked WHERE nth = $6
	ORDER BY no, chat_id`

// A behindQuery is a call of Behind. A behindPage is its result, with one chat more than the limit
// if there are more. If the user may have further chats, last is the one with which the statement's
// look-ups ended. Otherwise it is empty.
type (
	behindQuery struct {
		user tidemark.UserID
		storage.BehindQuery
	}
	behindPage struct {
		lags []storage.Lag
		last tidemark.ChatID
	}
)

// Behind implements storage.Pending. Concurrent calls share a statement.
func (s *Store) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	pages, err := through(ctx, s, s.behind, []behindQuery{{user, q}})
	if err != nil {
		return nil, "", false, err
	}
	page := pages[0]
	if lags := page.lags; len(lags) > q.Limit {
		return lags[:q.Limit], lags[q.Limit-1].Chat, true, nil
	}
	return page.lags, page.last, page.last != "", nil
}

func readBehind(ctx context.Context, c *conn, queries []behindQuery) ([]behindPage, error) {
	n := len(queries)
	users, afters, large := make([]string, n), make([]string, n), make([]bool, n)
	since, limits := make([]int64, n), make([]int64, n)
	for i, q := range queries {
		users[i], afters[i], large[i] = string(q.user), string(q.After), q.LargeOnly
		since[i], limits[i] = q.SinceMillis(), int64(q.Limit)+1
	}
	//rule:bounded_use.bound-look-ups-of-a-comparison
	look := min(maxLookedAt, maxLooks/n)
	pages := make([]behindPage, n)
	var no, head, acked int64
	var chat string
	var active bool
	to := []any{&no, &chat, &head, &acked, &active}
	return pages, c.each(ctx, behindOfUsers, []any{users, afters, large, since, limits, look},
		func(row pgx.Rows) error {
			if err := row.Scan(to...); err != nil {
				return err
			}
			page := &pages[no-1]
			if head < 0 {
				//rule:pending_or_delivered.compare-beyond-the-bound
				page.last = tidemark.ChatID(chat)
				return nil
			}
			page.lags = append(page.lags, storage.Lag{
				Chat:   tidemark.ChatID(chat),
				Head:   tidemark.Sequence(head),
				Acked:  tidemark.Sequence(acked),
				Active: active,
			})
			return nil
		})
}
