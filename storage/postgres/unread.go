package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

const (
	// accountColumns are the columns that accountRow.columns scans.
	accountColumns = `c.key, c.head, c.uncounted, c.last_uncounted, coalesce(m.intervals, ''),
	CASE m.seat WHEN 1 THEN c.sent_1 WHEN 2 THEN c.sent_2 ELSE coalesce(f.sent, 0) END,
	CASE WHEN coalesce(d.unread_from, 0) = 0 THEN coalesce(d.last_read_sequence, 0)
		ELSE d.unread_from - 1 END,
	coalesce(d.sent_before, 0), c.floor, coalesce(m.expired, 0)`
	// accountRows adds the rows d and f to those of a chat c and its member m.
	accountRows = `
	LEFT JOIN LATERAL (SELECT * FROM delivery_state
		WHERE chat = c.key AND user_id = m.user_id LIMIT 1) AS d ON true
	LEFT JOIN LATERAL (SELECT sent FROM senders
		WHERE m.seat = 0 AND chat = c.key AND user_id = m.user_id LIMIT 1) AS f ON true`
)

const (
	// sentBy and lastSentBy are the numbers of user r.user_id in chat r.key, or NULL if they have
	// sent nothing.
	sentBy = `(SELECT CASE m.seat
			WHEN 0 THEN (SELECT sent FROM senders
				WHERE chat = m.chat AND user_id = m.user_id LIMIT 1)
			WHEN 1 THEN (SELECT sent_1 FROM chats WHERE key = m.chat LIMIT 1)
			ELSE (SELECT sent_2 FROM chats WHERE key = m.chat LIMIT 1)
		END FROM members AS m WHERE m.chat = r.key AND m.user_id = r.user_id LIMIT 1)`
	lastSentBy = `(SELECT CASE m.seat
			WHEN 0 THEN (SELECT last_sent FROM senders
				WHERE chat = m.chat AND user_id = m.user_id LIMIT 1)
			WHEN 1 THEN (SELECT last_sent_1 FROM chats WHERE key = m.chat LIMIT 1)
			ELSE (SELECT last_sent_2 FROM chats WHERE key = m.chat LIMIT 1)
		END FROM members AS m WHERE m.chat = r.key AND m.user_id = r.user_id LIMIT 1)`
	// expiredBy is how many messages of user r.user_id in chat r.key have expired, or NULL.
	expiredBy = `(SELECT expired FROM members AS m
		WHERE m.chat = r.key AND m.user_id = r.user_id LIMIT 1)`
)

// An accountRow is what is stored about a user in a chat.
type accountRow struct {
	chat, head, uncounted, lastUncounted int64
	intervals                            string
	sent, after, sentBefore              int64
	floor, expired                       int64
}

// columns returns the destinations of accountColumns.
func (r *accountRow) columns() []any {
	return []any{
		&r.chat, &r.head, &r.uncounted, &r.lastUncounted, &r.intervals, &r.sent, &r.after,
		&r.sentBefore, &r.floor, &r.expired,
	}
}

// An account is an unread.Account with the key of its chat.
type account struct {
	unread.Account
	chat int64
}

// accounts counts what is unread in several chats.
type accounts []account

// add appends the account in a row.
func (a *accounts) add(r *accountRow, user tidemark.UserID) error {
	visible, err := tidemark.ParseIntervals(r.intervals)
	*a = append(*a, account{chat: r.chat, Account: unread.Account{
		User:          user,
		Head:          tidemark.Sequence(r.head),
		Visible:       visible,
		After:         tidemark.Sequence(r.after),
		Sent:          r.sent,
		SentBefore:    r.sentBefore,
		Uncounted:     r.uncounted,
		LastUncounted: tidemark.Sequence(r.lastUncounted),
		Floor:         tidemark.Sequence(r.floor),
		Expired:       r.expired,
	}})
	return err
}

