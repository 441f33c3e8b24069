package stream

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
)

// How a server that stops and comes back ends its connections. At most noticesPerSecond clients get
// a notice, but all get one within half of the time left. Each client is asked to return after the
// last notice: after retryFrom and a random part of retryWithin, which grows with the number of
// clients. So clients do not return together, whether they respect that time or not.
const (
	noticesPerSecond = 1_000
	retryFrom        = 500 * time.Millisecond
	retryWithin      = 3 * time.Second
)

// How a node that stops while others go on ends its connections. At most drainsPerSecond clients
// get a notice, unless the time is too short. Each client is asked to return at once, after a
// random part of reconnectWithin. The other nodes open or take over their sessions and still have
// to serve their own clients.
const (
	drainsPerSecond = 100
	reconnectWithin = 500 * time.Millisecond
)

// schedule says when clients get their notices and when they are to return.
type schedule struct {
	// spread returns the time over which n clients get their notices. ctx bounds it.
	spread func(ctx context.Context, n time.Duration) time.Duration
	// retryAfter returns when one of n clients is to return, if the last notice goes out in
	// left.
	retryAfter func(left, n time.Duration) time.Duration
}

// restarting returns the schedule of a server that comes back.
func restarting() schedule {
	return schedule{
		spread: func(ctx context.Context, n time.Duration) time.Duration {
			spread := n * time.Second / noticesPerSecond
			if end, limited := ctx.Deadline(); limited {
				spread = max(0, min(spread, time.Until(end)/2))
			}
			return spread
		},
		retryAfter: func(left, n time.Duration) time.Duration {
			//rule:stop_in_order.spread-returns
			return left + retryFrom + rand.N(retryWithin+n*time.Second/noticesPerSecond)
		},
	}
}

// draining returns the schedule of a node whose clients go to other nodes.
func draining(within time.Duration) schedule {
	return schedule{
		spread: func(_ context.Context, n time.Duration) time.Duration {
			//rule:stop_in_order.limit-drain-time
			return min(n*time.Second/drainsPerSecond, within)
		},
		retryAfter: func(_, _ time.Duration) time.Duration {
			return max(time.Millisecond, rand.N(reconnectWithin))
		},
	}
}

// stopAll refuses further members and stops those that have no notice yet. When ctx ends it stops
// the rest at once.
func (g *Group) stopAll(ctx context.Context, s schedule) {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	members := g.snapshot(func(noticed bool) bool { return !noticed })
	n := time.Duration(len(members))
	began, spread := time.Now(), s.spread(ctx, n)
	for i, m := range members {
		//rule:stop_in_order.spread-notices
		if wait := spread*time.Duration(i)/n - time.Since(began); wait > 0 {
			if !signal.Pause(ctx, wait) {
				spread = 0
			}
		}
		left := max(0, spread-time.Since(began))
		g.ending.Go(func() { m.Stop(s.retryAfter(left, n)) })
	}
}
