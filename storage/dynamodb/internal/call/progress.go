package call

import (
	"context"
	"time"
)

// progressKey is where a context keeps the function that Progress calls.
type progressKey struct{}

// WithPatience returns a context that ends when ctx ends, or after patience without a call of
// Progress. It bounds a call of many parts: each part has that time, whatever their number.
// The caller must call cancel when the work is done.
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

// Progress says that a part of the work of ctx is done for good: the time for the next part
// begins. An attempt that has to be made again is no progress. It does nothing if ctx is not of
// WithPatience.
func Progress(ctx context.Context) {
	if progress, ok := ctx.Value(progressKey{}).(func()); ok {
		progress()
	}
}
