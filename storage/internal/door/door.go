// Package door counts the calls under way in a store. So Close can wait for them and refuse later
// calls.
package door

import (
	"context"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// A Door lets calls in until Close. The zero value is ready. It is safe for concurrent use.
type Door struct {
	mu     sync.Mutex
	inside int           // calls under way
	closed bool          // refuse new calls
	empty  chan struct{} // made by Close, closed when no call is under way
}

// Enter begins a call. Unavailable: ctx has ended, or Close was called. After nil, the caller must
// call Leave.
func (d *Door) Enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the call ran out of time; try again")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return tidemark.Errorf(tidemark.Unavailable, "the store is closed")
	}
	d.inside++
	return nil
}

// Leave ends a call for which Enter returned nil.
func (d *Door) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
	if d.inside == 0 && d.empty != nil {
		close(d.empty)
	}
}

// Close refuses new calls, and returns when no call is under way. It may be called more than once.
func (d *Door) Close() {
	d.mu.Lock()
	d.closed = true
	if d.empty == nil {
		d.empty = make(chan struct{})
		if d.inside == 0 {
			close(d.empty)
		}
	}
	empty := d.empty
	d.mu.Unlock()
	<-empty
}
