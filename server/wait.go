package server

import (
	"context"
	"time"
)

// signal sends on a channel that has room for one signal, unless one waits there. It never blocks, on a nil channel either.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait returns when the signal came or, if timed, after a time at the latest. It reports whether ctx goes on.
func wait(ctx context.Context, signal <-chan struct{}, after time.Duration, timed bool) bool {
	var over <-chan time.Time
	if timed {
		timer := time.NewTimer(after)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-signal:
		return true
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause waits, and reports whether it waited to the end.
func pause(ctx context.Context, d time.Duration) bool {
	wait(ctx, nil, d, true)
	return ctx.Err() == nil
}
