package stream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// Restarting is what a client is told that comes while the server stops.
func Restarting() error {
	err := tidemark.Errorf(tidemark.Unavailable, "the server is restarting; try again")
	return problem.RetryAfter(err, comeBackFrom+rand.N(comeBackWithin))
}

// Member is a connection that a Group can end. Both methods may be called at any time between Add and Remove, and somewhat
// later, and may block as long as a write may.
type Member interface {
	// Stop ends the connection as the transport says goodbye when the server stops, and tells the client after what time to come back.
	Stop(comeBack time.Duration)
	// Abort drops the connection at once.
	Abort()
}

// Group is the connections of one adapter and all their goroutines. http.Server.Shutdown does not see connections that
// were taken over, so the adapter ends them itself. The zero value is ready.
type Group struct {
	mu       sync.Mutex
	stopping bool
	// members are true once they have been told to go.
	members map[Member]bool

	// running counts the members and their goroutines. It is raised from zero only under mu, while not stopping.
	running sync.WaitGroup
	// ending counts the calls of Stop and Abort. Shutdown waits for them.
	ending sync.WaitGroup
}

// Add admits a connection, or reports false once the group is stopping. Remove must follow.
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

// Remove takes a connection out, as the last thing that it does.
func (g *Group) Remove(m Member) {
	g.mu.Lock()
	delete(g.members, m)
	g.mu.Unlock()
	g.running.Done()
}

// Go runs f on a goroutine that Shutdown waits for. It may be called only for a connection that was added and not removed.
func (g *Group) Go(f func()) { g.running.Go(f) }

// Start counts a goroutine that the caller starts itself, because even the frame of Go would be too much for its stack. Done follows.
func (g *Group) Start() { g.running.Add(1) }

// Done ends what Start began.
func (g *Group) Done() { g.running.Done() }

// Len returns the number of connections.
func (g *Group) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// Shutdown refuses further connections, stops the present ones, one after the other, and waits for all goroutines. When ctx ends first it
// aborts them, still waits, and returns the error of ctx.
func (g *Group) Shutdown(ctx context.Context) error {
	g.stopAll(ctx, returning())
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
	return err
}

// Drain refuses further connections and stops the present ones, one after the other, while other nodes are there to take them: each is told to come back at
// once. It returns when all have been told, within the time or when ctx ends. Shutdown has to follow.
//
//rule:stop_in_order.tell-clients-to-leave
func (g *Group) Drain(ctx context.Context, within time.Duration) { g.stopAll(ctx, leaving(within)) }

// snapshot returns the members of whom told, which says whether they have been told to go, is true, and notes that they have.
func (g *Group) snapshot(told func(bool) bool) []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Member, 0, len(g.members))
	for m, was := range g.members {
		if told(was) {
			all = append(all, m)
			//rule:stop_in_order.tell-once
			g.members[m] = true
		}
	}
	return all
}
