// Package postgres is the store for those who run Postgres already, or several nodes: every write is durable when it returns, and any
// number of nodes may write to one database, to one chat too.
//
// Writes of one kind queue. What queued while the previous statement ran is the next statement over
// arrays (UNNEST), which is a transaction of its own: a lone write costs one statement and one commit,
// and a thousand concurrent ones share a few (package batch). Reads run beside them on connections of
// their own. README.md has the schema, the statements of each method with their cost, and the limits.
package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/door"
	"github.com/tidemark-im/tidemark/storage/internal/health"
	"github.com/tidemark-im/tidemark/storage/postgres/internal/target"
)

// Config says where the database is. Everything but URL has a working default.
type Config struct {
	// URL is a connection string of libpq's form, postgres://user:password@host:port/database?parameters, with several hosts separated
	// by commas if there are standbys. Beside libpq's parameters it may have pool_writers and pool_readers, which Writers and Readers
	// override, and pgbouncer=true for a pooler in transaction mode: then no statement stays prepared, and no setting is made for a session.
	URL string
	// Writers is the number of connections that write, 4 by default, at least 2.
	Writers int
	// Readers is the number of connections that read, 8 by default.
	Readers int
	// Committed, if not nil, is told of each statement that stored messages or raised watermarks: how many, and how long it took, commit
	// included. It is called by the goroutines that write, and must not block.
	Committed func(sends, acks int, took time.Duration)
}

const (
	// maxItems is how many items share a statement, unless one call has more.
	maxItems = 512
	// pageReaders is how many statements read pages of messages at a time, and maxPages how many pages share one.
	pageReaders = 3
	maxPages    = 64
	// callTime bounds what is asked of the database, with all attempts: so late is known that it does not answer.
	callTime = 5 * time.Second
)

// Store implements storage.Store.
type Store struct {
	writers, readers *pgxpool.Pool
	committed        func(sends, acks int, took time.Duration)

	// One for each kind of write that many make at once. Each has one worker: two would make smaller
	// batches, and fight over the rows of hot chats.
	appends  *batch.Batcher[tidemark.Draft, storage.Appended]
	advances *batch.Batcher[storage.Advance, storage.Advanced]
	marks    *batch.Batcher[tidemark.PendingDelivery, bool]
	clears   *batch.Batcher[storage.Clear, bool]
	// And for what every client reads that comes back: a thousand of them after a restart share a few
	// statements.
	pages   *batch.Batcher[storage.Range, page]
	pending *batch.Batcher[pendingQuery, pendingPage]
	states  *batch.Batcher[storage.StateKey, tidemark.DeliveryState]

	health  health.Writes
	door    door.Door
	release sync.Once
}

var _ storage.Store = (*Store)(nil)

// Open connects to the database, whose schema must be the one that this program needs: see Migrate. It starts the goroutines that write,
// which Close ends and waits for.
//
// Errors: Invalid (the URL), Unavailable (the database cannot be reached, or is a standby), Conflict (its schema is older or newer than
// this program, or half-way between two; or it would confirm what is not on disk: fsync or synchronous_commit is off).
func Open(ctx context.Context, config Config) (*Store, error) {
	to, err := target.Parse(config.URL, config.Writers, config.Readers)
	if err != nil {
		return nil, err
	}
	if config.Committed == nil {
		config.Committed = func(int, int, time.Duration) {}
	}
	return open(ctx, to, config.Committed)
}

// open opens the store on a target.
func open(
	ctx context.Context, to *target.Target, committed func(sends, acks int, took time.Duration),
) (*Store, error) {
	s := &Store{committed: committed}
	var err error
	if s.writers, err = to.Pool(ctx, to.Writers); err == nil {
		s.readers, err = to.Pool(ctx, to.Readers)
	}
	if err == nil {
		err = s.fit(ctx)
	}
	if err != nil {
		s.disconnect()
		return nil, to.Named(err)
	}
	//rule:confirmed_is_durable.confirm-duplicates
	s.appends = newBatcher(s.writers, s.wrote("append"), 1, maxItems,
		settled(s.append, someDuplicate))
	//rule:watermark_monotonic.confirm-stale-raises
	s.advances = newBatcher(s.writers, s.wrote("advance"), 1, maxItems,
		settled(s.advance, noneMoved))
	s.marks = newBatcher(s.writers, s.wrote("mark"), 1, maxItems, s.mark)
	s.clears = newBatcher(s.writers, s.wrote("clear"), 1, maxItems, s.clear)
	s.pages = newBatcher(s.readers, nil, pageReaders, maxPages, readPages)
	s.pending = newBatcher(s.readers, nil, 2, maxPages, readPending)
	s.states = newBatcher(s.readers, nil, 2, maxItems, readStates)
	for _, b := range s.batchers() {
		b.Start()
	}
	return s, nil
}