const (
	// ordinalsAt returns how many messages up to each sequence do not count, or a negative number
	// if the floor of the chat is above $3. Then the ordinals below it are gone.
	ordinalsAt = `SELECT CASE WHEN (SELECT floor FROM chats WHERE key = n.chat LIMIT 1) > n.floor
			THEN -1 ELSE coalesce((SELECT u.ordinal FROM uncounted AS u
				WHERE u.chat = n.chat AND u.sequence <= n.sequence
				ORDER BY u.sequence DESC LIMIT 1), 0) END
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])
			WITH ORDINALITY AS n (chat, sequence, floor, no)
		ORDER BY n.no`
	// mentionsIn counts the messages of others in each range that name the user or everyone. A
	// message that names everyone names nobody else in this table.
	mentionsIn = `SELECT (SELECT count(*) FROM mentions AS x
			WHERE x.chat = n.chat AND x.user_id = n.user_id AND x.sequence BETWEEN n.low AND n.high
				AND x.sender_id <> n.user_id)
		+ (SELECT count(*) FROM mentions AS x
			WHERE x.chat = n.chat AND x.user_id = '*' AND x.sequence BETWEEN n.low AND n.high
				AND x.sender_id <> n.user_id)
		FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])
			WITH ORDINALITY AS n (chat, low, high, user_id, no)
		ORDER BY n.no`
)

// errFloorRose says that messages have expired since the accounts were read.
var errFloorRose = errors.New("messages have expired meanwhile")

// counted calls read until no messages expire while it reads accounts and counts.
func counted(read func() error) error {
	for {
		if err := read(); !errors.Is(err, errFloorRose) {
			return err
		}
	}
}

// count returns the counts of the accounts. It runs at most two statements. The error is
// errFloorRose if the accounts are outdated.
func (a accounts) count(ctx context.Context, c *conn) ([]storage.Unread, error) {
	var chats, at, floors []int64
	for i := range a {
		for _, sequence := range a[i].Asks() {
			chats, at = append(chats, a[i].chat), append(at, int64(sequence))
			floors = append(floors, int64(a[i].Floor))
		}
	}
	var ordinals []int64
	if len(chats) > 0 {
		var err error
		if ordinals, err = c.integers(ctx, ordinalsAt, chats, at, floors); err != nil {
			return nil, err
		}
		if slices.Min(ordinals) < 0 {
			return nil, errFloorRose
		}
	}
	counts := make([]storage.Unread, len(a))
	var lows, highs []int64
	var users []string
	var of []int
	chats = chats[:0]
	for i := range a {
		counts[i].Messages = a[i].Count(func(tidemark.Sequence) int64 {
			next := ordinals[0]
			ordinals = ordinals[1:]
			return next
		})
		if counts[i].Messages == 0 {
			continue
		}
		for _, piece := range a[i].Pieces() {
			chats, users = append(chats, a[i].chat), append(users, string(a[i].User))
			lows, highs = append(lows, int64(piece.From)), append(highs, int64(piece.To))
			of = append(of, i)
		}
	}
	if len(of) == 0 {
		return counts, nil
	}
	mentions, err := c.integers(ctx, mentionsIn, chats, lows, highs, users)
	for n, count := range mentions {
		counts[of[n]].Mentions += count
	}
	return counts, err
}

// integers runs a statement whose rows are one number each.
func (c *conn) integers(ctx context.Context, text string, parameters ...any) ([]int64, error) {
	var results []int64
	var next int64
	err := c.each(ctx, text, parameters, func(row pgx.Rows) error {
		err := row.Scan(&next)
		results = append(results, next)
		return err
	})
	return results, err
}

const accountsOfPairs = `SELECT k.no, ` + accountColumns + `
	FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (chat_id, user_id, no)
	CROSS JOIN LATERAL (SELECT * FROM chats WHERE id = k.chat_id LIMIT 1) AS c
	CROSS JOIN LATERAL (SELECT * FROM members
		WHERE chat = c.key AND user_id = k.user_id LIMIT 1) AS m` + accountRows

