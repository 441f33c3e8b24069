// Package limit bounds how often a user may send (docs/protocol.md, "Limits").
package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// Config configures a Limiter.
type Config struct {
	// PerSecond is how many sends a user may do in a second, lastingly. Default 50.
	PerSecond float64
	// Burst is how many he may do at once. Default 500.
	Burst int
	// MaxUsers bounds how many users are remembered. Default 100,000. Above it some begin anew.
	MaxUsers int
}

// leastSweep is the least number of users for which looking for idle ones is worth while.
const leastSweep = 1_024

// Limiter is a token bucket for each user. It is safe for concurrent use. A nil Limiter allows everything.
type Limiter struct {
	cfg Config

	mu    sync.Mutex
	users map[tidemark.UserID]*rate.Limiter
	// sweepAt is the number of users at which the idle ones are forgotten.
	sweepAt int
}

// New returns a Limiter.
func New(cfg Config) *Limiter {
	if cfg.PerSecond == 0 {
		cfg.PerSecond = 50
	}
	if cfg.Burst == 0 {
		cfg.Burst = 500
	}
	if cfg.MaxUsers == 0 {
		cfg.MaxUsers = 100_000
	}
	return &Limiter{cfg: cfg, users: make(map[tidemark.UserID]*rate.Limiter), sweepAt: min(leastSweep, cfg.MaxUsers)}
}

// Take returns nil and counts one send of the user, or an Exhausted error that knows when to try again.
func (l *Limiter) Take(user tidemark.UserID) error {
	if l == nil {
		return nil
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket := l.users[user]
	if bucket == nil {
		l.makeRoom(now)
		bucket = rate.NewLimiter(rate.Limit(l.cfg.PerSecond), l.cfg.Burst)
		l.users[user] = bucket
	}
	if bucket.AllowN(now, 1) {
		return nil
	}
	missing := 1 - bucket.TokensAt(now)
	wait := time.Duration(missing / l.cfg.PerSecond * float64(time.Second))
	return problem.RetryAfter(tidemark.Errorf(tidemark.Exhausted,
		"more than %g messages a second; send this one again after a pause", l.cfg.PerSecond), wait)
}

// makeRoom forgets users whose bucket is full, who are as good as new, when there are many. The caller holds mu.
func (l *Limiter) makeRoom(now time.Time) {
	if len(l.users) < l.sweepAt {
		return
	}
	for user, bucket := range l.users {
		if bucket.TokensAt(now) >= float64(l.cfg.Burst) {
			delete(l.users, user)
		}
	}
	for user := range l.users {
		if len(l.users) < l.cfg.MaxUsers {
			break
		}
		delete(l.users, user)
	}
	l.sweepAt = min(max(leastSweep, 2*len(l.users)), l.cfg.MaxUsers)
}
