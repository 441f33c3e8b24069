// Package health records how the last writes to a remote database went. Readiness checks use it.
package health

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// troubleTime is how long the store is not ready after a failed write, unless a later write of its
// kind succeeds or is refused.
const troubleTime = 5 * time.Second

// Writes records the result of the last write of each kind. Kinds are separate because, on a full
// disk, a watermark may still move while no message is stored. The zero value is ready. It is safe
// for concurrent use.
type Writes struct {
	mu sync.Mutex
	// failed holds the kinds whose last write failed, with the error and its time.
	failed map[string]failure
}

type failure struct {
	err error
	at  time.Time
}

// Written records the result of a write of a kind, and returns err. It ignores a write whose caller
// canceled it: that says nothing about the database.
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

// Trouble returns Unavailable if the last write of a kind failed within troubleTime before now, and
// nil otherwise.
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
