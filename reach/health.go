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

// The steps of a receiver's health. A delivery is late when others need not wait for it any more,
// and abandoned when it ends without an answer.
//
//	step    accepted   refused                    late   abandoned    next, once the wait is over
//	up      up         up; down after 5 in a row  slow   up
//	slow    slow       slow; down after 5         slow   slow         up
//	down    up         down                       down   down         trial, if a delivery begins
//	trial   up         down, with a longer wait   trial  down, and no longer waits
//
// A receiver that asks for a wait is down at its first refusal.
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

// ready reports whether begin would return true.
func (h *health) ready() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readyLocked()
}

// readyLocked is ready. The mutex is held.
func (h *health) readyLocked() bool {
	return h.step != trial && (h.step != down || !time.Now().Before(h.until))
}

// begin reports whether a delivery of a backlog may begin. If the receiver was down, that is the
// trial.
func (h *health) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready := h.readyLocked()
	if ready && h.step == down {
		h.step = trial
	}
	return ready
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
