// Package health maps SQLite's errors to the contract, and derives from them whether the database
// works.
package health

import (
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// StuckAfter is the duration of a commit from which the store is not ready.
	StuckAfter = 2 * time.Second
	// unreadableFor is how long the store is not ready after a failed read. Only other reads would
	// show earlier whether the disk works again.
	unreadableFor = 10 * time.Second
	// fullFor is how long the store is not ready after a commit found the disk full, unless a
	// commit succeeds. A trial write of one page does not show whether larger writes fit. fullFor
	// is longer than the core waits before it repeats a refused write.
	fullFor = 2 * time.Second
)

// Health records the results of calls to a database. Create it with New. It is safe for concurrent
// use.
type Health struct {
	failed chan struct{}

	mu sync.Mutex
	// broken is the argument of the first Fail.
	broken error
	// damaged is the first error that shows a corrupt database. It is never cleared: nothing is
	// written any more, to prevent further damage.
	damaged error
	// commit is the error of the latest commit, nil if it succeeded, and commitAt is its time.
	// began is the start of the current commit or checkpoint, zero if there is none.
	commit   error
	commitAt time.Time
	began    time.Time
	// unreadable is the latest read error of the disk.
	unreadable   error
	unreadableAt time.Time
}

// New returns the Health of a database that was just opened.
func New() *Health { return &Health{failed: make(chan struct{})} }

// Failed is closed by Fail.
func (h *Health) Failed() <-chan struct{} { return h.failed }

// Begin records the start of a commit. It returns an error if nothing may be written.
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

// End records the result of the commit that Begin started.
func (h *Health) End(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = time.Time{}
	if h.commit = nil; !ItemsFault(err) {
		h.commit, h.commitAt = err, time.Now()
	}
	h.noteLocked(err)
}

// Checkpoint runs a checkpoint, for which all writes wait, as for a commit. If do fails, the store
// fails for the rest of its life.
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

// Read records the result of a read.
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

// Fail ends the store. It cannot be used again.
func (h *Health) Fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = err
		close(h.failed)
	}
}

// Failure returns the error of Fail, or nil if Fail was not called.
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

// WorthATrial reports whether the latest commit failed, and a small write can show whether writes
// succeed now.
func (h *Health) WorthATrial(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commit != nil && (!Full(h.commit) || now.Sub(h.commitAt) >= fullFor)
}

// Committing returns how long the current commit or checkpoint has been running, or 0 if there is
// none.
func (h *Health) Committing() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		return 0
	}
	return time.Since(h.began)
}

// Trouble returns why the store is not ready at now, or nil if no reason is known.
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
			"the disk of the database has not finished a write for %d seconds; look into the "+
				"system's log",
			int(now.Sub(h.began).Seconds()))
	case h.unreadable != nil && now.Sub(h.unreadableAt) < unreadableFor:
		return Public(h.unreadable)
	default:
		return nil
	}
}

// Late returns the error of a call whose time is over. It adds the reason why the database is not
// ready, if there is one.
func (h *Health) Late(err error) error {
	if trouble := h.Trouble(time.Now()); trouble != nil {
		detail := tidemark.DetailOf(err) + ": " + tidemark.DetailOf(trouble)
		return tidemark.Wrap(tidemark.Unavailable, trouble, detail)
	}
	return err
}

func errBroken(err error) error {
	return tidemark.Wrap(tidemark.Unavailable, err,
		"the disk of the database failed; check it, and start the server again")
}
