// Package signal is how one goroutine tells another that there is something to do, and how
// goroutines wait for that, for a time, or for the end of a context.
package signal

import (
	"context"
	"time"
)

// Flag says that there is something to do. Setting it twice is setting it once: the goroutine that
// waits looks for itself how much there is. The zero value is a flag that nobody waits for.
// Copies are the same flag. It is safe for concurrent use.
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

// Clear clears the flag, and reports whether it was set.
func (f Flag) Clear() bool {
	select {
	case <-f.set:
		return true
	default:
		return false
	}
}

// C returns a channel for a select of more than Wait and WaitUntil know. Receiving from it clears
// the flag.
func (f Flag) C() <-chan struct{} { return f.set }

// Wait waits until the flag is set, and clears it. It returns false if ctx ends first.
func (f Flag) Wait(ctx context.Context) bool {
	select {
	case <-f.set:
		return true
	case <-ctx.Done():
		return false
	}
}

// WaitUntil waits until the flag is set, and clears it, or until a time. Of the zero time there is
// no end. set reports whether the flag ended the wait, and ok is false if ctx did.
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
