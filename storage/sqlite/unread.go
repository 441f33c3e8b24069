package sqlite

import (
	"context"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// accountColumns are the columns that accounts.add reads.
const accountColumns = `c.key, c.head, c.uncounted, c.last_uncounted, m.intervals,
	iif(m.seat = 0, m.sent, c.seats ->> (2 * m.seat - 2)),
	coalesce(iif(d.unread_from = 0, d.last_read_sequence, d.unread_from - 1), 0),
	coalesce(d.sent_before, 0), c.floor, coalesce(m.expired, 0)`

// An account is what is stored about a user in a chat, with the key of the chat.
type account struct {
	unread.Account
	chat int64
}

// accounts collects accounts, and counts what is unread in them.
type accounts struct {
	of []account
	// bad is the error of an account that could not be read.
	bad error
}

// add reads the account of a user from column i on. It returns false if it is damaged.
func (a *accounts) add(row *stmt, i int, user tidemark.UserID) bool {
	one := account{chat: row.integerAt(i), Account: unread.Account{
		User:          user,
		Head:          tidemark.Sequence(row.integerAt(i + 1)),
		Uncounted:     row.integerAt(i + 2),
		LastUncounted: tidemark.Sequence(row.integerAt(i + 3)),
		Sent:          row.integerAt(i + 5),
		After:         tidemark.Sequence(row.integerAt(i + 6)),
		SentBefore:    row.integerAt(i + 7),
		Floor:         tidemark.Sequence(row.integerAt(i + 8)),
		Expired:       row.integerAt(i + 9),
	}}
	if !row.nullAt(i + 4) { // the user is or was a member
		one.Visible, a.bad = tidemark.ParseIntervals(row.stringAt(i + 4))
	}
	a.of = append(a.of, one)
	return a.bad == nil
}

const (
	// ordinalsAt returns how many messages up to each sequence do not count.
	ordinalsAt = `SELECT coalesce((SELECT u.ordinal FROM uncounted AS u
			WHERE u.chat = j.value ->> 0 AND u.sequence <= j.value ->> 1
			ORDER BY u.sequence DESC LIMIT 1), 0)
		FROM json_each(?) AS j`
	// mentionsIn counts the messages of others in each range that name the user or everyone. A
	// message that names everyone names nobody else in this table.
	mentionsIn = `SELECT (SELECT count(*) FROM mentions AS n
			WHERE n.chat = j.value ->> 0 AND n.user_id IN (j.value ->> 3, '*')
				AND n.sequence >= j.value ->> 1 AND n.sequence <= j.value ->> 2
				AND n.sender_id <> j.value ->> 3)
		FROM json_each(?) AS j`
)

// count returns the counts of the accounts. It runs at most two statements.
func (a *accounts) count(c *conn) ([]storage.Unread, error) {
	var asked [][]byte
	for i := range a.of {
		for _, sequence := range a.of[i].Asks() {
			asked = append(asked, numbers(a.of[i].chat, sequence))
		}
	}
	ordinals, err := c.integers(ordinalsAt, asked)
	if err != nil {
		return nil, err
	}
	counts := make([]storage.Unread, len(a.of))
	var ranges [][]byte
	var of []int
	for i := range a.of {
		one := &a.of[i]
		counts[i].Messages = one.Count(func(tidemark.Sequence) int64 {
			next := ordinals[0]
			ordinals = ordinals[1:]
			return next
		})
		if counts[i].Messages == 0 {
			continue
		}
		for _, piece := range one.Pieces() {
			text := append(numbers(one.chat, piece.From, piece.To), ',')
			ranges = append(ranges, tidemark.AppendString(text, string(one.User)))
			of = append(of, i)
		}
	}
	mentions, err := c.integers(mentionsIn, ranges)
	for n, count := range mentions {
		counts[of[n]].Mentions += count
	}
	return counts, err
}

// numbers returns a chat's key and sequences with commas between them.
func numbers(chat int64, sequences ...tidemark.Sequence) []byte {
	b := strconv.AppendInt(nil, chat, 10)
	for _, sequence := range sequences {
		b = strconv.AppendUint(append(b, ','), uint64(sequence), 10)
	}
	return b
}

// integers runs a statement that returns a number for each of some arrays, given as JSON without
// brackets. It runs nothing if there are none.
func (c *conn) integers(text string, arrays [][]byte) ([]int64, error) {
	if len(arrays) == 0 {
		return nil, nil
	}
	b := []byte{'['}
	for i, array := range arrays {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '['), array...), ']')
	}
	q, err := c.prepared(text)
	if err != nil {
		return nil, err
	}
	q.string(1, string(append(b, ']')))
	results := make([]int64, 0, len(arrays))
	err = q.each(func(row *stmt) bool {
		results = append(results, row.integerAt(0))
		return true
	})
	return results, err
}

const accountsOfPairs = `SELECT ` + accountColumns + `
	FROM json_each(?) AS j
	LEFT JOIN chats AS c ON c.id = j.value ->> 1
	LEFT JOIN members AS m ON m.chat = c.key AND m.user_id = j.value ->> 0
	LEFT JOIN delivery_state AS d ON d.chat = c.key AND d.user_id = j.value ->> 0`

// Unread implements storage.Unreads.
func (s *Store) Unread(
	ctx context.Context, keys []storage.StateKey,
) (counts []storage.Unread, err error) {
	if err := checkBatch(len(keys)); err != nil || len(keys) == 0 {
		return nil, err
	}
	err = s.snapshot(ctx, func(c *conn) error {
		var a accounts
		q, err := c.prepared(accountsOfPairs)
		if err != nil {
			return err
		}
		q.string(1, jsonPairs(keys))
		err = q.each(func(row *stmt) bool { return a.add(row, 0, keys[len(a.of)].User) })
		if err == nil {
			err = a.bad
		}
		if err == nil {
			counts, err = a.count(c)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return counts, nil
}

const accountsOfUser = `SELECT ` + accountColumns + `
	FROM members AS m
	CROSS JOIN chats AS c ON c.key = m.chat
	LEFT JOIN delivery_state AS d ON d.chat = m.chat AND d.user_id = m.user_id
	WHERE m.user_id = ? AND m.current = 1`

// UnreadOf implements storage.Unreads.
func (s *Store) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (total storage.UnreadTotal, err error) {
	err = s.snapshot(ctx, func(c *conn) error {
		var a accounts
		q, err := c.prepared(accountsOfUser)
		if err != nil {
			return err
		}
		q.string(1, string(user))
		err = q.each(func(row *stmt) bool { return a.add(row, 0, user) })
		if err == nil {
			err = a.bad
		}
		if err != nil {
			return err
		}
		counts, err := a.count(c)
		for _, one := range counts {
			total.Add(one)
		}
		return err
	})
	if err != nil {
		return storage.UnreadTotal{}, err
	}
	return total, nil
}

// MarkUnread implements storage.Unreads.
func (s *Store) MarkUnread(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	var state tidemark.DeliveryState
	err := s.change(ctx, func(w *writer) error {
		c, err := w.alive(id)
		if err == nil {
			err = storage.CheckMark(from, c.head)
		}
		if err != nil {
			return err
		}
		before, err := w.state(c, user)
		if err != nil {
			return err
		}
		if state = before.MarkUnread(from); state == before.DeliveryState {
			return nil
		}
		return w.putState(c, before, state)
	})
	if err != nil {
		return tidemark.DeliveryState{}, err
	}
	return state, nil
}
