package call

import (
	"context"
	"time"
)

// progressKey is the context key of the function that Progress calls.
type progressKey struct{}

// WithPatience returns a context that ends when ctx ends, or after patience without a call of
// Progress. It bounds a call of many parts: each part has that time, whatever their number. The
// caller must call cancel when the work is done.
func WithPatience(ctx context.Context, patience time.Duration) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { end(context.DeadlineExceeded) })
	progress := func() {
		if ctx.Err() == nil {
			timer.Reset(patience)
		}
	}
	return context.WithValue(ctx, progressKey{}, progress), func() {
		end(nil)
		timer.Stop()
	}
}

// Progress records that a part of the work is completed, and restarts the patience of ctx. An
// attempt that must be repeated is no progress. Progress does nothing if ctx does not come from
// WithPatience.
func Progress(ctx context.Context) {
	if progress, ok := ctx.Value(progressKey{}).(func()); ok {
		progress()
	}
}
