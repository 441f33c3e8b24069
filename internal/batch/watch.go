package batch

import (
	"context"
	"time"
)

// Watcher learns in which batch a call of Do ran. Tag is the caller's. Do sets Run before it
// returns what a batch answered, even if that is an error. Otherwise it does not change Run. A
// Watcher is for one call at a time.
type Watcher struct {
	Tag any
	Run *Run
}

// Run is a batch that somebody watched. It is immutable once it is in a Watcher.
type Run struct {
	Began, Ended time.Time
	// Calls is how many calls shared the batch, and Tags has the tags of those that were watched.
	Calls int
	Tags  []any
}

// watched is the key of a context's Watcher.
type watched struct{}

// Watch returns a context whose calls of Do report their batch to w.
func Watch(ctx context.Context, w *Watcher) context.Context {
	return context.WithValue(ctx, watched{}, w)
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
