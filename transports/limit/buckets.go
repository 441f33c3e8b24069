package limit

import (
	"fmt"
	"math"
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
	bucket Bucket
	// policy is the field RateLimit-Policy of all answers.
	policy   []string
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

func newBuckets(of Bucket, maxUsers int, sharing bool) *buckets {
	return &buckets{
		bucket: of, maxUsers: maxUsers,
		sharing: sharing, shareFrom: max(1, of.Burst/shareParts),
		policy: []string{fmt.Sprintf("%q;q=%d;w=%.0f", of.Name, of.Burst,
			math.Ceil(float64(of.Burst)/of.PerSecond))},
		users: make(map[tidemark.UserID]*bucket), due: make(map[tidemark.UserID]struct{}),
		sweepAt: min(leastSweep, maxUsers),
	}
}

// take counts n. An n above the burst counts as the burst: a call that costs more waits for a full
// bucket, and is not refused for ever.
func (b *buckets) take(user tidemark.UserID, n int) (Quota, error) {
	if b.bucket.Rate == Unlimited {
		return Quota{}, nil
	}
	//rule:bounded_use.large-costs-take-all
	n = min(n, b.bucket.Burst)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	of := b.users[user]
	if of == nil {
		b.makeRoom(now)
		//rule:bounded_use.bucket-holds-burst
		of = &bucket{Limiter: rate.NewLimiter(rate.Limit(b.bucket.PerSecond), b.bucket.Burst)}
		b.users[user] = of
	}
	if of.AllowN(now, n) {
		if b.sharing {
			b.note(user, of, n)
		}
		return Quota{of: b, left: of.TokensAt(now)}, nil
	}
	left := of.TokensAt(now)
	wait := time.Duration((float64(n) - left) / b.bucket.PerSecond * float64(time.Second))
	return Quota{of: b, left: left}, problem.RetryAfter(tidemark.Errorf(tidemark.Exhausted,
		"the limit of %s is %g a second and %d at once; send this one again after a pause",
		b.bucket.what(), b.bucket.PerSecond, b.bucket.Burst), wait)
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
		if of.TokensAt(now) >= float64(b.bucket.Burst) {
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
