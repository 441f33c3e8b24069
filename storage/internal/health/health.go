// Package health remembers how the writes of a store went whose database is elsewhere, and tells readiness of those that failed.
package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// troubleTime is how long a write that failed makes the store unfit, if no other one is tried.
const troubleTime = 5 * time.Second

// Writes knows how the last write of each kind went: on a full disk a watermark may still move, while no message is stored. The zero value is ready;
// it is safe for concurrent use.
type Writes struct {
	mu sync.Mutex
	// failed are the kinds whose last write was not well, and why.
	failed map[string]failure
}

type failure struct {
	err error
	at  time.Time
}

// Written takes in the error of a write of a kind, and returns it. That a caller left says nothing about the database.
func (w *Writes) Written(kind string, err error) error {
	if errors.Is(err, context.Canceled) {
		//rule:confirmed_is_durable.unhealthy-only-for-storage
		return err
	}
	code := tidemark.CodeOf(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if code != tidemark.Unavailable && code != tidemark.Internal {
		//rule:confirmed_is_durable.healthy-per-kind
		delete(w.failed, kind)
		return err
	}
	if w.failed == nil {
		w.failed = map[string]failure{}
	}
	w.failed[kind] = failure{err, time.Now()}
	return err
}

// Trouble returns why writes fail at present, nil if none has lately.
func (w *Writes) Trouble(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.failed {
		if now.Sub(f.at) <= troubleTime {
			return tidemark.Wrap(tidemark.Unavailable, f.err,
				"the last write failed: "+tidemark.DetailOf(f.err))
		}
	}
	return nil
}
