package hook

import (
	"sync"
	"time"
)

const (
	// maxFailures is how many requests in a row may fail before no more are sent for restFor. Then
	// one request shows whether the receiver answers again.
	maxFailures = 5
	restFor     = 5 * time.Second
)

// breaker stops requests to a receiver that does not answer.
//
//	state      a request fails                    one succeeds    restFor passes
//	closed     the maxFailures-th: open           closed          -
//	open       -                                  -               probing, for one request
//	probing    open                               closed          -
type breaker struct {
	mu       sync.Mutex
	state    breakerState
	failures int
	// since is when it opened.
	since time.Time
}

type breakerState uint8

const (
	closed breakerState = iota
	open
	probing
)

// admit reports whether a request may be sent now. The caller reports its outcome to done.
func (b *breaker) admit(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == closed:
		return true
	case b.state == open && now.Sub(b.since) >= restFor:
		b.state = probing
		return true
	}
	return false
}

// done records the outcome of a request.
func (b *breaker) done(now time.Time, failed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.state, b.failures = closed, 0
		return
	}
	b.failures++
	if b.state == probing || b.state == closed && b.failures >= maxFailures {
		b.state, b.since = open, now
	}
}

// resting reports whether no requests are sent.
func (b *breaker) resting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != closed
}
