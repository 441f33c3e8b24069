package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/standby"
)

// A conn is a connection in use.
type conn struct {
	*pgx.Conn
	// attempt counts from 0. A later one may find what an earlier one wrote.
	attempt int
}

// each runs a statement and gives each of its rows to scan, which reads the columns in their order.
func (c *conn) each(
	ctx context.Context, text string, parameters []any, scan func(row pgx.Rows) error,
) error {
	rows, err := c.Query(ctx, text, parameters...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	//rule:confirmed_is_durable.error-after-rows
	return rows.Err()
}

// maxAttempts is how often a call is tried, with a pause before each repetition that is four times the one before: 1.3 s in all, in which a
// server that crashed is back, or a deadlock is over.
const (
	maxAttempts = 5
	firstPause  = 15 * time.Millisecond
)

// attempts runs do on a connection of the pool, and again while the error is one that again allows, at most maxAttempts times and until ctx ends. Its
// errors are those of the contract.
func attempts(
	ctx context.Context, pool *pgxpool.Pool, again func(error) bool,
	do func(context.Context, *conn) error,
) error {
	pause := firstPause
	for n := 0; ; n++ {
		err := once(ctx, pool, n, do)
		if err == nil || n+1 == maxAttempts || ctx.Err() != nil || !again(err) {
			return public(err)
		}
		if !signal.Pause(ctx, pause) {
			return public(err)
		}
		pause *= 4
	}
}

// once runs do on a connection of the pool. If ctx is cancelled, do goes on, because cutting off its
// statement would cost the connection. If the deadline of ctx is over, once cuts it off.
func once(
	ctx context.Context, pool *pgxpool.Pool, attempt int, do func(context.Context, *conn) error,
) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return &unreached{err}
	}
	defer c.Release()
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = time.Now().Add(callTime)
	}
	waiting := ctx
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	err = do(ctx, &conn{Conn: c.Conn(), attempt: attempt})
	if e := standby.Confirmed(c.Conn().PgConn()); err == nil {
		err = e
	}
	switch {
	case err == nil:
	case readOnly(err):
		// It was demoted. There may be another one that takes writes.
		_ = c.Conn().Close(ctx)
		pool.Reset()
	case c.Conn().IsClosed():
		//rule:bounded_use.hang-up-at-once
		hangUp(c.Conn().PgConn().Conn())
		if !errors.Is(waiting.Err(), context.Canceled) {
			// The others are likely broken too.
			pool.Reset()
		}
	}
	return err
}

// hangUp tells the server at once that nobody waits for its answer. The driver tells it only when it
// has asked on another connection to cancel the statement. The driver still waits until the server
// closes the connection: until then it counts for the pool, so that backends do not pile up whose
// commit waits for the disk.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// transaction runs do in a transaction of its own, whose locks end soon even if this process is stopped in the middle.
func (c *conn) transaction(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.Conn, pgx.TxOptions{BeginQuery: begin}, do)
}

// briefly is transaction, and waits for each lock for a tenth of a second: longer than anybody's commit takes who does as we do.
func (c *conn) briefly(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.Conn,
		pgx.TxOptions{BeginQuery: begin + "; SET LOCAL lock_timeout = '100ms'"}, do)
}

// idle is the status of a connection without a transaction (Postgres, ReadyForQuery).
const idle = 'I'

// begin limits for how long a client that stands still keeps its locks: for less than others wait for
// them (lock_timeout). The client makes its call again (undone).
//
//rule:bounded_use.limit-silence-in-transaction
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL " +
	"idle_in_transaction_session_timeout = '1s'"
