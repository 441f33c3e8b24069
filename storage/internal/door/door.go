// Package door counts the calls under way in a store, so that its Close waits for them and refuses those that come later.
package door

import (
	"context"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// A Door is open at first. The zero value is ready; it is safe for concurrent use.
type Door struct {
	mu     sync.Mutex
	inside int           // calls under way
	closed bool          // refuse new calls
	empty  chan struct{} // made by Close, closed when nobody is inside
}

// Enter begins a call, which Leave ends. Unavailable if the time of ctx is over, or the door is closed.
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

// Leave ends a call that entered.
func (d *Door) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside--
	if d.inside == 0 && d.empty != nil {
		close(d.empty)
	}
}

// Close lets nobody in any more, and waits until nobody is inside. It may be called more than once.
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
