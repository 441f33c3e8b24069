package stream

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
)

// How clients are told that the server stops: at most goodbyesPerSecond of them, but all within half of the time that there is; and each to come back once all
// have been told, after comeBackFrom and a random part of comeBackWithin, which is longer the more they are. So neither those who heed it nor
// those who come back at once come together.
const (
	goodbyesPerSecond = 1_000
	comeBackFrom      = 500 * time.Millisecond
	comeBackWithin    = 3 * time.Second
)

// How they are told that this node stops and others go on: at most leavesPerSecond of them, unless the time is too short for that; and each to come back
// at once, after a random part of elsewhereWithin. The others have to open sessions for them, or take them over, and are to serve their own meanwhile.
const (
	leavesPerSecond = 100
	elsewhereWithin = 500 * time.Millisecond
)

// farewell is a way of telling many clients one after the other to go.
type farewell struct {
	// spread is the time in which so many are told, at the most until ctx ends.
	spread func(ctx context.Context, n time.Duration) time.Duration
	// comeBack is when one of n is to come back, when all will have been told after left.
	comeBack func(left, n time.Duration) time.Duration
}

// returning is the farewell of a server that comes back.
func returning() farewell {
	return farewell{
		spread: func(ctx context.Context, n time.Duration) time.Duration {
			spread := n * time.Second / goodbyesPerSecond
			if end, limited := ctx.Deadline(); limited {
				spread = max(0, min(spread, time.Until(end)/2))
			}
			return spread
		},
		comeBack: func(left, n time.Duration) time.Duration {
			//rule:stop_in_order.spread-returns
			return left + comeBackFrom + rand.N(comeBackWithin+n*time.Second/goodbyesPerSecond)
		},
	}
}

// leaving is the farewell of a node whose clients go to other nodes.
func leaving(within time.Duration) farewell {
	return farewell{
		spread: func(_ context.Context, n time.Duration) time.Duration {
			//rule:stop_in_order.limit-drain-time
			return min(n*time.Second/leavesPerSecond, within)
		},
		comeBack: func(_, _ time.Duration) time.Duration { return max(time.Millisecond, rand.N(elsewhereWithin)) },
	}
}

// stopAll refuses further members and stops the present ones that were not told yet. When ctx ends it stops the rest at once.
func (g *Group) stopAll(ctx context.Context, how farewell) {
	g.mu.Lock()
	g.stopping = true
	g.mu.Unlock()
	members := g.snapshot(func(told bool) bool { return !told })
	n := time.Duration(len(members))
	began, spread := time.Now(), how.spread(ctx, n)
	for i, m := range members {
		//rule:stop_in_order.spread-notices
		if wait := spread*time.Duration(i)/n - time.Since(began); wait > 0 {
			if !signal.Pause(ctx, wait) {
				spread = 0
			}
		}
		left := max(0, spread-time.Since(began))
		g.ending.Go(func() { m.Stop(how.comeBack(left, n)) })
	}
}
