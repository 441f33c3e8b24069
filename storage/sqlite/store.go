// Package sqlite is the embedded store: one file, no server, every write durable when it returns.
//
// One goroutine writes. It takes whatever queued while the previous commit ran, does all of it in one transaction, and
// answers when the commit is on disk: a lone write pays one fsync, a thousand concurrent ones share a few. Reads run
// beside it on a pool of connections; each sees every commit that was answered before it began. README.md has the
// schema, the statements of each method, and the limits.
package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/door"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

// Config says where the database is. Everything but Path has a working default.
type Config struct {
	// Path of the database file; any characters. It is created, its directory is not. Files beside it: PATH-wal,
	// PATH-shm and PATH-lock.
	Path string
	// Readers is the number of connections that read, 4 by default.
	Readers int
	// CacheBytes is the page cache of the writer in bytes, 64 MiB by default. The readers share as much again.
	CacheBytes int
	// Committed, if not nil, is told of each transaction that wrote something: the messages stored and the watermarks raised in it, and how long it took,
	// commit included. It is called by the goroutine that writes, and must not block.
	Committed func(sends, acks int, took time.Duration)
}

const (
	defaultReaders = 4
	defaultCache   = 64 << 20
	// busyMilliseconds is how long a statement waits for another program's lock, such as that of a backup tool. It is short: everybody's writes wait behind it, and
	// are told the reason only afterwards.
	busyMilliseconds = 1_000
)

// Store implements storage.Store.
type Store struct {
	lock    *os.File
	writer  *writer
	writes  *batch.Batcher[job, error]
	readers chan *conn
	pool    int // how many readers there are
	files   *health.Files
	health  *health.Health
	door    door.Door
	release sync.Once
}

var _ storage.Store = (*Store)(nil)

// Open opens the database, creates it if it is missing, and brings its schema up to date. It starts the goroutine that
// writes, which Close ends and waits for.
//
// Errors: Conflict (another Store, here or in another process, has it open; or its schema is newer than this program),
// Unavailable (the file or its directory cannot be used), Invalid (no path).
func Open(ctx context.Context, config Config) (*Store, error) {
	if config.Readers <= 0 {
		config.Readers = defaultReaders
	}
	if config.CacheBytes <= 0 {
		config.CacheBytes = defaultCache
	}
	if err := ctx.Err(); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the time to open the database is over")
	}
	path, err := resolve(config.Path)
	if err != nil {
		return nil, err
	}
	held, err := lock(path)
	if err != nil {
		return nil, err
	}
	s := &Store{
		lock: held, pool: config.Readers, readers: make(chan *conn, config.Readers),
		health: health.New(),
	}
	cfg := batch.Config{Name: "the database", Most: maxJobs, Answered: s.checkpoint}
	s.writes = batch.New(cfg, s.write)
	if err := s.connect(path, config); err != nil {
		s.disconnect()
		return nil, health.At(path, health.Public(err))
	}
	s.writes.Start()
	return s, nil
}

func (s *Store) connect(path string, config Config) error {
	if err := ensure(path); err != nil {
		return err
	}
	c, err := open(path, false)
	if err != nil {
		return err
	}
	s.writer = newWriter(c)
	s.writer.committed = config.Committed
	if err := c.pragma("PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	if err := configure(c, config.CacheBytes); err != nil {
		return err
	}
	c.WatchLog()
	for range config.Readers {
		c, err := open(path, true)
		if err != nil {
			return err
		}
		s.readers <- c
		if err := configure(c, config.CacheBytes/config.Readers); err != nil {
			return err
		}
	}
	// The first to read makes the log.
	err = c.exec("SELECT 1 FROM chats LIMIT 1")
	if err == nil {
		s.files, err = health.Watch(path)
	}
	return err
}

// configure sets what is not stored in the file.
func configure(c *conn, cacheBytes int) error {
	c.BusyTimeout(busyMilliseconds)
	for _, pragma := range []string{"PRAGMA synchronous = FULL", fmt.Sprintf("PRAGMA cache_size = -%d", cacheBytes>>10), "PRAGMA temp_store = MEMORY"} {
		if err := c.pragma(pragma); err != nil {
			return err
		}
	}
	return nil
}

// disconnect closes what connect opened. No call is under way.
func (s *Store) disconnect() {
	for {
		select {
		case c := <-s.readers:
			c.close()
			continue
		default:
		}
		break
	}
	if s.writer != nil {
		s.writer.c.close()
	}
	s.lock.Close()
}

// Close implements storage.Store. It also moves the write-ahead log into the database file.
func (s *Store) Close() error {
	s.door.Close()
	s.release.Do(func() {
		s.writes.Stop()
		s.disconnect()
	})
	return nil
}

// Failed is closed when the disk failed in a commit, so that nobody knows what the files hold. Every later call gets Unavailable. The process
// must end, and its successor recovers what is on disk (delivery.md §2).
func (s *Store) Failed() <-chan struct{} { return s.health.Failed() }

// Committing returns how long the present commit or checkpoint has been under way, 0 if there is none. One that never ends needs a new process.
func (s *Store) Committing() time.Duration { return s.health.Committing() }

// Check implements storage.Store. After a commit that failed it tries a small one.
func (s *Store) Check(ctx context.Context) error {
	err := s.read(ctx, func(c *conn) error {
		if err := s.files.Intact(); err != nil {
			return err
		}
		return c.exec("SELECT 1 FROM chats LIMIT 1")
	})
	if err != nil {
		return err
	}
	if s.health.WorthATrial(time.Now()) {
		// If it is in vain, Trouble says why.
		_ = s.change(ctx, func(w *writer) error { return w.c.exec("PRAGMA user_version = 0") })
	}
	return s.health.Trouble(time.Now())
}

// enter begins a call; leave ends it.
func (s *Store) enter(ctx context.Context) error {
	if err := s.health.Failure(); err != nil {
		return err
	}
	return s.door.Enter(ctx)
}

// read runs do on a reader. Each statement sees every commit that was answered before it began.
func (s *Store) read(ctx context.Context, do func(*conn) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.door.Leave()
	select {
	case c := <-s.readers:
		defer func() { s.readers <- c }()
		err := do(c)
		s.health.Read(err)
		return health.Public(err)
	case <-ctx.Done():
		return tidemark.Wrap(tidemark.Unavailable, ctx.Err(),
			"the call ran out of time while it waited for a connection to the database")
	}
}

// snapshot is read for several statements that see one state of the database.
func (s *Store) snapshot(ctx context.Context, do func(*conn) error) error {
	return s.read(ctx, func(c *conn) error {
		if err := c.exec("BEGIN"); err != nil {
			return err
		}
		err := do(c)
		if e := c.exec("ROLLBACK"); err == nil {
			err = e
		}
		return err
	})
}

// checkBatch returns an Invalid error if a slice argument is too long.
func checkBatch(n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid,
			"%d items are too many for one call, at most %d are allowed", n, storage.MaxBatch)
	}
	return nil
}
