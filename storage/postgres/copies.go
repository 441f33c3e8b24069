package postgres

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.CopySource = (*Store)(nil)

// Incarnations implements storage.CopySource.
func (s *Store) Incarnations() []tidemark.Incarnation { return lives.IDs(s.lives) }

// livingNodes reads the nodes of a cluster without Redis that have a lease.
const livingNodes = `SELECT id FROM cluster_nodes
	WHERE alive AND expires >= (extract(epoch FROM clock_timestamp()) * 1000)::bigint ORDER BY id`

// Nodes implements storage.CopySource.
func (s *Store) Nodes(ctx context.Context) (nodes []string, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		nodes = nil
		return c.each(ctx, livingNodes, nil, func(row pgx.Rows) error {
			var id string
			err := row.Scan(&id)
			nodes = append(nodes, id)
			return err
		})
	})
	return nodes, err
}

// Activity implements storage.CopySource.
func (s *Store) Activity(ctx context.Context, id tidemark.ChatID) (at time.Time, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		var activity int64
		err := c.QueryRow(ctx, `SELECT activity_at FROM chats WHERE id = $1`,
			string(id)).Scan(&activity)
		at = timeOf(activity)
		return missing(err, id)
	})
	return at, err
}

const (
	livesIn = `SELECT coalesce(life, 1) FROM messages
		WHERE chat = (SELECT key FROM chats WHERE id = $1) AND sequence BETWEEN $2 AND $3
		ORDER BY sequence`
	firstMentions = `SELECT n.user_id, n.sequence FROM mentions AS n
		WHERE n.chat = (SELECT key FROM chats WHERE id = $1) AND n.user_id = ANY ($4::text[])
			AND n.sequence BETWEEN $2 AND $3`
)

// MessageFacts implements storage.CopySource.
func (s *Store) MessageFacts(
	ctx context.Context, q storage.FactsQuery,
) (facts []storage.MessageFacts, err error) {
	n := int(q.To + 1 - q.From)
	if err := cmp.Or(checkBatch(n), checkBatch(len(q.Users))); err != nil {
		return nil, err
	}
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		facts = make([]storage.MessageFacts, 0, n)
		parameters := []any{string(q.Chat), column(q.From), column(q.To)}
		err := c.each(ctx, livesIn, parameters, func(row pgx.Rows) error {
			var one storage.MessageFacts
			err := row.Scan(&one.Life)
			facts = append(facts, one)
			return err
		})
		if err == nil && len(facts) != n {
			err = tidemark.Errorf(tidemark.Unavailable,
				"the database has %d of %d messages of the chat %s", len(facts), n, q.Chat)
		}
		if err != nil || !q.Mentions {
			return err
		}
		users := append([]string{unread.Everyone}, texts(q.Users)...)
		var found []storage.FirstMention
		err = c.each(ctx, firstMentions, append(parameters, users), func(row pgx.Rows) error {
			var one storage.FirstMention
			err := row.Scan(&one.User, &one.Sequence)
			found = append(found, one)
			return err
		})
		storage.PutMentions(facts, q.From, unread.Everyone, found)
		return err
	})
	if err != nil {
		return nil, err
	}
	return facts, nil
}

// An entryQuery reads entries of a kind, behind a place of two texts. scan also returns the place.
type entryQuery struct {
	text string
	scan func(row pgx.Rows) (e storage.Entry, first, second string, err error)
}

var entryQueries = map[storage.EntryKind]entryQuery{
	storage.EntryDocument: {`SELECT kind, name, version, value FROM documents
		WHERE (kind, name) > ($1, $2) ORDER BY kind, name LIMIT $3`,
		func(row pgx.Rows) (e storage.Entry, first, second string, err error) {
			d, version := &e.Document, int64(0)
			err = row.Scan(&d.Kind, &d.Name, &version, &d.Value)
			d.Version = uint64(version)
			return e, d.Kind, d.Name, err
		}},
	storage.EntryBlock: {`SELECT user_id, blocked_id, blocked_at FROM blocks
		WHERE (user_id, blocked_id) > ($1, $2) ORDER BY user_id, blocked_id LIMIT $3`,
		func(row pgx.Rows) (e storage.Entry, first, second string, err error) {
			var at int64
			err = row.Scan(&e.User, &e.Blocked.User, &at)
			e.Blocked.At = timeOf(at)
			return e, string(e.User), string(e.Blocked.User), err
		}},
	storage.EntryReceipts: {`SELECT r.user_id, r.chat_id, r.hidden FROM (
			SELECT r.user_id, coalesce(c.id, '') COLLATE "C" AS chat_id, r.hidden
			FROM receipts AS r LEFT JOIN chats AS c ON c.key = r.chat
			WHERE r.chat = 0 OR c.id IS NOT NULL) AS r
		WHERE (r.user_id, r.chat_id) > ($1, $2) ORDER BY r.user_id, r.chat_id LIMIT $3`,
		func(row pgx.Rows) (e storage.Entry, first, second string, err error) {
			var hidden bool
			err = row.Scan(&e.User, &e.Chat, &hidden)
			e.Receipts = settingOf(&hidden, "")
			return e, string(e.User), string(e.Chat), err
		}},
	storage.EntryBacklog: {`SELECT outlet, chat_id, sequence, members, version, stamp, shard
		FROM outlet_backlogs WHERE (outlet, chat_id) > ($1, $2) ORDER BY outlet, chat_id LIMIT $3`,
		func(row pgx.Rows) (e storage.Entry, first, second string, err error) {
			b, from := &e.Backlog, position{}
			err = row.Scan(&b.Outlet, &b.Chat, &from.sequence, &from.members, &from.version,
				&b.Stamp, &b.Shard)
			b.From = from.position()
			return e, string(b.Outlet), string(b.Chat), err
		}},
	storage.EntryAudit: {`SELECT ` + auditColumns + ` FROM audit
		WHERE (id, '') > ($1, $2) ORDER BY id LIMIT $3`,
		func(row pgx.Rows) (e storage.Entry, first, second string, err error) {
			e.Audit, err = auditIn(row)
			return e, string(e.Audit.ID), "", err
		}},
}

// Entries implements storage.CopySource.
func (s *Store) Entries(
	ctx context.Context, kind storage.EntryKind, after string, limit int,
) ([]storage.Entry, string, error) {
	type placed struct {
		entry storage.Entry
		place string
	}
	first, second, _ := strings.Cut(after, "\n")
	query := entryQueries[kind]
	found, more, err := list(ctx, s, query.text, limit, []any{first, second, int64(limit) + 1},
		func(row pgx.Rows) (placed, error) {
			e, first, second, err := query.scan(row)
			return placed{e, first + "\n" + second}, err
		})
	if err != nil {
		return nil, "", err
	}
	entries, next := make([]storage.Entry, len(found)), ""
	for i := range found {
		if entries[i] = found[i].entry; more {
			next = found[i].place
		}
	}
	return entries, next, nil
}
