package sqlite

import (
	"context"
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// trace is a table that names users. Its statement reads two columns behind a position of them. If
// keyed, the first one is chats.key.
type trace struct {
	text  string
	keyed bool
	both  bool // both columns are users
}

// The tables of UsersNamed. The mentions of a user in a chat are read as one.
var traces = []trace{
	{text: `SELECT user_id, blocked_id FROM blocks WHERE (user_id, blocked_id) > (?, ?)
		ORDER BY user_id, blocked_id LIMIT ?`, both: true},
	{text: `SELECT chat, user_id FROM bans WHERE (chat, user_id) > (?, ?)
		ORDER BY chat, user_id LIMIT ?`, keyed: true},
	{text: `SELECT DISTINCT user_id, '' FROM receipts WHERE user_id > ?1 AND ?2 = ''
		ORDER BY user_id LIMIT ?3`},
	{text: `SELECT DISTINCT chat, user_id FROM mentions WHERE (chat, user_id) > (?, ?)
		ORDER BY chat, user_id LIMIT ?`, keyed: true},
}

// tracePlace is a position in the table of an index: behind a row with the columns a and b.
type tracePlace struct {
	table int
	a, b  string
}

func (p tracePlace) text() string { return strconv.Itoa(p.table) + "|" + p.a + "|" + p.b }

// tracePlaceOf is the reverse of text. "" is the beginning.
func tracePlaceOf(after string) (p tracePlace, ok bool) {
	if after == "" {
		return p, true
	}
	parts := strings.Split(after, "|")
	if len(parts) != 3 {
		return p, false
	}
	n, err := strconv.Atoi(parts[0])
	return tracePlace{n, parts[1], parts[2]}, err == nil && n >= 0 && n < len(traces)
}

// key returns the first column of a position as a chats.key.
func (p tracePlace) key() int64 {
	key, err := strconv.ParseInt(p.a, 10, 64)
	if err != nil {
		return -1 // the beginning
	}
	return key
}

// UsersNamed implements storage.Traces. It reads the tables one after the other.
func (s *Store) UsersNamed(
	ctx context.Context, after string, limit int,
) (users []tidemark.UserID, next string, more bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return nil, "", false, err
	}
	at, ok := tracePlaceOf(after)
	if !ok {
		return nil, "", false, storage.NoTrace(after)
	}
	of := traces[at.table]
	rows, more, err := page(ctx, s, of.text, limit, func(q *stmt) {
		if of.keyed {
			q.integer(1, at.key())
		} else {
			q.string(1, at.a)
		}
		q.string(2, at.b)
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) tracePlace {
		p := tracePlace{table: at.table, b: row.stringAt(1)}
		if of.keyed {
			p.a = strconv.FormatInt(row.integerAt(0), 10)
		} else {
			p.a = row.stringAt(0)
		}
		return p
	})
	if err != nil {
		return nil, "", false, err
	}
	for _, p := range rows {
		if !of.keyed {
			users = append(users, tidemark.UserID(p.a))
		}
		if p.b != unread.Everyone && (of.keyed || of.both) {
			users = append(users, tidemark.UserID(p.b))
		}
	}
	switch {
	case more:
		next = rows[len(rows)-1].text()
	case at.table+1 < len(traces):
		next, more = tracePlace{table: at.table + 1}.text(), true
	}
	return users, next, more, nil
}
