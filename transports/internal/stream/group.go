package stream

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// How clients are told that the server stops: at most goodbyesPerSecond of them, but all within half of the time that there is; and each to come back once all
// have been told, after comeBackFrom and a random part of comeBackWithin, which is longer the more they are. So neither those who heed it nor
// those who come back at once come together.
const (
	goodbyesPerSecond = 1_000
	comeBackFrom      = 500 * time.Millisecond
	comeBackWithin    = 3 * time.Second
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
	members  map[Member]struct{}

	// running counts the members and their goroutines. It is raised from zero only under mu, while not stopping.
	running sync.WaitGroup
}

// Add admits a connection, or reports false once the group is stopping. Remove must follow.
func (g *Group) Add(m Member) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping {
		return false
	}
	if g.members == nil {
		g.members = make(map[Member]struct{})
	}
	g.members[m] = struct{}{}
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
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	var ending sync.WaitGroup
	g.stopAll(ctx, &ending)
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
		for _, m := range g.snapshot() {
			ending.Go(m.Abort)
		}
		<-done
	}
	ending.Wait()
	return err
}

// stopAll stops the members, spread over a time that grows with their number. When ctx ends it stops the rest at once.
func (g *Group) stopAll(ctx context.Context, ending *sync.WaitGroup) {
	members := g.snapshot()
	n := time.Duration(len(members))
	began, spread := time.Now(), n*time.Second/goodbyesPerSecond
	within := comeBackWithin + spread
	if end, limited := ctx.Deadline(); limited {
		spread = max(0, min(spread, end.Sub(began)/2))
	}
	for i, m := range members {
		if wait := spread*time.Duration(i)/n - time.Since(began); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				spread = 0
			}
			timer.Stop()
		}
		left := max(0, spread-time.Since(began))
		ending.Go(func() { m.Stop(left + comeBackFrom + rand.N(within)) })
	}
}

func (g *Group) snapshot() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Member, 0, len(g.members))
	for m := range g.members {
		all = append(all, m)
	}
	return all
}

// Heart calls a function again and again for one connection, each time on a short-lived goroutine of its group; between
// two beats it costs a timer and no stack. The zero value is ready.
type Heart struct {
	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

// Start makes the first beat after d; beat returns the time until the next one, 0 for no further one. It may be called
// once, for a connection of g that has not been removed.
func (h *Heart) Start(g *Group, d time.Duration, beat func() time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return
	}
	h.timer = time.AfterFunc(d, func() {
		h.mu.Lock()
		if h.stopped {
			h.mu.Unlock()
			return
		}
		g.running.Add(1) // the connection is still counted: Stop precedes Remove
		h.mu.Unlock()
		defer g.running.Done()
		if next := beat(); next > 0 {
			h.mu.Lock()
			defer h.mu.Unlock()
			if !h.stopped {
				h.timer.Reset(next)
			}
		}
	})
}

// Stop ends the beats; one that is under way goes on. It must be called before the connection is removed from its group.
func (h *Heart) Stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped = true
	if h.timer != nil {
		h.timer.Stop()
	}
}
