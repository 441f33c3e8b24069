// Package postgres stores everything in a Postgres database. It is for operators who run Postgres
// already, or who need several nodes. Every write is durable when it returns. Any number of nodes
// may write to one database, and to one chat.
//
// Writes of one kind queue while a statement runs. The next statement takes the whole queue as
// arrays (UNNEST), in a transaction of its own. So a lone write costs one statement and one commit,
// and a thousand concurrent writes share a few (package batch). Reads use connections of their own.
// README.md has the schema, the statements of each method with their cost, and the limits.
package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/health"
	"github.com/tidemark-im/tidemark/storage/internal/inflight"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/dsn"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/place"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/schema"
)

// Config names the database and the options of the store. All fields but URL have defaults.
type Config struct {
	// URL is a connection string of libpq's form,
	// postgres://user:password@host:port/database?parameters. With standbys, it names several hosts
	// separated by commas.
	//
	// Beside libpq's parameters it accepts pool_writers and pool_readers, which Writers and Readers
	// override. It also accepts pgbouncer=true for a pooler in transaction mode. Then the store
	// prepares no statements, and sets no session parameters.
	URL string
	// Writers is the number of connections that write, 4 by default, at least 2.
	Writers int
	// Readers is the number of connections that read, 8 by default.
	Readers int
	// Batch is the most writes that share a statement, 512 by default. A call with more writes gets
	// a statement of its own.
	Batch int
	// Committed, if not nil, is called after each statement that stored messages or raised
	// watermarks. It gets their numbers and the duration, commit included. The goroutines that
	// write call it, so it must not block.
	Committed func(sends, acks int, took time.Duration)
	// Patience bounds a call of the database with all its attempts, 5 s by default. After it, the
	// database counts as not answering. Tests that are not about time set more, for slow machines.
	Patience time.Duration
}

const (
	// maxItems is the most items that share a statement, unless one call has more. For writes it is
	// the default of Config.Batch.
	maxItems = 512
	// pageReaders is how many statements read pages of messages at a time. maxPages is how many
	// pages share a statement.
	pageReaders = 3
	maxPages    = 64
	// rosterReaders is how many statements read rosters at a time. maxRosters is how many rosters
	// share one. They are few, because a roster has up to tidemark.MaxMembers rows.
	rosterReaders = 3
	maxRosters    = 16
	// comparers is how many statements compare heads with watermarks at a time. maxCompared is how
	// many users share one. It looks at up to maxLookedAt chats of each user, and at up to maxLooks
	// in all.
	comparers   = 2
	maxCompared = 2_048
	maxLookedAt = 1_000
	maxLooks    = 50_000
	// callTime is the default of Config.Patience.
	callTime = 5 * time.Second
)

// ComparesPerSecond is how many users a node may begin to compare in a second (Store.Behind). Their
// calls share statements.
const ComparesPerSecond = 20_000

// Store implements storage.Store.
type Store struct {
	to               *dsn.DSN
	writers, readers *pgxpool.Pool
	committed        func(sends, acks int, took time.Duration)
	patience         time.Duration

	// One batcher for each kind of write that many callers make at once. Each has one worker. Two
	// workers would make smaller batches, and wait for each other's locks on the rows of busy
	// chats.
	appends  appends
	advances *batch.Batcher[storage.Advance, storage.Advanced]
	marks    *batch.Batcher[tidemark.PendingDelivery, bool]
	clears   *batch.Batcher[storage.Clear, bool]
	reads

	// lives are the lives of the data, of which the last is the present one. They do not change.
	lives []lives.Life
	place *place.Place

	health  health.Writes
	calls   inflight.Gate
	release sync.Once
}

// reads has one batcher for each kind of read that every reconnecting client makes. A thousand
// reconnecting clients share a few statements. Documents are read for each user who is notified.
type reads struct {
	pages     *batch.Batcher[storage.Range, page]
	pending   *batch.Batcher[pendingQuery, pendingPage]
	behind    *batch.Batcher[behindQuery, behindPage]
	states    *batch.Batcher[storage.StateKey, tidemark.DeliveryState]
	rosters   *batch.Batcher[tidemark.ChatID, foundRoster]
	documents *batch.Batcher[storage.DocumentKey, storage.Document]
}

