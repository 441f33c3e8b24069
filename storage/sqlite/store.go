// Package sqlite is the embedded store. It uses one file and no server. Every write is durable when
// it returns.
//
// One goroutine writes. It takes all writes that were queued during the previous commit, runs them
// in one transaction, and answers after the commit is on disk. So a lone write costs one fsync, and
// a thousand concurrent ones share a few. Reads use a pool of other connections at the same time. A
// read sees every commit that was answered before it began. README.md has the schema, the
// statements of each method, and the limits.
package sqlite

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/inflight"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

// Config configures a Store. Every field except Path has a working default.
type Config struct {
	// Path is the path of the database file, with any characters. Open creates the file, but not
	// its directory. Other files beside it are PATH-wal, PATH-shm and PATH-lock.
	Path string
	// Readers is the number of connections that read, 4 by default.
	Readers int
	// CacheBytes is the size of the writer's page cache in bytes, 64 MiB by default. The readers
	// together use the same size again.
	CacheBytes int
	// Batch is the most writes that share a commit, 512 by default.
	Batch int
	// Committed, if not nil, is called after each transaction that wrote something. sends is the
	// number of stored messages, acks that of raised watermarks. took is the duration, with the
	// commit. The goroutine that writes calls it, so it must not block.
	Committed func(sends, acks int, took time.Duration)
}

const (
	defaultReaders = 4
	defaultCache   = 64 << 20
	// busyMilliseconds is how long a statement waits for another program's lock, such as that of a
	// backup tool. It is short because all writes wait meanwhile, and get the reason only
	// afterwards.
	busyMilliseconds = 1_000
)

// Store implements storage.Store with a SQLite file. Create it with Open. One of OpenReader has no
// lock, writer, writes and files.
type Store struct {
	lock    *os.File
	path    string
	writer  *writer
	writes  *batch.Batcher[job, error]
	readers chan *conn
	pool    int // the number of readers
	// lives are the lives of the data, of which the last is the present one. They do not change.
	lives   []lives.Life
	files   *health.Files
	health  *health.Health
	calls   inflight.Gate
	release sync.Once
	// keep runs keepLog once.
	keep sync.Once
}

var _ storage.Store = (*Store)(nil)

// Open opens the database. It creates the file if it is missing, and updates an older schema. It
// starts the goroutine that writes. Close ends this goroutine.
//
// Conflict: another Store has the database open, in this or another process, or this program cannot
// use its schema. Unavailable: the file or its directory cannot be used. Invalid: Path is empty.
func Open(ctx context.Context, config Config) (*Store, error) {
	if config.Readers <= 0 {
		config.Readers = defaultReaders
	}
	if config.CacheBytes <= 0 {
		config.CacheBytes = defaultCache
	}
	if config.Batch <= 0 {
		config.Batch = maxJobs
	}
	if err := ctx.Err(); err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the time for opening the database was over before it began; try again")
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
		lock: held, path: path, pool: config.Readers, readers: make(chan *conn, config.Readers),
		health: health.New(),
	}
	cfg := batch.Config{Name: "the database", Most: config.Batch, Answered: s.checkpoint}
	s.writes = batch.New(cfg, s.write)
	if err := s.connect(path, config); err != nil {
		s.disconnect()
		return nil, health.At(path, health.Public(err))
	}
	s.writes.Start()
	return s, nil
}

