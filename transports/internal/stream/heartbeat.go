package stream

import (
	"sync"
	"time"
)

// Heartbeat calls a function at intervals for one connection. Each call runs on a short-lived
// goroutine of the connection's group. Between calls it needs a timer and no stack. The zero value
// is ready to use.
type Heartbeat struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// Start makes the first call of f after d. f returns the time until the next call, or 0 to
// end. Start may be called once, for a connection of g that has not been removed.
func (h *Heartbeat) Start(g *Group, d time.Duration, f func() time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	h.timer = time.AfterFunc(d, func() {
		h.mu.Lock()
		if h.stopped {
			h.mu.Unlock()
			return
		}
		// Stop precedes Remove, so the connection still counts and Add does not start from zero.
		g.running.Add(1)
		h.mu.Unlock()
		defer g.running.Done()
		if next := f(); next > 0 {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !h.stopped {
				h.timer.Reset(next)
			}
		}
	})
}

// Stop prevents further calls; a call under way goes on. It must precede Group.Remove.
func (h *Heartbeat) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.timer != nil {
		h.timer.Stop()
	}
}