var _ storage.Store = (*Store)(nil)

// Open connects to the database, which must have a schema that this program can use (see Migrate).
// It starts the goroutines that write. Close ends them and waits for them.
//
// Errors:
//   - Invalid: the URL.
//   - Unavailable: the database cannot be reached, or is a standby.
//   - Conflict: this program cannot use the schema, or a migration has not ended; fsync or
//     synchronous_commit is off, so that a confirmed write may not be on disk; the encoding is not
//     UTF-8.
func Open(ctx context.Context, config Config) (*Store, error) {
	to, err := dsn.Parse(config.URL, config.Writers, config.Readers)
	if err != nil {
		return nil, err
	}
	return open(ctx, to, config)
}

// open opens the store on a DSN.
func open(ctx context.Context, to *dsn.DSN, config Config) (*Store, error) {
	if config.Committed == nil {
		config.Committed = func(int, int, time.Duration) {}
	}
	if config.Batch <= 0 {
		config.Batch = maxItems
	}
	s := &Store{
		to: to, committed: config.Committed, patience: config.Patience, place: place.New(),
	}
	if s.patience <= 0 {
		s.patience = callTime
	}
	var err error
	if s.writers, err = to.Pool(ctx, to.Writers, s.place.Greet); err == nil {
		s.readers, err = to.Pool(ctx, to.Readers, s.place.Greet)
	}
	if err == nil {
		err = s.fit(ctx)
	}
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, c *conn) (err error) {
			s.lives, err = s.place.Lives(ctx, c.Conn)
			return err
		})
	}
	if err != nil {
		s.disconnect()
		return nil, to.Named(err)
	}
	//rule:confirmed_is_durable.confirm-duplicates
	s.appends.Batcher = newBatcher(s.patience, s.writers, s.wrote("append"), 1, config.Batch,
		settled(s.append, someDuplicate))
	//rule:watermark_monotonic.confirm-stale-raises
	s.advances = newBatcher(s.patience, s.writers, s.wrote("advance"), 1, config.Batch,
		settled(s.advance, noneMoved))
	s.marks = newBatcher(s.patience, s.writers, s.wrote("mark"), 1, config.Batch, s.mark)
	s.clears = newBatcher(s.patience, s.writers, s.wrote("clear"), 1, config.Batch, s.clear)
	s.pages = newBatcher(s.patience, s.readers, nil, pageReaders, maxPages, readPages)
	s.pending = newBatcher(s.patience, s.readers, nil, 2, maxPages, readPending)
	s.behind = newBatcher(s.patience, s.readers, nil, comparers, maxCompared, readBehind)
	s.states = newBatcher(s.patience, s.readers, nil, 2, maxItems, readStates)
	s.rosters = newBatcher(s.patience, s.readers, nil, rosterReaders, maxRosters, readRosters)
	s.documents = newBatcher(s.patience, s.readers, nil, 2, maxItems, readDocuments)
	for _, b := range s.batchers() {
		b.Start()
	}
	return s, nil
}

// batchers returns all batchers of the store.
func (s *Store) batchers() []interface {
	Start()
	Stop()
} {
	return []interface {
		Start()
		Stop()
	}{
		s.appends.Batcher, s.advances, s.marks, s.clears, s.pages, s.pending, s.behind,
		s.states, s.rosters, s.documents,
	}
}

// fit returns an error if the server may not use the database, because of its schema or its
// settings.
func (s *Store) fit(ctx context.Context) error {
	return s.read(ctx, func(ctx context.Context, c *conn) error {
		found, err := schema.Read(ctx, c, migrations.Postgres)
		if err != nil {
			return err
		}
		if err := found.Fit(); err != nil {
			return err
		}
		return promises(ctx, c)
	})
}

