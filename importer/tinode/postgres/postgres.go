// Package postgres reads the topics of a Tinode server from its Postgres database.
package postgres

import (
	"context"
	"errors"
	"iter"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/importer/tinode"
)

// The versions of Tinode's schema that are read, as its table kvmeta has them.
const (
	oldest = 112
	newest = 117
)

// topicsAtOnce is how many topics are listed in one read.
const topicsAtOnce = 500

// What is read of the tables as Tinode creates them. Topics of two users and groups count. The
// others are a user's own, or the server's. 20 is the state of what was deleted.
const (
	schemaVersion = `SELECT value FROM kvmeta WHERE key = 'version'`
	topics        = `SELECT id, name, createdat, public FROM topics
		WHERE id > $1 AND state <> 20 AND left(name, 3) IN ('grp', 'p2p')
		ORDER BY id LIMIT $2`
	// The readers of a channel subscribe to the name of its group with another beginning.
	subscriptions = `SELECT userid, topic <> $1, createdat, updatedat, deletedat,
			coalesce(readseqid, 0), coalesce(modewant, ''), coalesce(modegiven, '')
		FROM subscriptions
		WHERE topic = $1 OR topic = 'chn' || substr($1, 4) AND left($1, 3) = 'grp'
		ORDER BY id`
	messages = `SELECT seqid, "from", createdat, deletedat IS NOT NULL OR coalesce(delid, 0) > 0,
			head, content
		FROM messages WHERE topic = $1 ORDER BY seqid`
	edits = `SELECT seqid, "from", createdat, deletedat IS NOT NULL OR coalesce(delid, 0) > 0,
			head, content
		FROM messages WHERE topic = $1 AND head ->> 'replace' IS NOT NULL ORDER BY seqid`
)

// Records returns the records of all topics. It reads each topic as it is at one moment.
//
// Errors: Invalid (the URL, or another schema), Denied (the key is another server's), Unavailable.
func Records(
	ctx context.Context, url string, key tinode.Key,
) iter.Seq2[importer.Record, error] {
	return func(yield func(importer.Record, error) bool) {
		// If the consumer has had enough, that ends a read whose rows are not all there yet.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		r := reader{key: key, yield: yield}
		if err := r.read(ctx, url); err != nil && !r.ended {
			yield(nil, err)
		}
	}
}

// reader reads the topics over one connection.
type reader struct {
	key   tinode.Key
	yield func(importer.Record, error) bool
	conn  *pgx.Conn
	ended bool
}

func (r *reader) read(ctx context.Context, url string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		// The error may have a part of the password.
		return tidemark.Errorf(tidemark.Invalid, "the address of Tinode's database is no URL of "+
			"Postgres: postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	if r.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return unavailable(err, "cannot be reached")
	}
	defer func() { _ = r.conn.Close(context.WithoutCancel(ctx)) }()
	if err := r.checkVersion(ctx); err != nil {
		return err
	}
	for last := int64(0); ; {
		found, err := r.list(ctx, last)
		if err != nil {
			return unavailable(err, "does not list its topics")
		}
		for i := range found {
			if err := r.topic(ctx, &found[i].Topic); err != nil || r.ended {
				return err
			}
			last = found[i].id
		}
		if len(found) < topicsAtOnce {
			return nil
		}
	}
}

// checkVersion returns Invalid if the schema is none that this program knows.
func (r *reader) checkVersion(ctx context.Context) error {
	var text string
	if err := r.conn.QueryRow(ctx, schemaVersion).Scan(&text); err != nil {
		return unavailable(err, "does not say the version of its schema")
	}
	if n, err := strconv.Atoi(text); err != nil || n < oldest || n > newest {
		return tidemark.Errorf(tidemark.Invalid, "Tinode's database has the schema %q, and this "+
			"program reads %d to %d; update or downgrade Tinode first", text, oldest, newest)
	}
	return nil
}

// listed is a topic with the key of its row.
type listed struct {
	tinode.Topic
	id int64
}

// list returns the topics after a row.
func (r *reader) list(ctx context.Context, after int64) ([]listed, error) {
	rows, err := r.conn.Query(ctx, topics, after, topicsAtOnce)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t listed, err error) {
		var public []byte
		err = row.Scan(&t.id, &t.Name, &t.Created, &public)
		t.Public = public
		return t, err
	})
}

// topic yields the records of a topic.
func (r *reader) topic(ctx context.Context, t *tinode.Topic) error {
	tx, err := r.conn.BeginTx(ctx, pgx.TxOptions{
		IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly,
	})
	if err != nil {
		return unavailable(err, "begins no transaction")
	}
	// After an early end the connection is closed, not drained.
	defer func() { _ = tx.Rollback(ctx) }()
	if t.Subscriptions, err = r.subscriptions(ctx, tx, t.Name); err == nil {
		t.Edits, err = r.edits(ctx, tx, t.Name)
	}
	if err != nil {
		return unavailable(err, "does not return the topic "+t.Name)
	}
	for record, err := range r.key.Records(t, r.messages(ctx, tx, t.Name)) {
		if err != nil {
			return err
		}
		if !r.yield(record, nil) {
			r.ended = true
			return nil
		}
	}
	return nil
}

func (r *reader) subscriptions(
	ctx context.Context, tx pgx.Tx, topic string,
) ([]tinode.Subscription, error) {
	rows, err := tx.Query(ctx, subscriptions, topic)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s tinode.Subscription, err error) {
		var deleted *time.Time
		err = row.Scan(&s.User, &s.Channel, &s.Created, &s.Updated, &deleted, &s.ReadSeq,
			&s.Want, &s.Given)
		if deleted != nil {
			s.Deleted = *deleted
		}
		return s, err
	})
}

func (r *reader) edits(ctx context.Context, tx pgx.Tx, topic string) ([]tinode.Message, error) {
	rows, err := tx.Query(ctx, edits, topic)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (tinode.Message, error) {
		return message(row)
	})
}

// messages returns the messages of a topic, as their rows arrive.
func (r *reader) messages(
	ctx context.Context, tx pgx.Tx, topic string,
) iter.Seq2[tinode.Message, error] {
	return func(yield func(tinode.Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		rows, err := tx.Query(ctx, messages, topic)
		defer func() {
			// Closing reads the rows that are left, unless the context has ended. A failed query
			// has rows, too.
			cancel()
			rows.Close()
		}()
		for err == nil && rows.Next() {
			var m tinode.Message
			if m, err = message(rows); err == nil && !yield(m, nil) {
				return
			}
		}
		if err == nil {
			err = rows.Err()
		}
		if err != nil {
			yield(tinode.Message{}, unavailable(err, "does not return the topic "+topic))
		}
	}
}

// message returns the message of a row.
func message(row pgx.CollectableRow) (m tinode.Message, err error) {
	var head, content []byte
	err = row.Scan(&m.Seq, &m.From, &m.Created, &m.Deleted, &head, &content)
	m.Head, m.Content = head, content
	return m, err
}

// unavailable returns the error of a call of the database.
func unavailable(err error, what string) error {
	var ours *tidemark.Error
	if errors.As(err, &ours) {
		return err
	}
	return tidemark.Wrap(tidemark.Unavailable, err, "Tinode's database "+what)
}