func (s *Store) connect(path string, config Config) error {
	// Opening the file may change it.
	closed := closedAs(path, s.lock)
	if err := ensure(path, migrations.SQLite); err != nil {
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
	if err := s.pooled(path, config); err != nil {
		return err
	}
	// The first read creates the log.
	err = c.exec("SELECT 1 FROM chats LIMIT 1")
	if err == nil {
		err = s.live(closed)
	}
	if err == nil {
		s.writer.life = s.lives[len(s.lives)-1].Number
	}
	if err == nil {
		s.files, err = health.Watch(path)
	}
	if err == nil {
		err = note(s.lock, s.files.Main, s.files.Log)
	}
	return err
}

// pooled opens the connections that read.
func (s *Store) pooled(path string, config Config) error {
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
	return nil
}

// configure sets the options that the file does not store.
func configure(c *conn, cacheBytes int) error {
	c.BusyTimeout(busyMilliseconds)
	for _, pragma := range []string{
		"PRAGMA synchronous = FULL", fmt.Sprintf("PRAGMA cache_size = -%d", cacheBytes>>10),
		"PRAGMA temp_store = MEMORY",
		//rule:redacted_stays.overwrite-in-the-file
		"PRAGMA secure_delete = ON",
	} {
		if err := c.pragma(pragma); err != nil {
			return err
		}
	}
	return nil
}

// disconnect closes what connect opened, and releases the lock. No call is under way.
func (s *Store) disconnect() {
	s.closeAll()
	s.lock.Close()
}

// closeAll closes all connections.
func (s *Store) closeAll() {
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
	s.files.Close()
}

// Close implements storage.Store. It also copies the write-ahead log into the database file.
func (s *Store) Close() error {
	s.calls.Close()
	s.release.Do(func() {
		if s.writer == nil {
			s.closeAll()
			return
		}
		s.writes.Stop()
		clean := s.health.Failure() == nil && s.files.Intact() == nil && s.files.Unchanged() == nil
		if s.files.Spoiled() {
			s.keepLog()
		}
		s.closeAll()
		if clean && hasLog(s.path) {
			s.emptyLog()
		}
		if clean {
			noteClosed(s.lock, s.files.Main, s.path, s.Incarnation())
		}
		s.lock.Close()
	})
	return nil
}

// emptyLog copies the log into the database file, and empties it, if another program still reads
// the database (OpenReader). SQLite does so only when the last connection ends. Else the next Open
// would begin another incarnation.
func (s *Store) emptyLog() {
	c, err := open(s.path, false)
	if err != nil {
		return
	}
	defer c.close()
	c.BusyTimeout(busyMilliseconds)
	//rule:restore_is_noticed.a-reader-is-no-crash
	_ = c.pragma("PRAGMA wal_checkpoint(TRUNCATE)") // The next Open sees whether there is a log.
}

// Failed is closed when the disk fails in a commit. The content of the files is unknown then, and
// every later call returns Unavailable. The process must end. The next process recovers what is on
// disk (delivery.md §2).
func (s *Store) Failed() <-chan struct{} { return s.health.Failed() }

// Committing returns how long the current commit or checkpoint has been running, or 0 if there is
// none. If one never ends, the process must be restarted.
func (s *Store) Committing() time.Duration { return s.health.Committing() }

// Check implements storage.Store. After a failed commit it tries a small one.
func (s *Store) Check(ctx context.Context) error {
	err := s.read(ctx, func(c *conn) error {
		if s.writer != nil {
			if err := s.files.Intact(); err != nil {
				return err
			}
		}
		return c.exec("SELECT 1 FROM chats LIMIT 1")
	})
	if err != nil {
		return err
	}
	if s.writer != nil && s.health.WorthATrial(time.Now()) {
		// On failure, Trouble returns the reason.
		_ = s.change(ctx, func(w *writer) error { return w.c.exec("PRAGMA user_version = 0") })
	}
	return s.health.Trouble(time.Now())
}

// enter begins a call. If it returns nil, the caller must call calls.Leave.
func (s *Store) enter(ctx context.Context) error {
	if err := s.health.Failure(); err != nil {
		return err
	}
	return s.calls.Enter(ctx)
}

// read runs do on a connection of the pool. Each statement sees every commit that was answered
// before it began.
func (s *Store) read(ctx context.Context, do func(*conn) error) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
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

// snapshot is like read, but all statements of do see one state of the database.
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

// checkBatch returns Invalid if a slice argument has more than storage.MaxBatch items.
func checkBatch(n int) error {
	if n > storage.MaxBatch {
		return tidemark.Errorf(tidemark.Invalid,
			"%d items are too many for one call, at most %d are allowed", n, storage.MaxBatch)
	}
	return nil
}
