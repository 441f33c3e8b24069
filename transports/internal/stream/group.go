package stream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// Restarting returns the error for a client that connects while the server stops.
func Restarting() error {
	err := tidemark.Errorf(tidemark.Unavailable, "the server is restarting; try again")
	return problem.RetryAfter(err, retryFrom+rand.N(retryWithin))
}

// Member is a connection that a Group can end. Both methods may be called between Add and Remove
// and shortly after. They may block for as long as a write may.
type Member interface {
	// Stop ends the connection in the way of its transport, and says when the client is to retry.
	Stop(retryAfter time.Duration)
	// Abort drops the connection at once.
	Abort()
}

// Group holds the connections of one adapter and all their goroutines. http.Server.Shutdown does
// not see connections that were taken over, so the adapter ends them itself. The zero value is
// ready to use. It is safe for concurrent use.
type Group struct {
	// Pool has the goroutines that write to the connections.
	Pool signal.Pool

	mu       sync.Mutex
	stopping bool
	// members maps each connection to whether it has its notice to stop.
	members map[Member]bool

	// running counts the members and their goroutines. It grows from zero only under mu and
	// while stopping is false, as sync.WaitGroup requires.
	running sync.WaitGroup
	// ending counts running calls of Stop and Abort. Shutdown waits for them.
	ending sync.WaitGroup
}

// Add admits a connection. It returns false once the group is stopping. If it returns true, the
// caller must call Remove.
func (g *Group) Add(m Member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if g.members == nil {
		g.members = make(map[Member]bool)
	}
	g.members[m] = false
	g.running.Add(1)
	return true
}

// Remove takes a connection out. It must be the last thing that the connection does.
func (g *Group) Remove(m Member) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	g.running.Done()
}

// Go runs f on a goroutine that Shutdown waits for. The caller must be a connection that was added
// and not removed.
func (g *Group) Go(f func()) { g.running.Go(f) }

// Start counts a goroutine that the caller starts itself, to save the stack frame of Go. The
// goroutine must call Done.
func (g *Group) Start() { g.running.Add(1) }

// Done ends what Start began.
func (g *Group) Done() { g.running.Done() }

// Len returns the number of connections.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// Shutdown refuses further connections, stops the present ones one after the other, and waits for
// all goroutines. If ctx ends first, it aborts the rest, still waits, and returns the cause of ctx.
func (g *Group) Shutdown(ctx context.Context) error {
	g.stopAll(ctx, restarting())
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
		for _, m := range g.snapshot(func(bool) bool { return true }) {
			g.ending.Go(m.Abort)
		}
		<-done
	}
	g.ending.Wait()
	g.Pool.Close()
	return err
}

// Drain refuses further connections and stops the present ones one after the other. It is for a
// node whose clients can go to other nodes: each client is asked to return at once. It returns when
// all have their notice, which takes at most within, or when ctx ends. The caller must call
// Shutdown afterwards.
//
//rule:stop_in_order.tell-clients-to-leave
func (g *Group) Drain(ctx context.Context, within time.Duration) {
	g.stopAll(ctx, draining(within))
}

// snapshot returns the members for which pick is true, and records that they have their notice. The
// argument of pick says whether a member already has it.
func (g *Group) snapshot(pick func(noticed bool) bool) []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Member, 0, len(g.members))
	for m, noticed := range g.members {
		if pick(noticed) {
			all = append(all, m)
			//rule:stop_in_order.tell-once
			g.members[m] = true
		}
	}
	return all
}
