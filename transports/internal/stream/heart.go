package stream

import (
	"sync"
	"time"
)

// Heart calls a function again and again for one connection, each time on a short-lived goroutine of its group; between
// two beats it costs a timer and no stack. The zero value is ready.
type Heart struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// Start makes the first beat after d; beat returns the time until the next one, 0 for no further one. It may be called
// once, for a connection of g that has not been removed.
func (h *Heart) Start(g *Group, d time.Duration, beat func() time.Duration) {
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
		g.running.Add(1) // the connection is still counted: Stop precedes Remove
		h.mu.Unlock()
		defer g.running.Done()
		if next := beat(); next > 0 {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !h.stopped {
				h.timer.Reset(next)
			}
		}
	})
}

// Stop ends the beats; one that is under way goes on. It must be called before the connection is removed from its group.
func (h *Heart) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.timer != nil {
		h.timer.Stop()
	}
}
