package dynamodb

import (
	"context"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.CopySource = (*Store)(nil)

// Incarnations implements storage.CopySource.
func (s *Store) Incarnations() []tidemark.Incarnation { return lives.IDs(s.lives) }

// Nodes implements storage.CopySource. Nodes share their leases in Redis.
func (s *Store) Nodes(ctx context.Context) ([]string, error) { return nil, s.Check(ctx) }

// Activity implements storage.CopySource.
func (s *Store) Activity(ctx context.Context, chat tidemark.ChatID) (time.Time, error) {
	c, ctx, leave, err := s.enter(ctx, "activity", 0)
	if err != nil {
		return time.Time{}, err
	}
	defer leave()
	found, err := c.Counter(ctx, chat)
	if err != nil {
		return time.Time{}, call.Public(err)
	}
	return found.Activity, nil
}

// MessageFacts implements storage.CopySource. Data of one life say nothing about it.
func (s *Store) MessageFacts(
	ctx context.Context, q storage.FactsQuery,
) ([]storage.MessageFacts, error) {
	n := int(q.To + 1 - q.From)
	c, ctx, leave, err := s.enterBatch(ctx, "message_facts", max(n, len(q.Users)))
	if err != nil {
		return nil, err
	}
	defer leave()
	facts := make([]storage.MessageFacts, n)
	messages := make([]lives.Message, n)
	for i := range facts {
		facts[i].Life = 1
		messages[i] = lives.Message{Chat: q.Chat, Sequence: q.From + tidemark.Sequence(i)}
	}
	if len(s.lives) > 1 {
		found, err := c.livesOf(ctx, messages)
		if err != nil {
			return nil, call.Public(err)
		}
		for i := range facts {
			facts[i].Life = found[i]
		}
	}
	if q.Mentions {
		err = c.firstMentions(ctx, q, facts)
	}
	if err != nil {
		return nil, call.Public(err)
	}
	return facts, nil
}

// firstMentions sets the mentions of messages when they were stored. It takes a query for each
// user, unless none of the messages names anybody.
func (c caller) firstMentions(
	ctx context.Context, q storage.FactsQuery, facts []storage.MessageFacts,
) error {
	counter, err := c.Counter(ctx, q.Chat)
	if err != nil || counter.LastMention < q.From {
		return err
	}
	users := append([]tidemark.UserID{unread.Everyone}, q.Users...)
	found := make([][]storage.FirstMention, len(users))
	err = call.Together(ctx, len(users), func(ctx context.Context, i int) error {
		query := call.Query{
			Read:      call.Read{Table: record.Messages, Only: []string{"sequence"}},
			Partition: "chat_id", Sort: "sequence",
			Of:    call.Text(record.MentionKey(q.Chat, users[i])),
			Range: between(q.From, q.To),
		}
		return c.Each(ctx, query, func(it call.Item) (bool, error) {
			r := call.Reader{Item: it}
			found[i] = append(found[i],
				storage.FirstMention{User: users[i], Sequence: r.Sequence("sequence")})
			return true, r.Err
		})
	})
	for _, of := range found {
		storage.PutMentions(facts, q.From, unread.Everyone, of)
	}
	return err
}

// An entryTable says where the entries of a kind are, and how they are read. The table is keyed by
// two texts. of returns false for an item of another kind.
type entryTable struct {
	table, first, second string
	only                 []string
	of                   func(r *call.Reader, first, second string) (storage.Entry, bool)
}

var entryTables = map[storage.EntryKind]entryTable{
	storage.EntryDocument: {
		table: record.Documents, first: "kind", second: "name",
		only: []string{"kind", "name", "version", "document_value"},
		of: func(r *call.Reader, first, second string) (storage.Entry, bool) {
			// The kinds of other items have a bar.
			return storage.Entry{Document: storage.Document{
				Kind: first, Name: second, Version: r.Number("version"),
				Value: []byte(r.Text("document_value")),
			}}, !strings.Contains(first, "|")
		},
	},
	storage.EntryBlock: {
		table: record.Documents, first: "kind", second: "name",
		only: []string{"kind", "name", "blocked_at"},
		of: func(r *call.Reader, first, second string) (storage.Entry, bool) {
			user, is := strings.CutPrefix(first, blocksBy(""))
			return storage.Entry{User: tidemark.UserID(user), Blocked: storage.Block{
				User: tidemark.UserID(second), At: r.Time("blocked_at"),
			}}, is
		},
	},
	storage.EntryAudit: {
		table: record.Documents, first: "kind", second: "name",
		only: []string{
			"kind", "name", "key_name", "actor_id", "request_id", "operation", "user_id",
			"chat_id", "sequence", "outlet_id", "audit_state", "audit_code", "ended_at",
		},
		of: func(r *call.Reader, first, _ string) (storage.Entry, bool) {
			if !strings.HasPrefix(first, auditKind) || first == auditDays {
				return storage.Entry{}, false
			}
			e, err := auditEntry(r.Item)
			r.Err = err
			return storage.Entry{Audit: e}, true
		},
	},
	storage.EntryReceipts: {
		table: record.States, first: "user_id", second: "chat_id",
		only: []string{"user_id", "chat_id", "hides_read", "read_receipts"},
		of: func(r *call.Reader, first, second string) (storage.Entry, bool) {
			e := storage.Entry{
				User: tidemark.UserID(first), Chat: tidemark.ChatID(second),
				Receipts: tidemark.ReceiptsSetting(r.Text("read_receipts")),
			}
			if e.Chat != allChats {
				return e, e.Receipts != ""
			}
			e.Chat, e.Receipts = "", tidemark.ReceiptsOn
			if r.Number("hides_read")%2 == 1 {
				e.Receipts = tidemark.ReceiptsOff
			}
			return e, true
		},
	},
	storage.EntryBacklog: {
		table: record.Backlogs, first: "outlet_shard", second: "chat_id",
		only: []string{"outlet_shard", "chat_id", "outbox_from", "outbox_stamp"},
		of: func(r *call.Reader, first, _ string) (storage.Entry, bool) {
			outlet, _, _ := strings.Cut(first, "|")
			b, err := backlogIn(storage.OutletID(outlet), r.Item)
			r.Err = err
			return storage.Entry{Backlog: b}, true
		},
	},
}

// Entries implements storage.CopySource with a scan.
func (s *Store) Entries(
	ctx context.Context, kind storage.EntryKind, after string, limit int,
) (entries []storage.Entry, next string, err error) {
	c, ctx, leave, err := s.enter(ctx, "entries", 0)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	t := entryTables[kind]
	var from call.Item
	if first, second, found := strings.Cut(after, "\n"); found {
		from = call.Item{t.first: call.Text(first), t.second: call.Text(second)}
	}
	items, last, err := c.Scan(ctx, call.Read{Table: t.table, Only: t.only}, from, limit)
	if err != nil {
		return nil, "", call.Public(err)
	}
	for _, it := range items {
		r := call.Reader{Item: it}
		entry, is := t.of(&r, r.Text(t.first), r.Text(t.second))
		if r.Err != nil {
			return nil, "", call.Public(r.Err)
		}
		if is {
			entries = append(entries, entry)
		}
	}
	if last != nil {
		r := call.Reader{Item: last}
		next = r.Text(t.first) + "\n" + r.Text(t.second)
	}
	return entries, next, nil
}