// disconnect closes the pools. No call may be under way.
func (s *Store) disconnect() {
	for _, pool := range []*pgxpool.Pool{s.writers, s.readers} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Close implements storage.Store.
func (s *Store) Close() error {
	s.calls.Close()
	s.release.Do(func() {
		for _, b := range s.batchers() {
			b.Stop()
		}
		s.disconnect()
	})
	return nil
}

// Check implements storage.Store. It returns nil if the database can be reached, accepts writes,
// and confirms a commit only when it is on disk.
func (s *Store) Check(ctx context.Context) error {
	err := s.read(ctx, promises)
	if tidemark.CodeOf(err) == tidemark.Conflict {
		err = tidemark.Wrap(tidemark.Unavailable, err, tidemark.DetailOf(err))
	}
	if err != nil {
		return err
	}
	return s.health.Trouble(time.Now())
}

// newBatcher returns a Batcher that gives its items to work on a connection of the pool. If the
// connection breaks, it calls work again, so items may be done twice. done, if not nil, gets the
// error of the database's work, and not the end of a caller's patience.
func newBatcher[I, R any](
	patience time.Duration, pool *pgxpool.Pool, done func(error) error, workers, most int,
	work func(context.Context, *conn, []I) ([]R, error),
) *batch.Batcher[I, R] {
	cfg := batch.Config{Name: "the database", Workers: workers, Most: most}
	return batch.New(cfg, func(_ context.Context, collect func() []I) (results []R, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		//rule:confirmed_is_durable.retry-broken-write
		err = attempts(ctx, pool, mayRepeat, func(ctx context.Context, c *conn) (err error) {
			results, err = work(ctx, c, collect())
			return err
		})
		//rule:confirmed_is_durable.report-result-of-write
		if done != nil {
			err = done(err)
		}
		return results, err
	})
}

// wrote returns a function that records the result of each write of a kind.
func (s *Store) wrote(kind string) func(error) error {
	return func(err error) error { return s.health.Written(kind, err) }
}

// through does the items of a call in a batch. It does nothing if there are none, and returns
// Invalid if there are too many.
func through[I, R any](
	ctx context.Context, s *Store, b *batch.Batcher[I, R], items []I,
) ([]R, error) {
	if err := checkBatch(len(items)); err != nil || len(items) == 0 {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.calls.Leave()
	//rule:confirmed_is_durable.cancelled-caller-is-no-failure
	return b.Do(ctx, items)
}

// enter begins a call. If it returns nil, the caller must call calls.Leave.
func (s *Store) enter(ctx context.Context) error {
	//rule:restore_is_noticed.no-call-in-another-database
	if err := s.place.Whole(); err != nil {
		return err
	}
	return s.calls.Enter(ctx)
}

// read runs do on a connection that reads, again if the connection breaks. Each statement sees
// every commit that was confirmed before the statement began.
func (s *Store) read(ctx context.Context, do func(context.Context, *conn) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	return attempts(ctx, s.readers, mayRepeat, do)
}

// list reads a page of at most limit rows, and reports whether there are more. The statement must
// ask for limit + 1 rows.
func list[T any](
	ctx context.Context, s *Store, text string, limit int, parameters []any,
	scan func(pgx.Rows) (T, error),
) (rows []T, more bool, err error) {
	err = s.read(ctx, func(ctx context.Context, c *conn) error {
		rows = rows[:0]
		return c.each(ctx, text, parameters, func(row pgx.Rows) error {
			found, err := scan(row)
			rows = append(rows, found)
			return err
		})
	})
	if err != nil {
		return nil, false, err
	}
	if len(rows) > limit {
		return rows[:limit], true, nil
	}
	return rows, false, nil
}

// changeGrace is how long a change continues after its caller has left. Most changes end within it.
// Interrupting one costs its connection.
const changeGrace = 50 * time.Millisecond

// change runs do on a connection that writes. do is not harmless to repeat. When ctx ends, change
// no longer waits for a connection. A do that has begun is interrupted after changeGrace, because
// it may wait for a lock and hold others.
func (s *Store) change(ctx context.Context, do func(context.Context, *conn) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), s.patience)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	//rule:nothing_outside_membership.change-once
	return s.health.Written("change",
		attempts(waiting, s.writers, notPerformed, func(working context.Context, c *conn) error {
			working, cut := context.WithCancel(working)
			defer cut()
			//rule:bounded_use.cut-off-cancelled-change
			defer context.AfterFunc(ctx, func() { time.AfterFunc(changeGrace, cut) })()
			return do(working, c)
		}))
}

// checkBatch returns an Invalid error if n is above storage.MaxBatch.
func checkBatch(n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid,
			"%d items are too many for one call, at most %d are allowed", n, storage.MaxBatch)
	}
	return nil
}
