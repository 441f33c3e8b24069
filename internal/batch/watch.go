package batch

import (
	"context"
	"time"
)

// Watcher learns in which batch a call of Do ran. Tag is the caller's. When Do returns answers, Run
// is the batch that gave them. When Do returns an error, Run is nil. A Watcher is for one call at a
// time.
type Watcher struct {
	Tag any
	Run *Run
}

// Run is a batch that somebody watched. It is immutable once it is in a Watcher.
type Run struct {
	Began, Ended time.Time
	// Calls is how many calls shared the batch, and Tags has the tags of those that were watched,
	// which may be of different types.
	Calls int
	Tags  []any
}

// watched is the key of a context's Watcher.
type watched struct{}

// Watch returns a context whose calls of Do report their batch to w.
func Watch(ctx context.Context, w *Watcher) context.Context {
	return context.WithValue(ctx, watched{}, w)
}

// watcherOf returns the Watcher of a call that begins, or nil. It forgets the batch of an earlier
// call.
func watcherOf(ctx context.Context) *Watcher {
	w, _ := ctx.Value(watched{}).(*Watcher)
	if w != nil {
		//rule:trace_to_acknowledgement.forget-the-commit-before
		w.Run = nil
	}
	return w
}

// watch notes the beginning of a batch for the calls that are watched.
func (w *worker[Q, A]) watch() {
	for _, c := range w.calls {
		if c.watcher == nil {
			continue
		}
		if w.seen == nil {
			w.seen = &Run{Began: time.Now(), Calls: len(w.calls)}
		}
		w.seen.Tags = append(w.seen.Tags, c.watcher.Tag)
		c.run = w.seen
	}
}

// unwatch notes the end of a batch, before its calls are answered.
func (w *worker[Q, A]) unwatch() {
	if w.seen != nil {
		w.seen.Ended = time.Now()
		w.seen = nil
	}
}
