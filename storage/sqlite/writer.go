package sqlite

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/capi"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

const (
	// maxJobs is the default of Config.Batch, the most writes that share a commit.
	maxJobs = 512
	// checkpointFrames is the length of the log, in pages, from which it is copied into the
	// database file: 16 MiB.
	checkpointFrames = 4096
	// restartFrames is the length of the log, in pages, from which the writer waits for the readers
	// to release it: 128 MiB. It waits at most restartMilliseconds. Then the log can restart at its
	// beginning.
	restartFrames       = 8 * checkpointFrames
	restartMilliseconds = 100
	// lookEvery is the minimum time between two checks of both open files. Besides, before and
	// after each commit one system call checks whether the database file was moved, replaced or
	// overwritten.
	lookEvery = 100 * time.Millisecond
)

// job is one write that waits for a commit. It runs inside the transaction. It reads and checks
// before it writes: if it returns an error of the contract, it wrote nothing. It runs again if the
// first transaction is rolled back.
type job func(*writer) error

// change runs apply in the next commit, and returns when that is durable. If ctx ends earlier, it
// returns Unavailable, and apply may still run. Then the caller must not read what apply sets.
func (s *Store) change(ctx context.Context, apply job) error {
	if s.writer == nil {
		return readOnly()
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.calls.Leave()
	err, late := s.writes.DoOne(ctx, apply)
	if late != nil {
		return s.health.Late(late)
	}
	return health.Public(err)
}

// write commits a batch of jobs. It returns an error or nil for each.
func (s *Store) write(_ context.Context, collect func() []job) ([]error, error) {
	batch := collect()
	errs := make([]error, len(batch))
	//rule:confirmed_is_durable.commit-before-answer
	s.commit(batch, errs)
	return errs, nil
}

// checkpoint runs on the goroutine that writes, after each batch, when its callers have their
// answers.
func (s *Store) checkpoint() {
	s.health.Checkpoint(func() error {
		if s.files.Unchanged() != nil {
			return nil // the next commit says why
		}
		//rule:confirmed_is_durable.room-after-full-disk
		ran, err := s.writer.checkpoint(health.Full(s.health.Commit()))
		if ran {
			_ = s.files.Written() // if the file is gone, the next commit says so
		}
		return err
	})
}

// keepLog keeps the log out of a database file that was overwritten: Close does not copy it, and
// the next Open is refused.
func (s *Store) keepLog() {
	s.keep.Do(func() {
		s.writer.c.KeepLog()
		_ = noteSpoiled(s.lock, s.files.Log) // a failure leaves the note of before
	})
}

// commit runs the batch in one transaction. If SQLite rejects a statement of one item, each item
// runs in its own transaction. It sets the error of each item in errs.
func (s *Store) commit(batch []job, errs []error) {
	err := s.attempt(batch, errs)
	//rule:confirmed_is_durable.write-items-alone
	if err == nil || len(batch) == 1 || !health.ItemsFault(err) {
		return
	}
	for i := range batch {
		_ = s.attempt(batch[i:i+1], errs[i:i+1]) // The item has the error.
	}
}

func (s *Store) attempt(batch []job, errs []error) error {
	err := s.health.Begin()
	if err == nil {
		err = s.files.Unchanged()
	}
	if err == nil && time.Since(s.writer.looked) >= lookEvery {
		//rule:confirmed_is_durable.check-files
		if err = s.files.Intact(); err == nil {
			s.writer.looked = time.Now()
		}
	}
	committing := false
	if err == nil {
		committing, err = s.writer.transaction(batch, errs)
		if err == nil {
			// What was written into a file that is gone is not confirmed.
			//rule:confirmed_is_durable.confirm-nothing-in-replaced-file
			committing, err = false, s.files.Unchanged()
		}
		if err == nil {
			//rule:confirmed_is_durable.follow-the-log
			err = s.files.Logged()
		}
	}
	if s.files.Spoiled() {
		//rule:confirmed_is_durable.keep-log-of-overwritten-file
		s.keepLog()
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		//rule:confirmed_is_durable.end-store-after-failed-fsync
		if committing && health.UnknownOutcome(err) {
			s.health.Fail(err)
		}
	}
	s.health.End(err)
	return err
}

// writer is the connection that writes, with its cache of chats. Only the goroutine of Store.writes
// uses it.
type writer struct {
	c *conn
	// life is the number of the present life of the data. It does not change.
	life int64
	// chats caches rows, with the changes of the running transaction. A rollback empties it.
	chats map[tidemark.ChatID]*chat
	// moved holds the chats whose new head is not written yet.
	moved []*chat
	// rows is the last RowsVersion that a chat got.
	rows uint64
	// commits counts the transactions that wrote something. Each one cost an fsync.
	commits atomic.Int64
	// committed is Config.Committed. sends and acks count what the running transaction stored and
	// raised.
	committed   func(sends, acks int, took time.Duration)
	sends, acks int
	// looked is the time of the last successful check of the files.
	looked time.Time
	// checkpointAt is the length of the log, in pages, from which the next checkpoint is due.
	// checkpointEvery is checkpointFrames, except in tests.
	checkpointAt, checkpointEvery int64
}

func newWriter(c *conn) *writer {
	return &writer{c: c, chats: make(map[tidemark.ChatID]*chat), checkpointEvery: checkpointFrames}
}

// transaction runs the batch and commits. It sets the errors of the contract in errs. After an
// error, nothing of the batch is in the database. The exception is a failed commit: committing is
// true then, and health.UnknownOutcome reports whether the result is unknown.
func (w *writer) transaction(batch []job, errs []error) (committing bool, err error) {
	defer func() {
		if err != nil {
			w.rollback()
		}
	}()
	if len(w.chats) > maxChats {
		clear(w.chats)
	}
	began := time.Now()
	//rule:metrics_documented.reset-counts-of-commit
	w.sends, w.acks = 0, 0
	if err := w.c.exec("BEGIN IMMEDIATE"); err != nil {
		return false, err
	}
	for i, apply := range batch {
		errs[i] = apply(w)
		var f *capi.Failure
		if errors.As(errs[i], &f) {
			return false, errs[i]
		}
	}
	if err := w.flush(); err != nil {
		return false, err
	}
	err = w.c.exec("COMMIT")
	if n := w.c.Log().Commits; w.commits.Swap(n) != n && w.committed != nil {
		w.committed(w.sends, w.acks, time.Since(began))
	}
	return true, err
}

func (w *writer) rollback() {
	//rule:sequence_gapless.forget-heads-after-rollback
	clear(w.chats)
	//rule:sequence_gapless.forget-moved-heads-after-rollback
	w.moved = w.moved[:0]
	if w.c.InTransaction() {
		// If this fails, the transaction stays open, and the next BEGIN returns an error.
		_ = w.c.exec("ROLLBACK")
	}
}

// checkpoint copies the log into the database file if the log is long, or if full says that the
// disk is full. Then the log restarts within the space that it has. If the disk is full or locked,
// the checkpoint is tried again later. ran reports whether it was tried.
func (w *writer) checkpoint(full bool) (ran bool, err error) {
	frames := w.c.Log().Frames
	if frames < w.checkpointEvery {
		w.checkpointAt = w.checkpointEvery
	}
	if frames < w.checkpointAt && !full {
		return false, nil
	}
	// The log cannot restart while a reader uses it. Then the next try comes after as many pages
	// again.
	w.checkpointAt = frames + w.checkpointEvery
	restart := frames >= restartFrames || full
	if restart {
		w.c.BusyTimeout(restartMilliseconds)
		defer w.c.BusyTimeout(busyMilliseconds)
	}
	if err := w.c.Checkpoint(restart); health.UnknownOutcome(err) {
		return true, err
	}
	return true, nil
}
