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
	// maxJobs is how many writes share a commit.
	maxJobs = 512
	// checkpointFrames is the length of the log in pages (16 MiB) at which it is copied into the database file.
	checkpointFrames = 4096
	// restartFrames is the length (128 MiB) from which the writer waits restartMilliseconds for the readers to let go of the log, so that it starts anew.
	restartFrames       = 8 * checkpointFrames
	restartMilliseconds = 100
	// lookEvery is after what time a commit looks again whether the files are still those that are open: two system calls, a sixth of what a lone commit costs.
	lookEvery = 100 * time.Millisecond
)

// A job is one write that waits for a commit. It does its work inside the transaction. It checks by
// reading before it writes anything: an error of the contract means that it wrote nothing. It runs
// again if the first transaction is rolled back.
type job func(*writer) error

// change runs apply in the next commit and returns when that is durable. If ctx ends before, it
// returns Unavailable, and apply may still happen: then its caller must not look at what apply set.
func (s *Store) change(ctx context.Context, apply job) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.door.Leave()
	err, late := s.writes.DoOne(ctx, apply)
	if late != nil {
		return s.health.Late(late)
	}
	return health.Public(err)
}

// write commits a batch of jobs, and returns an error or nil for each.
func (s *Store) write(_ context.Context, collect func() []job) ([]error, error) {
	batch := collect()
	errs := make([]error, len(batch))
	//rule:confirmed_is_durable.commit-before-answer
	s.commit(batch, errs)
	return errs, nil
}

// checkpoint is called by the goroutine that writes, after each batch, when its callers are answered.
func (s *Store) checkpoint() {
	//rule:confirmed_is_durable.room-after-full-disk
	s.health.Checkpoint(func() error { return s.writer.checkpoint(health.Full(s.health.Commit())) })
}

// commit runs the batch in one transaction. If an item turns out to be impossible in the middle,
// each runs in its own. errs has a place for the error of each.
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
	if err == nil && time.Since(s.writer.looked) >= lookEvery {
		//rule:confirmed_is_durable.check-files
		if err = s.files.Intact(); err == nil {
			s.writer.looked = time.Now()
		}
	}
	committing := false
	if err == nil {
		committing, err = s.writer.transaction(batch, errs)
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

// A writer is the connection that writes, and what it knows of the chats. Only the goroutine of Store.writes uses it.
type writer struct {
	c *conn
	// chats is a cache of rows, with what the running transaction changed in them. A rollback empties it.
	chats map[tidemark.ChatID]*chat
	// moved are the chats whose head is not written yet.
	moved []*chat
	// commits counts the transactions that wrote something, each of which cost an fsync.
	commits atomic.Int64
	// committed is Config.Committed; sends and acks are what the running transaction stored and raised.
	committed   func(sends, acks int, took time.Duration)
	sends, acks int
	// looked is when the files were found to be those that are open.
	looked time.Time
	// checkpointAt is the length of the log in pages at which the next checkpoint is due; checkpointEvery is checkpointFrames, but in tests.
	checkpointAt, checkpointEvery int64
}

func newWriter(c *conn) *writer {
	return &writer{c: c, chats: make(map[tidemark.ChatID]*chat), checkpointEvery: checkpointFrames}
}

// transaction runs the batch and commits. After an error nothing of it is in the database, unless committing reports that the commit
// itself failed and health.UnknownOutcome says so. errs gets the errors of the contract.
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
		// A failure leaves the transaction open, and the next BEGIN reports it.
		_ = w.c.exec("ROLLBACK")
	}
}

// checkpoint copies the log into the database file once it is long, or if the disk is full: then the log starts anew in the space that it has. A full disk or a lock
// only puts it off.
func (w *writer) checkpoint(full bool) error {
	frames := w.c.Log().Frames
	if frames < w.checkpointEvery {
		w.checkpointAt = w.checkpointEvery
	}
	if frames < w.checkpointAt && !full {
		return nil
	}
	// While a reader holds on to the log it does not start anew. Then the next try comes after as many pages again.
	w.checkpointAt = frames + w.checkpointEvery
	restart := frames >= restartFrames || full
	if restart {
		w.c.BusyTimeout(restartMilliseconds)
		defer w.c.BusyTimeout(busyMilliseconds)
	}
	if err := w.c.Checkpoint(restart); health.UnknownOutcome(err) {
		return err
	}
	return nil
}
