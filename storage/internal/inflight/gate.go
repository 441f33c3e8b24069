// Package inflight counts the calls under way in a store, so that Close can wait for them and
// refuse later ones.
package inflight

import (
	"context"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// A Gate lets calls in until Close. The zero value is ready. It is safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	inside int           // calls under way
	closed bool          // refuse new calls
	empty  chan struct{} // made by Close, closed when no call is under way
}

// Enter begins a call. Unavailable: ctx has ended, or Close was called. After nil, the caller must
// call Leave.
func (g *Gate) Enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err, "the call ran out of time; try again")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return tidemark.Errorf(tidemark.Unavailable, "the store is closed")
	}
	g.inside++
	return nil
}

// Leave ends a call for which Enter returned nil.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside--
	if g.inside == 0 && g.empty != nil {
		close(g.empty)
	}
}

// Close refuses new calls, and returns when no call is under way. It may be called more than once.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	if g.empty == nil {
		g.empty = make(chan struct{})
		if g.inside == 0 {
			close(g.empty)
		}
	}
	empty := g.empty
	g.mu.Unlock()
	<-empty
}
