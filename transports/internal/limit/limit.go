// Package limit bounds what one user may ask of the server (Limiter), how many clients catch up at a time (Gate), and how many
// connections there are (Listener). docs/limits.md has all limits in one table.
package limit

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// The limits of a user if a Config does not say otherwise.
const (
	SendsPerSecond = 50
	SendBurst      = 500
	CallsPerSecond = 200
	CallBurst      = 1_000
)

// RequestWithin is how long a client may take to send a whole request, its body of up to 128 KiB included.
const RequestWithin = 15 * time.Second

// What a call costs of the calls that a user may make.
const (
	// Call is the cost of a call that touches a row or two.
	Call = 1
	// LargeCall is the cost of one that reads or writes as many rows as it likes: a page, a list, a sync, a new chat, members, a new session.
	LargeCall = 5
	// AcksPerCall is how many entries of one POST /acks cost as much as a call: they are thousands in a body, and each is looked up.
	AcksPerCall = 100
)

// Config configures a Limiter.
type Config struct {
	// PerSecond is how many sends a user may do in a second, lastingly. Default SendsPerSecond.
	PerSecond float64
	// Burst is how many sends he may do at once. Default SendBurst.
	Burst int
	// CallsPerSecond is how many other calls he may make in a second, lastingly. Default CallsPerSecond.
	CallsPerSecond float64
	// CallBurst is how many other calls he may make at once, at least LargeCall. Default CallBurst.
	CallBurst int
	// MaxUsers bounds how many users are remembered. Default 100,000. Above it some begin anew.
	MaxUsers int
}

// leastSweep is the least number of users for which looking for idle ones is worth while.
const leastSweep = 1_024

// Limiter bounds how often a user may send, and how often he may call for anything else. It is safe for concurrent use. A nil Limiter allows
// everything.
type Limiter struct{ sends, calls buckets }

// New returns a Limiter.
func New(cfg Config) *Limiter {
	orDefault(&cfg.PerSecond, SendsPerSecond)
	orDefault(&cfg.Burst, SendBurst)
	orDefault(&cfg.CallsPerSecond, CallsPerSecond)
	orDefault(&cfg.CallBurst, CallBurst)
	orDefault(&cfg.MaxUsers, 100_000)
	l := new(Limiter)
	l.sends.init("messages", cfg.PerSecond, cfg.Burst, cfg.MaxUsers)
	l.calls.init("requests", cfg.CallsPerSecond, cfg.CallBurst, cfg.MaxUsers)
	return l
}

func orDefault[T int | float64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Send returns nil and counts one send of the user, or an Exhausted error that knows when to try again.
func (l *Limiter) Send(user tidemark.UserID) error {
	if l == nil {
		return nil
	}
	return l.sends.take(user, 1)
}

// Call returns nil and counts a call of the user by its cost, or an Exhausted error that knows when to try again.
func (l *Limiter) Call(user tidemark.UserID, cost int) error {
	if l == nil || cost == 0 {
		return nil
	}
	return l.calls.take(user, cost)
}

// buckets is a token bucket for each user.
type buckets struct {
	what      string
	perSecond float64
	burst     int
	maxUsers  int

	mu    sync.Mutex
	users map[tidemark.UserID]*rate.Limiter
	// sweepAt is the number of users at which the idle ones are forgotten.
	sweepAt int
}

func (b *buckets) init(what string, perSecond float64, burst, maxUsers int) {
	b.what, b.perSecond, b.burst, b.maxUsers = what, perSecond, burst, maxUsers
	b.users = make(map[tidemark.UserID]*rate.Limiter)
	b.sweepAt = min(leastSweep, maxUsers)
}

func (b *buckets) take(user tidemark.UserID, n int) error {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	bucket := b.users[user]
	if bucket == nil {
		b.makeRoom(now)
		bucket = rate.NewLimiter(rate.Limit(b.perSecond), b.burst)
		b.users[user] = bucket
	}
	if bucket.AllowN(now, n) {
		return nil
	}
	missing := float64(n) - bucket.TokensAt(now)
	wait := time.Duration(missing / b.perSecond * float64(time.Second))
	return problem.RetryAfter(tidemark.Errorf(tidemark.Exhausted,
		"more than %g %s a second; send this one again after a pause", b.perSecond, b.what), wait)
}

// makeRoom forgets users whose bucket is full, who are as good as new, when there are many. The caller holds mu.
func (b *buckets) makeRoom(now time.Time) {
	if len(b.users) < b.sweepAt {
		return
	}
	for user, bucket := range b.users {
		if bucket.TokensAt(now) >= float64(b.burst) {
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
