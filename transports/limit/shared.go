package limit

import (
	"context"
	"math"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// shareInterval is how often the nodes share what users took.
	shareInterval = time.Second
	// shareParts sets how much a user must take before a node shares it: a burst divided by
	// shareParts. So a user who writes at human speed costs the registry few calls, and the
	// amount that other nodes do not know of stays small.
	shareParts = 20
	// shareBatch bounds the users in one call of Shared.Take.
	shareBatch = 1_000
)

// Taken is how much a user took on this node since their last share.
type Taken struct {
	User tidemark.UserID
	N    int
}

// Shared holds the buckets that all nodes share.
type Shared interface {
	// Take takes from the shared buckets what users took on this node. It returns what is left
	// in each, in the order of the argument. It refuses nothing: if a user took too much, what
	// is left is negative. It is +Inf if the value cannot be known now. Take returns
	// Unavailable if no bucket can be reached; then they may or may not have changed.
	Take(ctx context.Context, bucket Bucket, taken []Taken) (left []float64, err error)
}

// Run shares what users took here, and takes from the buckets here what users took on other nodes.
// It does so every second until ctx ends. A user who calls several nodes at once can take at most a
// burst and one second's share from each. After that all nodes deduct the excess, so the user has
// to wait for it. While the shared buckets cannot be reached, each node limits alone, and what
// users took meanwhile is not counted later.
func (l *Limiter) Run(ctx context.Context) {
	if l == nil || l.shared == nil {
		return
	}
	tick := time.NewTicker(shareInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			rates := l.rates.Load()
			for k := range kinds {
				l.share(ctx, rates.user[k])
				l.share(ctx, rates.backend[k])
			}
		case <-ctx.Done():
			return
		}
	}
}

// Counters returns the limiter's metrics (transports.CounterFunc).
func (l *Limiter) Counters() map[string]int64 {
	if l == nil || l.shared == nil {
		return nil
	}
	return map[string]int64{"rates_unpublished_total": l.failures.Load()}
}

func (l *Limiter) share(ctx context.Context, b *buckets) {
	for taken := b.collect(); len(taken) > 0; {
		part := taken[:min(len(taken), shareBatch)]
		taken = taken[len(part):]
		left, err := l.shared.Take(ctx, b.bucket, part)
		if err != nil || len(left) != len(part) {
			l.failures.Add(1)
			continue
		}
		b.debit(part, left)
	}
}

// collect returns what is due to be shared, and counts it as shared.
func (b *buckets) collect() []Taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := make([]Taken, 0, len(b.due))
	for user := range b.due {
		if of := b.users[user]; of != nil {
			taken = append(taken, Taken{User: user, N: of.unshared})
			//rule:bounded_use.share-once
			of.unshared = 0
		}
	}
	clear(b.due)
	return taken
}

// debit lowers each bucket here to what is left for all nodes, less what the user took here since
// collect. It never raises a bucket.
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
		more := int(of.TokensAt(now) - left[i] + float64(of.unshared))
		for more > 0 {
			//rule:bounded_use.reserve-at-most-burst
			n := min(more, b.bucket.Burst) // a reservation may not exceed the burst
			of.ReserveN(now, n)
			more -= n
		}
	}
}
