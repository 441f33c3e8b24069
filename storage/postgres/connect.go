package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/standby"
)

const (
	// connectTime bounds making a connection, unless the URL has a connect_timeout.
	connectTime = 3 * time.Second
	// keepAlive is after what time of silence the kernel asks whether the server is still there.
	keepAlive = 15 * time.Second
	// lifeTime is after what time a connection is replaced, so that they spread over the servers again that an address stands for.
	lifeTime = time.Hour
)

// A target is what a URL says.
type target struct {
	config           *pgxpool.Config
	writers, readers int
	name             string // of the database, without a password
	pooler           bool   // stands between, in transaction mode
}

// parse reads the URL. No error repeats it: it may hold a password.
func parse(config Config) (*target, error) {
	u, err := url.Parse(config.URL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, tidemark.Errorf(tidemark.Invalid, "the URL of the database cannot be read; it has the form postgres://user:password@host:port/database, special characters of a password written as %%XX")
	}
	t := &target{writers: config.Writers, readers: config.Readers}
	query := u.Query()
	if s := query.Get("pgbouncer"); s != "" {
		if t.pooler, err = strconv.ParseBool(s); err != nil {
			return nil, tidemark.Errorf(tidemark.Invalid, "pgbouncer in the URL of the database is true or false, not %q", s)
		}
	}
	for _, pool := range []struct {
		parameter string
		size      *int
		least     int
		usual     int
	}{{"pool_writers", &t.writers, 2, defaultWriters}, {"pool_readers", &t.readers, 1, defaultReaders}} {
		if s := query.Get(pool.parameter); s != "" && *pool.size == 0 {
			if *pool.size, err = strconv.Atoi(s); err != nil || *pool.size < pool.least || *pool.size > 1_000 {
				return nil, tidemark.Errorf(tidemark.Invalid, "%s in the URL of the database is a number from %d to 1000, not %q", pool.parameter, pool.least, s)
			}
		}
		if *pool.size == 0 {
			*pool.size = pool.usual
		}
		*pool.size = max(*pool.size, pool.least)
		query.Del(pool.parameter)
	}
	query.Del("pgbouncer")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // libpq's form of a blank
	t.config, err = pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, tidemark.Errorf(tidemark.Invalid, "the URL of the database cannot be used: %s", reason(err))
	}
	t.configure()
	return t, nil
}

// reason returns why a connection string was refused, without the string.
func reason(err error) string {
	var refused *pgconn.ParseConfigError
	if errors.As(err, &refused) && refused.Unwrap() != nil {
		return refused.Unwrap().Error()
	}
	return "one of its parameters is unknown or malformed"
}

// configure sets what the URL leaves open.
func (t *target) configure() {
	c := t.config.ConnConfig
	t.name = fmt.Sprintf("the database %s at %s", c.Database, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if !strings.Contains(c.ConnString(), "connect_timeout=") {
		c.ConnectTimeout = connectTime
	}
	c.OnNotice = standby.Notice
	c.DialFunc = (&net.Dialer{KeepAlive: keepAlive}).DialContext
	if c.ValidateConnect == nil {
		// Of several hosts, the one that takes writes.
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	t.config.MaxConnLifetime = lifeTime
	t.config.MaxConnLifetimeJitter = lifeTime / 4
	if t.pooler {
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
		return
	}
	for name, value := range map[string]string{
		"application_name": "tidemark",
		// Each statement reads a few rows by their keys, whatever their number: one plan for all, made once, that no young and empty table
		// can spoil. With costs as high as a forbidden plan's, the compiler would be called for it.
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
		"default_transaction_isolation": "read committed",
		// A server that lost its client gives up by itself. Locks of ours last a commit; whoever holds one longer is somebody else.
		"statement_timeout": "10s", "lock_timeout": "2s", "idle_in_transaction_session_timeout": "5s",
	} {
		if _, given := c.RuntimeParams[name]; !given {
			c.RuntimeParams[name] = value
		}
	}
}

// pool makes a pool of at most n connections. It connects when the first is needed.
func (t *target) pool(ctx context.Context, n int) (*pgxpool.Pool, error) {
	config := t.config.Copy()
	config.MaxConns = int32(n)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Invalid, err, "the pool of connections cannot be made")
	}
	return pool, nil
}

// named says which database an error of the opening is about.
func (t *target) named(err error) error {
	return &tidemark.Error{Code: tidemark.CodeOf(err), Detail: t.name + ": " + tidemark.DetailOf(err), Err: err}
}

// A conn is a connection in use.
type conn struct {
	*pgx.Conn
	// attempt counts from 0. A later one may find what an earlier one wrote.
	attempt int
}

// each runs a statement and gives each of its rows to scan, which reads the columns in their order.
func (c *conn) each(ctx context.Context, text string, parameters []any, scan func(row pgx.Rows) error) error {
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
	return rows.Err()
}

// maxAttempts is how often a call is tried, with a pause before each repetition that is four times the one before: 1.3 s in all, in which a
// server that crashed is back, or a deadlock is over.
const (
	maxAttempts = 5
	firstPause  = 15 * time.Millisecond
)

// attempts runs do on a connection of the pool, again if again says that its error allows it, until ctx ends. Its errors are those of the contract.
func attempts(ctx context.Context, pool *pgxpool.Pool, again func(error) bool, do func(context.Context, *conn) error) error {
	pause := firstPause
	for n := 0; ; n++ {
		err := once(ctx, pool, n, do)
		if err == nil || n+1 == maxAttempts || ctx.Err() != nil || !again(err) {
			return public(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return public(err)
		}
		pause *= 4
	}
}

// once runs do on a connection of the pool. A caller who leaves does not cut off a statement that is under way, because that would cost the connection; only time does.
func once(ctx context.Context, pool *pgxpool.Pool, attempt int, do func(context.Context, *conn) error) error {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return &unreached{err}
	}
	defer c.Release()
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = time.Now().Add(callTime)
	}
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
		// The others are likely broken too.
		pool.Reset()
	}
	return err
}

// transaction runs do in a transaction of its own, whose locks end soon even if this process is stopped in the middle.
func (c *conn) transaction(ctx context.Context, do func(tx pgx.Tx) error) error {
	options := pgx.TxOptions{BeginQuery: "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL idle_in_transaction_session_timeout = '5s'"}
	return pgx.BeginTxFunc(ctx, c.Conn, options, do)
}
