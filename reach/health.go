package reach

import (
	"math/rand/v2"
	"sync"
	"time"
)

// failuresUntilDown is how many deliveries in a row fail before an outlet counts as down.
const failuresUntilDown = 5

// retryAfter are the waits before the attempts after a failure. The last one repeats.
var retryAfter = []time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour,
}

// retryWait returns the wait after the nth failure in a row, from 1, with a jitter of a tenth. It
// is at least what the receiver asked for.
func retryWait(n int, asked time.Duration) time.Duration {
	wait := retryAfter[min(n, len(retryAfter))-1]
	wait += time.Duration(rand.Int64N(int64(wait/5))) - wait/10
	return max(wait, asked)
}

// healthStep is what is thought of a receiver.
type healthStep int

// The steps of a receiver's health.
//
//	step   on success   on failure                     on a late answer   at the time of the retry
//	up     up           up; down after 5 in a row      slow               -
//	slow   slow         slow; down after 5 in a row    slow               up, after a minute
//	down   up           down, with a longer wait       -                  trial
//	trial  up           down, with a longer wait       -                  -
const (
	up healthStep = iota
	// slow receivers get their news by their own backlogs only, so that others need not wait.
	slow
	// down receivers get nothing until the time of the next trial.
	down
	// trial allows one delivery.
	trial
)

// slowFor is how long a receiver counts as slow after a late answer.
const slowFor = time.Minute

// health is a circuit breaker. It is safe for concurrent use.
type health struct {
	mu   sync.Mutex
	step healthStep
	// failures counts those in a row, and since is the time of the first of them.
	failures int
	since    time.Time
	// waits counts the trials that failed. until ends slow or down.
	waits int
	until time.Time
}

// prompt reports whether news may be delivered as it comes.
func (h *health) prompt() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.step == slow && !time.Now().Before(h.until) {
		h.step = up
	}
	return h.step == up
}

// begin reports whether a delivery of a backlog may begin. If not, it returns when to ask again, or
// a zero time while a trial is under way.
func (h *health) begin() (ok bool, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.step == trial:
		return false, time.Time{}
	case h.step == down && time.Now().Before(h.until):
		return false, h.until
	case h.step == down:
		h.step = trial
	}
	return true, time.Time{}
}

// waiting reports whether the receiver is down, and returns since when deliveries fail.
func (h *health) waiting() (is bool, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.step == down || h.step == trial, h.since
}

// late notes that a delivery takes too long for the others to wait.
func (h *health) late() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.step == up || h.step == slow {
		h.step, h.until = slow, time.Now().Add(slowFor)
	}
}

// succeeded notes that the receiver accepted something.
func (h *health) succeeded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures, h.waits, h.since = 0, 0, time.Time{}
	if h.step == down || h.step == trial {
		h.step = up
	}
}

// abandoned notes that a delivery ended without an answer of the receiver's.
func (h *health) abandoned() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.step == trial {
		h.step, h.until = down, time.Now()
	}
}

// failed notes a refusal.
func (h *health) failed(asked time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures++
	if h.since.IsZero() {
		h.since = time.Now()
	}
	switch {
	case h.step == down:
		return // A delivery that began before.
	case h.step != trial && h.failures < failuresUntilDown && asked == 0:
		return
	}
	h.waits++
	h.step, h.until = down, time.Now().Add(retryWait(h.waits, asked))
}
