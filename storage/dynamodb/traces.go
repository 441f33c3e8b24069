package dynamodb

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// trace is a table that names users, with its key, and what an item of it names.
type trace struct {
	table string
	only  []string
	named func(r *call.Reader) []tidemark.UserID
}

// traces are the tables of UsersNamed.
var traces = []trace{
	{record.Documents, []string{"kind", "name"}, func(r *call.Reader) []tidemark.UserID {
		switch kind, of, _ := strings.Cut(r.Text("kind"), "|"); kind {
		case "block":
			return []tidemark.UserID{tidemark.UserID(of), tidemark.UserID(r.Text("name"))}
		case "ban":
			return []tidemark.UserID{tidemark.UserID(r.Text("name"))}
		}
		return nil
	}},
	{record.States, []string{"user_id", "chat_id", "read_receipts"},
		func(r *call.Reader) []tidemark.UserID {
			if r.Has("read_receipts") || tidemark.ChatID(r.Text("chat_id")) == allChats {
				return []tidemark.UserID{tidemark.UserID(r.Text("user_id"))}
			}
			return nil
		}},
	{record.Messages, []string{"chat_id", "sequence"}, func(r *call.Reader) []tidemark.UserID {
		of, is := strings.CutPrefix(r.Text("chat_id"), "mention|")
		if user, _, _ := strings.Cut(of, "|"); is && user != unread.Everyone {
			return []tidemark.UserID{tidemark.UserID(user)}
		}
		return nil
	}},
}

// tracePlace is a position in the table of an index: behind the item whose key is A, and B or N.
type tracePlace struct {
	Table int               `json:"t"`
	A     string            `json:"a,omitempty"`
	B     string            `json:"b,omitempty"`
	N     tidemark.Sequence `json:"n,omitempty"`
}

func (p tracePlace) text() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // Its fields are texts and numbers.
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// tracePlaceOf is the reverse of text. "" is the beginning.
func tracePlaceOf(after string) (p tracePlace, err error) {
	if after == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(after)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil || p.Table < 0 || p.Table >= len(traces) {
		return p, storage.NoTrace(after)
	}
	return p, nil
}

// key returns the key of the item, or nil at the beginning of the table.
func (p tracePlace) key() call.Item {
	switch {
	case p.A == "":
		return nil
	case traces[p.Table].table == record.Messages:
		return placeOf(p.A, p.N)
	}
	only := traces[p.Table].only
	return call.Item{only[0]: call.Text(p.A), only[1]: call.Text(p.B)}
}

// behind returns the position behind an item's key.
func (p tracePlace) behind(key call.Item) (tracePlace, error) {
	r := call.Reader{Item: key}
	only := traces[p.Table].only
	next := tracePlace{Table: p.Table, A: r.Text(only[0])}
	if traces[p.Table].table == record.Messages {
		next.N = tidemark.Sequence(r.Number(only[1]))
	} else {
		next.B = r.Text(only[1])
	}
	return next, r.Err
}

// tracesAtOnce is how many items a call of UsersNamed looks at for each user of its limit: few of
// them name users.
const tracesAtOnce = 10

// UsersNamed implements storage.Traces with scans. The order is that of hashes.
func (s *Store) UsersNamed(
	ctx context.Context, after string, limit int,
) (users []tidemark.UserID, next string, more bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return nil, "", false, err
	}
	at, err := tracePlaceOf(after)
	if err != nil {
		return nil, "", false, err
	}
	c, ctx, leave, err := s.enter(ctx, "users_named", 0)
	if err != nil {
		return nil, "", false, err
	}
	defer leave()
	of := traces[at.Table]
	items, last, err := c.Scan(ctx, call.Read{Table: of.table, Only: of.only}, at.key(),
		limit*tracesAtOnce)
	if err != nil {
		return nil, "", false, call.Public(err)
	}
	for _, it := range items {
		r := call.Reader{Item: it}
		users = append(users, of.named(&r)...)
		if r.Err != nil {
			return nil, "", false, call.Public(r.Err)
		}
	}
	switch {
	case last != nil:
		if at, err = at.behind(last); err != nil {
			return nil, "", false, call.Public(err)
		}
		return users, at.text(), true, nil
	case at.Table+1 < len(traces):
		return users, tracePlace{Table: at.Table + 1}.text(), true, nil
	}
	return users, "", false, nil
}