// Unread implements storage.Unreads.
func (s *Store) Unread(
	ctx context.Context, keys []storage.StateKey,
) ([]storage.Unread, error) {
	if err := checkBatch(len(keys)); err != nil || len(keys) == 0 {
		return nil, err
	}
	chats, users := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		chats[i], users[i] = string(key.Chat), string(key.User)
	}
	var results []storage.Unread
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		return counted(func() error {
			var all accounts
			var of []int64
			var no int64
			var row accountRow
			to := append([]any{&no}, row.columns()...)
			err := c.each(ctx, accountsOfPairs, []any{chats, users}, func(rows pgx.Rows) error {
				if err := rows.Scan(to...); err != nil {
					return err
				}
				of = append(of, no-1)
				return all.add(&row, keys[no-1].User)
			})
			if err != nil {
				return err
			}
			counts, err := all.count(ctx, c)
			results = make([]storage.Unread, len(keys))
			for i := range counts {
				results[of[i]] = counts[i]
			}
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

const accountsOfUser = `SELECT ` + accountColumns + ` FROM members AS m
	CROSS JOIN LATERAL (SELECT * FROM chats WHERE key = m.chat LIMIT 1) AS c` + accountRows + `
	WHERE m.user_id = $1 AND m.current`

// UnreadOf implements storage.Unreads.
func (s *Store) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	var total storage.UnreadTotal
	err := s.read(ctx, func(ctx context.Context, c *conn) error {
		return counted(func() error {
			var all accounts
			var row accountRow
			to := row.columns()
			err := c.each(ctx, accountsOfUser, []any{string(user)}, func(rows pgx.Rows) error {
				if err := rows.Scan(to...); err != nil {
					return err
				}
				return all.add(&row, user)
			})
			if err != nil {
				return err
			}
			counts, err := all.count(ctx, c)
			total = storage.UnreadTotal{}
			for _, one := range counts {
				total.Add(one)
			}
			return err
		})
	})
	if err != nil {
		return storage.UnreadTotal{}, err
	}
	return total, nil
}

// sentUpTo returns how many messages of a user that count as unread are not after $5. It counts
// those between $4, up to which there are $3, and $5, if the user has sent some after $5. If $4 is
// below the floor, it counts from there (unread.Mark.NotBelow).
const sentUpTo = `SELECT CASE WHEN coalesce(` + lastSentBy + `, 0) <= $5::bigint
		THEN coalesce(` + sentBy + `, 0)
		ELSE b.sent + CASE WHEN b.mark < $5::bigint THEN 1 ELSE -1 END * (
			SELECT count(*) FILTER (WHERE m.sender_id = $2 AND m.kind IS NULL)
			FROM (SELECT sender_id, kind FROM messages WHERE chat = $1
				AND sequence BETWEEN least(b.mark, $5) + 1 AND greatest(b.mark, $5)
				ORDER BY sequence) AS m)
		END
	FROM (SELECT $1::bigint AS key, $2::text AS user_id) AS r
	CROSS JOIN LATERAL (SELECT greatest($4::bigint, floor - 1) AS mark,
			CASE WHEN $4 + 1 < floor THEN coalesce(` + expiredBy + `, 0) ELSE $3::bigint END AS sent
		FROM chats WHERE key = r.key LIMIT 1) AS b`

const (
	headOfChat  = `SELECT key, head, coalesce(state, '') FROM chats WHERE id = $1`
	lockedState = `SELECT ` + stateColumns + `, d.sent_before FROM delivery_state AS d
		WHERE d.chat = $1 AND d.user_id = $2 FOR UPDATE`
	markUnread = `UPDATE delivery_state SET unread_from = $3, sent_before = $4
		WHERE chat = $1 AND user_id = $2`
)

// MarkUnread implements storage.Unreads.
func (s *Store) MarkUnread(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	var state tidemark.DeliveryState
	err := s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			var key, head int64
			found := chatRow{id: string(id)}
			err := tx.QueryRow(ctx, headOfChat, string(id)).Scan(&key, &head, &found.state)
			if err = missing(err, id); err == nil {
				err = alive(&found)
			}
			if err == nil {
				err = storage.CheckMark(from, tidemark.Sequence(head))
			}
			if err != nil {
				return err
			}
			var row stateRow
			var sent int64
			to := append(row.columns(), &sent)
			err = tx.QueryRow(ctx, lockedState, key, string(user)).Scan(to...)
			if err != nil && !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			before := row.state(user, id)
			if state = before.MarkUnread(from); state == before {
				return nil
			}
			err = tx.QueryRow(ctx, sentUpTo, key, string(user), sent,
				column(before.UnreadAfter()), column(state.UnreadAfter())).Scan(&sent)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, markUnread, key, string(user), column(state.UnreadFrom), sent)
			return err
		})
	})
	if err != nil {
		return tidemark.DeliveryState{}, err
	}
	return state, nil
}
