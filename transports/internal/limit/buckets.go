package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// leastSweep is the least number of users for which looking for idle ones is worth while.
const leastSweep = 1_024

// bucket is what one user may still take on this node.
type bucket struct {
	*rate.Limiter
	// untold is how much he took that the other nodes have not been told of.
	untold int
}

// buckets is a token bucket for each user.
type buckets struct {
	rate     Rate
	maxUsers int
	// telling says that other nodes are told of what was taken, once it is enough of a user's.
	telling bool
	enough  int

	mu    sync.Mutex
	users map[tidemark.UserID]*bucket
	// due are the users of whom there is enough to tell.
	due map[tidemark.UserID]struct{}
	// sweepAt is the number of users at which the idle ones are forgotten.
	sweepAt int
}

func (b *buckets) init(r Rate, maxUsers int, telling bool) {
	b.rate, b.maxUsers, b.telling, b.enough = r, maxUsers, telling, max(1, r.Burst/tellParts)
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
		if b.telling {
			b.owe(user, of, n)
		}
		return nil
	}
	missing := float64(n) - of.TokensAt(now)
	wait := time.Duration(missing / b.rate.PerSecond * float64(time.Second))
	return problem.RetryAfter(tidemark.Errorf(tidemark.Exhausted,
		"more than %g %s a second; send this one again after a pause", b.rate.PerSecond, b.rate.What), wait)
}

// owe notes what the other nodes have to be told. The caller holds mu.
func (b *buckets) owe(user tidemark.UserID, of *bucket, n int) {
	//rule:bounded_use.share-when-enough
	if of.untold += n; of.untold >= b.enough {
		b.due[user] = struct{}{}
	}
}

// makeRoom forgets users whose bucket is full, who are as good as new, when there are many. The caller holds mu.
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
