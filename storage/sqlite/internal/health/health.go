// Package health knows what SQLite's errors mean, and how a database is doing as far as its errors tell.
package health

import (
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// StuckAfter is how long a commit may take before the store counts as not ready.
	StuckAfter = 2 * time.Second
	// unreadableFor is how long the store counts as not ready after a read failed: what is asked for tells no earlier whether others fail too.
	unreadableFor = 10 * time.Second
	// fullFor is how long the store counts as not ready after a commit found the disk full, if none succeeds meanwhile. A trial write of one page says
	// nothing of those that need more. It is longer than the core's pause before it tries again what was refused.
	fullFor = 2 * time.Second
)

// Health is what the calls have told about a database and its disk. Use New. It is safe for concurrent use.
type Health struct {
	failed chan struct{}

	mu sync.Mutex
	// broken is the argument of Fail.
	broken error
	// damaged is the first sign of a corrupt database. It stays: nothing is written any more, lest it gets worse.
	damaged error
	// commit is the error of the latest commit, nil if it succeeded, and commitAt its time; began is when the present commit or checkpoint began, zero if there is none.
	commit   error
	commitAt time.Time
	began    time.Time
	// unreadable is the latest read that the disk failed.
	unreadable   error
	unreadableAt time.Time
}

// New returns the health of a database that was opened just now.
func New() *Health { return &Health{failed: make(chan struct{})} }

// Failed is closed by Fail.
func (h *Health) Failed() <-chan struct{} { return h.failed }

// Begin begins a commit, unless nothing may be written.
func (h *Health) Begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken != nil {
		return errBroken(h.broken)
	}
	h.began = time.Now()
	//rule:confirmed_is_durable.refuse-when-damaged
	return h.damaged
}

// End ends the commit that began.
func (h *Health) End(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Time{}
	if h.commit = nil; !ItemsFault(err) {
		h.commit, h.commitAt = err, time.Now()
	}
	h.noteLocked(err)
}

// Checkpoint runs a checkpoint, for which everybody's writes wait as for a commit. If do fails the store has ended.
func (h *Health) Checkpoint(do func() error) {
	h.mu.Lock()
	//rule:confirmed_is_durable.time-checkpoint
	h.began = time.Now()
	h.mu.Unlock()
	err := do()
	h.mu.Lock()
	h.began = time.Time{}
	h.mu.Unlock()
	if err != nil {
		h.Fail(err)
	}
}

// Read takes note of what became of a read.
func (h *Health) Read(err error) {
	if err == nil || primary(err) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if UnknownOutcome(err) {
		h.unreadable, h.unreadableAt = err, time.Now()
	}
	h.noteLocked(err)
}

func (h *Health) noteLocked(err error) {
	if h.damaged == nil && corrupt(err) {
		h.damaged = err
	}
}

// Fail ends the store for good.
func (h *Health) Fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = err
		close(h.failed)
	}
}

// Failure returns why the store has ended for good, nil if it has not.
func (h *Health) Failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		return nil
	}
	return errBroken(h.broken)
}

// Commit returns the error of the latest commit.
func (h *Health) Commit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commit
}

// WorthATrial reports whether the latest commit failed, and a small write can tell whether others would succeed now.
func (h *Health) WorthATrial(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commit != nil && (!Full(h.commit) || now.Sub(h.commitAt) >= fullFor)
}

// Committing returns how long the present commit or checkpoint has been under way, 0 if there is none.
func (h *Health) Committing() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		return 0
	}
	return time.Since(h.began)
}

// Trouble returns what keeps the store from serving, as far as that is known, nil if nothing is.
func (h *Health) Trouble(now time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.damaged != nil:
		return Public(h.damaged)
	case h.commit != nil:
		return Public(h.commit)
	case !h.began.IsZero() && now.Sub(h.began) >= StuckAfter:
		return tidemark.Errorf(tidemark.Unavailable,
			"the disk of the database has not finished a write for %d seconds",
			int(now.Sub(h.began).Seconds()))
	case h.unreadable != nil && now.Sub(h.unreadableAt) < unreadableFor:
		return Public(h.unreadable)
	default:
		return nil
	}
}

// Late adds to the error of a call whose time is over what is wrong with the database, if anything is.
func (h *Health) Late(err error) error {
	if trouble := h.Trouble(time.Now()); trouble != nil {
		detail := tidemark.DetailOf(err) + ": " + tidemark.DetailOf(trouble)
		return tidemark.Wrap(tidemark.Unavailable, trouble, detail)
	}
	return err
}

func errBroken(err error) error {
	return tidemark.Wrap(tidemark.Unavailable, err,
		"the disk of the database failed; the server has to be started again")
}
