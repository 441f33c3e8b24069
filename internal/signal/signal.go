// Package signal has a flag by which one goroutine wakes another. It also has waits for a flag, a
// time, or the end of a context.
package signal

import (
	"context"
	"time"
)

// Flag says that there is something to do. Setting a set flag changes nothing, so the goroutine
// that waits looks for itself how much there is. Copies are the same flag. The zero value cannot be
// waited for. Flag is safe for concurrent use.
type Flag struct{ set chan struct{} }

// New returns a flag that is not set.
func New() Flag { return Flag{set: make(chan struct{}, 1)} }

// Set sets the flag. It never blocks.
func (f Flag) Set() {
	select {
	case f.set <- struct{}{}:
	default:
	}
}

// Clear clears the flag. It reports whether the flag was set.
func (f Flag) Clear() bool {
	select {
	case <-f.set:
		return true
	default:
		return false
	}
}

// Wait waits until the flag is set, and clears it. It returns false if ctx ends first.
func (f Flag) Wait(ctx context.Context) bool {
	select {
	case <-f.set:
		return true
	case <-ctx.Done():
		return false
	}
}

// WaitUntil waits until the flag is set, and clears it, or until at. A zero at never comes. set
// reports whether the flag ended the wait. ok is false if ctx ended it.
func (f Flag) WaitUntil(ctx context.Context, at time.Time) (set, ok bool) {
	if at.IsZero() {
		set = f.Wait(ctx)
		return set, set
	}
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-f.set:
		return true, true
	case <-timer.C:
		return false, true
	case <-ctx.Done():
		return false, false
	}
}

// Pause waits for a time. It returns false if ctx ends first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
