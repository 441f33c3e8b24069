package sqlite

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.CopySource = (*Store)(nil)

// Incarnations implements storage.CopySource.
func (s *Store) Incarnations() []tidemark.Incarnation { return lives.IDs(s.lives) }

// Nodes implements storage.CopySource. The lock of the file keeps other processes away.
func (s *Store) Nodes(ctx context.Context) ([]string, error) {
	return nil, s.read(ctx, func(*conn) error { return nil })
}

// Activity implements storage.CopySource.
func (s *Store) Activity(ctx context.Context, id tidemark.ChatID) (at time.Time, err error) {
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT activity_at FROM chats WHERE id = ?`)
		if err != nil {
			return err
		}
		q.string(1, string(id))
		found, err := q.one(func(row *stmt) { at = timeOf(row.integerAt(0)) })
		if err == nil && !found {
			err = noChat(id)
		}
		return err
	})
	return at, err
}

// MessageFacts implements storage.CopySource.
func (s *Store) MessageFacts(
	ctx context.Context, q storage.FactsQuery,
) (facts []storage.MessageFacts, err error) {
	if err := cmp.Or(checkBatch(int(q.To+1-q.From)), checkBatch(len(q.Users))); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(c *conn) error {
		b, err := c.bounds(q.Chat)
		if err != nil {
			return err
		}
		facts, err = c.livesIn(b.key, q)
		if err != nil || !q.Mentions {
			return err
		}
		found, err := c.mentionsIn(b.key, q)
		storage.PutMentions(facts, q.From, unread.Everyone, found)
		return err
	})
	return facts, err
}

// livesIn returns the life of each message of a range.
func (c *conn) livesIn(chat int64, q storage.FactsQuery) ([]storage.MessageFacts, error) {
	text, err := c.prepared(`SELECT coalesce(life, 1) FROM messages
		WHERE chat = ? AND sequence >= ? AND sequence <= ? ORDER BY sequence`)
	if err != nil {
		return nil, err
	}
	text.integer(1, chat)
	text.integer(2, int64(q.From))
	text.integer(3, int64(q.To))
	facts := make([]storage.MessageFacts, 0, q.To+1-q.From)
	err = text.each(func(row *stmt) bool {
		facts = append(facts, storage.MessageFacts{Life: row.integerAt(0)})
		return true
	})
	if n := int(q.To + 1 - q.From); err == nil && len(facts) != n {
		err = tidemark.Errorf(tidemark.Unavailable,
			"the database has %d of %d messages of the chat %s", len(facts), n, q.Chat)
	}
	return facts, err
}

// mentionsIn returns whom the messages of a range named when they were stored.
func (c *conn) mentionsIn(
	chat int64, q storage.FactsQuery,
) (found []storage.FirstMention, err error) {
	text, err := c.prepared(`SELECT n.user_id, n.sequence FROM json_each(?) AS j
		CROSS JOIN mentions AS n ON n.chat = ? AND n.user_id = j.value
			AND n.sequence >= ? AND n.sequence <= ?`)
	if err != nil {
		return nil, err
	}
	text.string(1, jsonArray(append([]tidemark.UserID{unread.Everyone}, q.Users...)))
	text.integer(2, chat)
	text.integer(3, int64(q.From))
	text.integer(4, int64(q.To))
	return found, text.each(func(row *stmt) bool {
		found = append(found, storage.FirstMention{
			User:     tidemark.UserID(row.stringAt(0)),
			Sequence: tidemark.Sequence(row.integerAt(1)),
		})
		return true
	})
}

// An entryQuery reads entries of a kind. Its first two columns are their place in the order. Its
// parameters are such a place and the limit.
type entryQuery struct {
	text string
	scan func(row *stmt) storage.Entry
}

var entryQueries = map[storage.EntryKind]entryQuery{
	storage.EntryDocument: {`SELECT kind, name, version, value FROM documents
		WHERE (kind, name) > (?, ?) ORDER BY kind, name LIMIT ?`, func(row *stmt) storage.Entry {
		return storage.Entry{Document: storage.Document{
			Kind: row.stringAt(0), Name: row.stringAt(1), Version: uint64(row.integerAt(2)),
			Value: row.bytesAt(3),
		}}
	}},
	storage.EntryBlock: {`SELECT user_id, blocked_id, blocked_at FROM blocks
		WHERE (user_id, blocked_id) > (?, ?) ORDER BY user_id, blocked_id LIMIT ?`,
		func(row *stmt) storage.Entry {
			return storage.Entry{User: tidemark.UserID(row.stringAt(0)), Blocked: storage.Block{
				User: tidemark.UserID(row.stringAt(1)), At: timeOf(row.integerAt(2)),
			}}
		}},
	storage.EntryReceipts: {`SELECT r.user_id, coalesce(c.id, ''), r.hidden
		FROM receipts AS r LEFT JOIN chats AS c ON c.key = r.chat
		WHERE (r.user_id, coalesce(c.id, '')) > (?, ?) AND (r.chat = 0 OR c.id IS NOT NULL)
		ORDER BY r.user_id, coalesce(c.id, '') LIMIT ?`, func(row *stmt) storage.Entry {
		return storage.Entry{
			User: tidemark.UserID(row.stringAt(0)), Chat: tidemark.ChatID(row.stringAt(1)),
			Receipts: settingOf(row.integerAt(2)),
		}
	}},
	storage.EntryBacklog: {`SELECT outlet, chat_id, sequence, members, version, stamp, shard
		FROM outlet_backlogs WHERE (outlet, chat_id) > (?, ?) ORDER BY outlet, chat_id LIMIT ?`,
		func(row *stmt) storage.Entry {
			return storage.Entry{Backlog: storage.Backlog{
				Outlet: storage.OutletID(row.stringAt(0)), Chat: tidemark.ChatID(row.stringAt(1)),
				From: positionAt(row, 2), Stamp: row.stringAt(5), Shard: int(row.integerAt(6)),
			}}
		}},
	storage.EntryAudit: {`SELECT id, '', ` + auditColumns + `
		FROM audit WHERE (id, '') > (?, ?) ORDER BY id LIMIT ?`,
		func(row *stmt) storage.Entry { return storage.Entry{Audit: auditAt(row, 2)} }},
}

// Entries implements storage.CopySource.
func (s *Store) Entries(
	ctx context.Context, kind storage.EntryKind, after string, limit int,
) (entries []storage.Entry, next string, err error) {
	first, second, _ := strings.Cut(after, "\x00")
	query, place := entryQueries[kind], ""
	entries, more, err := page(ctx, s, query.text, limit, func(q *stmt) {
		q.string(1, first)
		q.string(2, second)
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) storage.Entry {
		// The row behind the page is not scanned.
		place = row.stringAt(0) + "\x00" + row.stringAt(1)
		return query.scan(row)
	})
	if more {
		next = place
	}
	return entries, next, err
}
