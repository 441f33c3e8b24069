package limit

import (
	"context"
	"math"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// tellEvery is how often the nodes tell each other of what users took.
	tellEvery = time.Second
	// tellParts is how many parts a burst has: of a user who took less than one of them since he was last told of, nothing is told yet. So those who
	// write as people do cost the registry nothing, and what is not told can never be much.
	tellParts = 20
	// tellAtOnce bounds the users that are told of in one call.
	tellAtOnce = 1_000
)

// Rate is the rule of a bucket: how much a user may take lastingly, and at once. What says of what.
type Rate struct {
	What      string
	PerSecond float64
	Burst     int
}

// Taken is how much a user took on this node.
type Taken struct {
	User tidemark.UserID
	N    int
}

// Shared is the buckets that all nodes have together.
type Shared interface {
	// Take takes from the users' shared buckets what they took on this node, and returns what is left in each, in the order of the argument. It refuses
	// nobody: who took too much is in debt, and what is left is negative; infinite is what cannot be known now. Unavailable if none can be reached; whether they
	// were changed is not known.
	Take(ctx context.Context, rate Rate, taken []Taken) (left []float64, err error)
}

// Run tells the other nodes every second of what users took here, and debits here what they took elsewhere, until ctx ends. A user who calls several
// nodes at once can take at most a burst and a second's share from each before they know of each other, once; then he is in debt for it. While the
// shared buckets cannot be reached each node limits alone, and what was taken meanwhile is forgiven.
func (l *Limiter) Run(ctx context.Context) {
	if l == nil || l.shared == nil {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.tell(ctx, &l.sends)
			l.tell(ctx, &l.calls)
		case <-ctx.Done():
			return
		}
	}
}

// Counters returns what was counted (transports.CounterFunc).
func (l *Limiter) Counters() map[string]int64 {
	if l == nil || l.shared == nil {
		return nil
	}
	return map[string]int64{"rates_unpublished_total": l.failures.Load()}
}

func (l *Limiter) tell(ctx context.Context, b *buckets) {
	for taken := b.collect(); len(taken) > 0; {
		part := taken[:min(len(taken), tellAtOnce)]
		taken = taken[len(part):]
		left, err := l.shared.Take(ctx, b.rate, part)
		if err != nil || len(left) != len(part) {
			l.failures.Add(1)
			continue
		}
		b.debit(part, left)
	}
}

// collect returns what is to be told, and counts it as told.
func (b *buckets) collect() []Taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := make([]Taken, 0, len(b.due))
	for user := range b.due {
		if of := b.users[user]; of != nil {
			taken = append(taken, Taken{User: user, N: of.untold})
			//rule:bounded_use.share-once
			of.untold = 0
		}
	}
	clear(b.due)
	return taken
}

// debit takes from each bucket here what it has more than is left for all nodes, less what was taken here since that was told. It never gives.
func (b *buckets) debit(taken []Taken, left []float64) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, t := range taken {
		of := b.users[t.User]
		if of == nil || math.IsInf(left[i], 1) {
			continue
		}
		//rule:bounded_use.count-own-since-shared
		more := int(of.TokensAt(now) - left[i] + float64(of.untold))
		for more > 0 {
			//rule:bounded_use.reserve-at-most-burst
			n := min(more, b.rate.Burst) // as many as one reservation may take
			of.ReserveN(now, n)
			more -= n
		}
	}
}
