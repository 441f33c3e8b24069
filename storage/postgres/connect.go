package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/standby"
)

// A conn is a connection that a caller has taken from its pool.
type conn struct {
	*pgx.Conn
	// attempt counts from 0. A later attempt may find what an earlier one wrote.
	attempt int
}

// each runs a statement and calls scan for each row. scan reads the columns in their order.
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

// maxAttempts is the number of attempts of a call. Each pause is four times the one before, 1.3 s
// in total. In that time a crashed server restarts, or a deadlock ends.
const (
	maxAttempts = 5
	firstPause  = 15 * time.Millisecond
)

// attempts runs do on a connection of the pool. It repeats do while again allows the error, at most
// maxAttempts times and until ctx ends. It returns the errors of storage.Store.
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

// once runs do on a connection of the pool. If ctx is cancelled, do continues, because interrupting
// its statement would cost the connection. If the deadline of ctx passes, once interrupts do.
func once(
	ctx context.Context, pool *pgxpool.Pool, attempt int, do func(context.Context, *conn) error,
) error {
	c, err := pool.Acquire(ctx)
	var said *tidemark.Error
	switch {
	case errors.As(err, &said): // The connection leads to another database, also the next one.
		return said
	case err != nil:
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
		// The server was demoted to a standby. Another host of the URL may accept writes.
		_ = c.Conn().Close(ctx)
		pool.Reset()
	case c.Conn().IsClosed():
		//rule:bounded_use.hang-up-at-once
		hangUp(c.Conn().PgConn().Conn())
		if !errors.Is(waiting.Err(), context.Canceled) {
			// The other connections are probably broken too.
			pool.Reset()
		}
	}
	return err
}

// hangUp tells the server at once that no client waits for its answer. The driver does this only
// after it has opened another connection and cancelled the statement there. The driver still waits
// until the server closes the connection. The pool counts the connection until then, which limits
// the backends whose commits wait for the disk.
func hangUp(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}

// transaction runs do in a transaction of its own. Its locks end soon even if this process is
// stopped in the middle (see begin).
func (c *conn) transaction(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.Conn, pgx.TxOptions{BeginQuery: begin}, do)
}

// briefly is transaction with a limit of 100 ms for each lock. The commits of this program release
// their locks sooner.
func (c *conn) briefly(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.Conn,
		pgx.TxOptions{BeginQuery: begin + "; SET LOCAL lock_timeout = '100ms'"}, do)
}

// soon runs do in a transaction whose commit does not wait for the disk. A crash may undo it.
func (c *conn) soon(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, c.Conn,
		pgx.TxOptions{BeginQuery: begin + "; SET LOCAL synchronous_commit = off"}, do)
}

// idle is the status of a connection without a transaction (Postgres, ReadyForQuery).
const idle = 'I'

// begin limits how long a stopped client keeps its locks. The limit is shorter than lock_timeout,
// for which the others wait. The stopped client makes its call again (notPerformed).
//
//rule:bounded_use.limit-silence-in-transaction
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL " +
	"idle_in_transaction_session_timeout = '1s'"

// Pool is a pool of connections to the database.
type Pool = *pgxpool.Pool

// Peers returns a pool of at most n connections to the store's database, for what the nodes of a
// cluster share there. Like the store's own, they lead to no other database. The caller closes the
// pool before the store.
func (s *Store) Peers(ctx context.Context, n int) (Pool, error) {
	return s.to.Pool(ctx, n, s.place.Greet)
}
