package postgres

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// trace is a table that names users. Its statement reads two columns behind a position of them. If
// keyed, the first one is chats.key. If numbered, the second one is.
type trace struct {
	text     string
	keyed    bool
	numbered bool
	both     bool // both columns are users
}

// The statements of UsersNamed. The mentions of a user in a chat are read as one.
const (
	namedInBlocks = `SELECT user_id, blocked_id FROM blocks WHERE (user_id, blocked_id) > ($1, $2)
		ORDER BY user_id, blocked_id LIMIT $3`
	namedInBans = `SELECT chat, user_id FROM bans WHERE (chat, user_id) > ($1, $2)
		ORDER BY chat, user_id LIMIT $3`
	namedInReceipts = `SELECT user_id, chat FROM receipts WHERE (user_id, chat) > ($1, $2)
		ORDER BY user_id, chat LIMIT $3`
	namedInMentions = `SELECT DISTINCT chat, user_id FROM mentions WHERE (chat, user_id) > ($1, $2)
		ORDER BY chat, user_id LIMIT $3`
)

var traces = []trace{
	{text: namedInBlocks, both: true}, {text: namedInBans, keyed: true},
	{text: namedInReceipts, numbered: true}, {text: namedInMentions, keyed: true},
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

// keyOf returns a column of a position as a chats.key.
func keyOf(column string) int64 {
	key, err := strconv.ParseInt(column, 10, 64)
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
	parameters := []any{at.a, at.b, int64(limit) + 1}
	if of.keyed {
		parameters[0] = keyOf(at.a)
	}
	if of.numbered {
		parameters[1] = keyOf(at.b)
	}
	rows, more, err := list(ctx, s, of.text, limit, parameters,
		func(row pgx.Rows) (tracePlace, error) {
			p := tracePlace{table: at.table}
			var key int64
			var err error
			switch {
			case of.keyed:
				err = row.Scan(&key, &p.b)
				p.a = strconv.FormatInt(key, 10)
			case of.numbered:
				err = row.Scan(&p.a, &key)
				p.b = strconv.FormatInt(key, 10)
			default:
				err = row.Scan(&p.a, &p.b)
			}
			return p, err
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
