// Package dsn parses the URL of a Postgres database and configures its connections.
package dsn

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
	// keepAlive is the idle time after which the kernel checks that the server still answers.
	keepAlive = 15 * time.Second
	// lifeTime is the age at which a connection is replaced. Replacing spreads connections over all
	// servers behind one address.
	lifeTime = time.Hour
)

// The default sizes of the pools.
const (
	defaultWriters = 4
	defaultReaders = 8
)

// A DSN is a parsed URL.
type DSN struct {
	Config *pgxpool.Config
	// Writers and Readers are the numbers of connections that write and that read.
	Writers, Readers int
	// Pooler reports that the URL names a pooler in transaction mode.
	Pooler bool
	name   string // of the database, without a password
}

// Parse parses the URL. writers and readers override the URL's pool sizes unless they are 0.
// Errors: Invalid. No error repeats the URL, since it may contain a password.
func Parse(raw string, writers, readers int) (*DSN, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		//rule:logs_hold_no_secret.url-without-password
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the URL of the database cannot be read; it has the form "+
				"postgres://user:password@host:port/database, special characters of a password "+
				"written as %%XX")
	}
	t := &DSN{Writers: writers, Readers: readers}
	query := u.Query()
	if misplaced(u, query) {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the URL of the database has a ?, & or = at a place where none belongs; the "+
				"parameters follow one ?, and special characters of a password are written as %%XX")
	}
	if s := query.Get("pgbouncer"); s != "" {
		if t.Pooler, err = strconv.ParseBool(s); err != nil {
			return nil, tidemark.Errorf(tidemark.Invalid,
				"pgbouncer in the URL of the database is true or false, not %q", s)
		}
	}
	for _, pool := range []struct {
		parameter string
		size      *int
		least     int
		usual     int
	}{
		{"pool_writers", &t.Writers, 2, defaultWriters},
		{"pool_readers", &t.Readers, 1, defaultReaders},
	} {
		if s := query.Get(pool.parameter); s != "" && *pool.size == 0 {
			*pool.size, err = strconv.Atoi(s)
			if err != nil || *pool.size < pool.least || *pool.size > 1_000 {
				return nil, tidemark.Errorf(tidemark.Invalid,
					"%s in the URL of the database is a number from %d to 1000, not %q",
					pool.parameter, pool.least, s)
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
	t.Config, err = pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, tidemark.Errorf(tidemark.Invalid, "the URL of the database cannot be used: %s",
			reason(err))
	}
	t.configure()
	return t, nil
}

// misplaced reports whether a part of the URL that errors show may contain a piece of the password.
func misplaced(u *url.URL, query url.Values) bool {
	for name := range query {
		if strings.ContainsAny(name, "@/:") {
			return true
		}
	}
	return strings.ContainsAny(u.Path, "=&")
}

// reason returns why a connection string was refused, without the string.
func reason(err error) string {
	var refused *pgconn.ParseConfigError
	if errors.As(err, &refused) && refused.Unwrap() != nil {
		return refused.Unwrap().Error()
	}
	return "one of its parameters is unknown or malformed"
}

// configure sets the defaults of what the URL does not set.
func (t *DSN) configure() {
	c := t.Config.ConnConfig
	t.name = fmt.Sprintf("the database %s at %s",
		c.Database, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	if !strings.Contains(c.ConnString(), "connect_timeout=") {
		c.ConnectTimeout = connectTime
	}
	//rule:confirmed_is_durable.notice-cancelled-wait
	c.OnNotice = standby.Notice
	c.DialFunc = (&net.Dialer{KeepAlive: keepAlive}).DialContext
	if c.ValidateConnect == nil {
		// If the URL names several hosts, connect to the one that accepts writes.
		//rule:confirmed_is_durable.write-to-primary-only
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	// This program sends UTF-8, whatever the role or the database is set to.
	c.RuntimeParams["client_encoding"] = "UTF8"
	t.Config.MaxConnLifetime = lifeTime
	t.Config.MaxConnLifetimeJitter = lifeTime / 4
	if t.Pooler {
		c.DefaultQueryExecMode = pgx.QueryExecModeExec
		return
	}
	for name, value := range map[string]string{
		"application_name": "tidemark",
		// Each statement reads a few rows by their keys, whatever the size of the tables. So one
		// generic plan serves every call, and a plan made for empty tables stays good. JIT is off
		// because forbidden plans have very high estimated costs, which would start the compiler.
		"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off",
		"enable_bitmapscan": "off", "jit": "off",
		"default_transaction_isolation": "read committed",
		// A server that lost its client stops by itself. This program's locks last one commit. A
		// lock that is held longer belongs to another program.
		"statement_timeout": "10s", "lock_timeout": "2s",
		"idle_in_transaction_session_timeout": "1s",
		// A statement whose client is gone stops waiting for locks, and then holds none.
		//rule:bounded_use.notice-dead-client
		"client_connection_check_interval": "100ms",
	} {
		if _, given := c.RuntimeParams[name]; !given {
			c.RuntimeParams[name] = value
		}
	}
}

// Pool returns a pool of at most n connections. It connects when the first one is needed. greet, if
// not nil, checks each new connection, and refuses it by an error.
func (t *DSN) Pool(
	ctx context.Context, n int, greet func(context.Context, *pgx.Conn) error,
) (*pgxpool.Pool, error) {
	config := t.Config.Copy()
	config.MaxConns = int32(n)
	//rule:confirmed_is_durable.wait-for-disk
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		encodeArrays(c)
		if greet == nil {
			return nil
		}
		return greet(ctx, c)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Invalid, err, "the pool of connections cannot be made")
	}
	return pool, nil
}

// Named returns the error with the database's name before its detail.
func (t *DSN) Named(err error) error {
	cause := err
	var e *tidemark.Error
	if errors.As(err, &e) {
		cause = e.Err // What e says is in the detail.
	}
	return &tidemark.Error{
		Code:   tidemark.CodeOf(err),
		Detail: t.name + ": " + tidemark.DetailOf(err),
		Err:    cause,
	}
}
