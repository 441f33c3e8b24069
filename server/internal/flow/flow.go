// Package flow is how goroutines of the core wait, tell each other to look, and share work.
package flow

import (
	"context"
	"sync"
	"time"
)

// Pause waits, and reports whether it waited to the end.
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

// Signal sends on a channel that has room for one signal, unless one waits there. It never blocks.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// few items are dealt with one after the other, more by so many goroutines at a time, whose calls of a registry share its round trips.
const (
	few     = 8
	workers = 64
)

// SideBySide calls f for each item, and returns when all calls have.
func SideBySide[T any](items []T, f func(T)) {
	//rule:R_EPOCH.take-leases-in-batches
	if len(items) <= few {
		for _, item := range items {
			f(item)
		}
		return
	}
	var group sync.WaitGroup
	for w := range min(workers, len(items)) {
		group.Go(func() {
			for i := w; i < len(items); i += workers {
				f(items[i])
			}
		})
	}
	group.Wait()
}
