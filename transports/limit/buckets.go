package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// leastSweep is the smallest number of users at which makeRoom looks for idle ones.
const leastSweep = 1_024

// bucket holds what one user may still take on this node.
type bucket struct {
	*rate.Limiter
	// unshared is how much the user took since the other nodes last got the count.
	unshared int
}

// buckets holds a token bucket for each user.
type buckets struct {
	rate     Rate
	maxUsers int
	// sharing is true if the nodes share what users take. shareFrom is the least amount that a
	// node shares.
	sharing   bool
	shareFrom int

	mu    sync.Mutex
	users map[tidemark.UserID]*bucket
	// due holds the users who took at least shareFrom since their last share.
	due map[tidemark.UserID]struct{}
	// sweepAt is the number of users at which makeRoom forgets idle ones.
	sweepAt int
}

func (b *buckets) init(r Rate, maxUsers int, sharing bool) {
	b.rate, b.maxUsers, b.sharing, b.shareFrom = r, maxUsers, sharing, max(1, r.Burst/shareParts)
	b.users, b.due = make(map[tidemark.UserID]*bucket), make(map[tidemark.UserID]struct{})
	b.sweepAt = min(leastSweep, maxUsers)
}

func (b *buckets) take(user tidemark.UserID, n int) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.users[user]
	if of == nil {
		b.makeRoom(now)
		//rule:bounded_use.bucket-holds-burst
		of = &bucket{Limiter: rate.NewLimiter(rate.Limit(b.rate.PerSecond), b.rate.Burst)}
		b.users[user] = of
	}
	if of.AllowN(now, n) {
		if b.sharing {
			b.note(user, of, n)
		}
		return nil
	}
	missing := float64(n) - of.TokensAt(now)
	wait := time.Duration(missing / b.rate.PerSecond * float64(time.Second))
	return problem.RetryAfter(tidemark.Errorf(tidemark.Exhausted,
		"more than %g %s a second; send this one again after a pause",
		b.rate.PerSecond, b.rate.What), wait)
}

// note counts what the other nodes do not know of yet. The caller holds mu.
func (b *buckets) note(user tidemark.UserID, of *bucket, n int) {
	//rule:bounded_use.share-when-enough
	if of.unshared += n; of.unshared >= b.shareFrom {
		b.due[user] = struct{}{}
	}
}

// makeRoom forgets users whose bucket is full, once there are sweepAt users. A new bucket is full
// too, so those users lose nothing. If that is not enough, it forgets others until fewer than
// maxUsers are left. The caller holds mu.
func (b *buckets) makeRoom(now time.Time) {
	if len(b.users) < b.sweepAt {
		return
	}
	for user, of := range b.users {
		//rule:bounded_use.forget-full-buckets-only
		if of.TokensAt(now) >= float64(b.rate.Burst) {
			delete(b.users, user)
		}
	}
	for user := range b.users {
		if len(b.users) < b.maxUsers {
			break
		}
		delete(b.users, user)
	}
	b.sweepAt = min(max(leastSweep, 2*len(b.users)), b.maxUsers)
}