// batchers returns all of them.
func (s *Store) batchers() []interface {
	Start()
	Stop()
} {
	return []interface {
		Start()
		Stop()
	}{s.appends, s.advances, s.marks, s.clears, s.pages, s.pending, s.states}
}

// fit returns an error if the database cannot be used: its schema, or what it promises.
func (s *Store) fit(ctx context.Context) error {
	return s.read(ctx, func(ctx context.Context, c *conn) error {
		found, err := readSchema(ctx, c)
		if err != nil {
			return err
		}
		if err := found.fit(); err != nil {
			return err
		}
		return promises(ctx, c)
	})
}

// disconnect closes the pools. No call is under way.
func (s *Store) disconnect() {
	for _, pool := range []*pgxpool.Pool{s.writers, s.readers} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Close implements storage.Store.
func (s *Store) Close() error {
	s.door.Close()
	s.release.Do(func() {
		for _, b := range s.batchers() {
			b.Stop()
		}
		s.disconnect()
	})
	return nil
}

// Check implements storage.Store: the database can be reached, takes writes, and still promises that what it commits is on disk.
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

// newBatcher returns a Batcher whose items work does on a connection of the pool, and again if the
// connection turns out to be broken: they may be done twice. done, if not nil, is told how it went:
// what the database did with the items, and not how long their callers wanted to wait.
func newBatcher[I, R any](
	pool *pgxpool.Pool, done func(error) error, workers, most int,
	work func(context.Context, *conn, []I) ([]R, error),
) *batch.Batcher[I, R] {
	cfg := batch.Config{Name: "the database", Workers: workers, Most: most}
	return batch.New(cfg, func(_ context.Context, collect func() []I) (results []R, err error) {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		//rule:confirmed_is_durable.retry-broken-write
		err = attempts(ctx, pool, harmless, func(ctx context.Context, c *conn) (err error) {
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

// wrote returns what takes in the error of each write of a kind.
func (s *Store) wrote(kind string) func(error) error {
	return func(err error) error { return s.health.Written(kind, err) }
}

// through does the items of a call in a batch, unless there are none or too many.
func through[I, R any](
	ctx context.Context, s *Store, b *batch.Batcher[I, R], items []I,
) ([]R, error) {
	if err := checkBatch(len(items)); err != nil || len(items) == 0 {
		return nil, err
	}
	if err := s.door.Enter(ctx); err != nil {
		return nil, err
	}
	defer s.door.Leave()
	//rule:confirmed_is_durable.cancelled-caller-is-no-failure
	return b.Do(ctx, items)
}

// read runs do on a connection that reads; several times, if connections turn out to be broken. Each statement sees every commit that
// was answered before it began.
func (s *Store) read(ctx context.Context, do func(context.Context, *conn) error) error {
	if err := s.door.Enter(ctx); err != nil {
		return err
	}
	defer s.door.Leave()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return attempts(ctx, s.readers, harmless, do)
}

// list reads a page of at most limit rows of a statement that asks for one more, and reports whether there are more.
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

// farewell is for how long a change goes on after its caller has left. Most changes end within it.
// Cutting one off costs its connection.
const farewell = 50 * time.Millisecond

// change runs do, which writes and is not harmless to repeat, on a connection that writes. When ctx
// ends, change takes no connection any more, and cuts do off after farewell: do may wait for a lock,
// and hold others meanwhile.
func (s *Store) change(ctx context.Context, do func(context.Context, *conn) error) error {
	if err := s.door.Enter(ctx); err != nil {
		return err
	}
	defer s.door.Leave()
	waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	//rule:nothing_outside_membership.change-once
	return s.health.Written("change",
		attempts(waiting, s.writers, undone, func(working context.Context, c *conn) error {
			working, cut := context.WithCancel(working)
			defer cut()
			//rule:bounded_use.cut-off-cancelled-change
			defer context.AfterFunc(ctx, func() { time.AfterFunc(farewell, cut) })()
			return do(working, c)
		}))
}

// checkBatch returns an Invalid error if a slice argument is too long.
func checkBatch(n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid,
			"%d items are too many for one call, at most %d are allowed", n, storage.MaxBatch)
	}
	return nil
}
