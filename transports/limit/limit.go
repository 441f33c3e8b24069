// Package limit bounds what clients may use of the server. Limiter bounds the calls of a user. Gate
// bounds how many clients catch up at a time. Listener bounds the connections. docs/limits.md lists
// all limits.
package limit

import (
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
)

// The limits of a user by default.
const (
	SendsPerSecond = 50
	SendBurst      = 500
	CallsPerSecond = 200
	CallBurst      = 1_000
)

// RequestWithin is how long a client may take to send a whole request, with a body of up to 128
// KiB.
const RequestWithin = 15 * time.Second

// The costs of calls, which count against the calls that a user may make.
const (
	// Call is the cost of a call that touches a row or two.
	Call = 1
	// LargeCall is the cost of a call that touches many rows: a page, a list, a sync, a new
	// chat, members, a new session.
	LargeCall = 5
	// AcksPerCall is how many entries of one POST /acks cost as much as one Call. A body may
	// hold thousands of entries, and each needs a lookup.
	AcksPerCall = 100
	// StatusesPerCall is how many chats of one GET /statuses cost as much as one LargeCall.
	StatusesPerCall = 10
)

// Config configures a Limiter. A zero field has its default.
type Config struct {
	// PerSecond is the lasting rate of a user's sends. Default SendsPerSecond.
	PerSecond float64
	// Burst is how many sends a user may do at once. Default SendBurst.
	Burst int
	// CallsPerSecond is the lasting rate of a user's other calls. Default CallsPerSecond.
	CallsPerSecond float64
	// CallBurst is the cost of the other calls that a user may make at once. It must be at
	// least LargeCall. Default CallBurst.
	CallBurst int
	// MaxUsers bounds how many users are remembered. Above it, some users start again with a
	// full bucket. Default 100,000.
	MaxUsers int
	// Shared holds the buckets that all nodes share. If it is nil, this node limits alone.
	Shared Shared
}

// Limiter bounds how often a user may send, and how often they may make other calls. What they take
// on other nodes counts too, as soon as Run has read it. A nil Limiter allows everything. It is
// safe for concurrent use.
type Limiter struct {
	sends, calls buckets
	shared       Shared
	failures     atomic.Int64
}

// New returns a Limiter that remembers no user yet.
func New(cfg Config) *Limiter {
	orDefault(&cfg.PerSecond, SendsPerSecond)
	orDefault(&cfg.Burst, SendBurst)
	orDefault(&cfg.CallsPerSecond, CallsPerSecond)
	orDefault(&cfg.CallBurst, CallBurst)
	orDefault(&cfg.MaxUsers, 100_000)
	l := &Limiter{shared: cfg.Shared}
	l.sends.init(Rate{What: "messages", PerSecond: cfg.PerSecond, Burst: cfg.Burst}, cfg.MaxUsers,
		cfg.Shared != nil)
	l.calls.init(Rate{What: "requests", PerSecond: cfg.CallsPerSecond, Burst: cfg.CallBurst},
		cfg.MaxUsers, cfg.Shared != nil)
	return l
}

func orDefault[T int | float64](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Send counts one send of the user. It returns Exhausted, with the time to retry after, if the user
// is over their limit.
func (l *Limiter) Send(user tidemark.UserID) error {
	if l == nil {
		return nil
	}
	return l.sends.take(user, 1)
}

// Call counts a call of the user by its cost. It returns Exhausted, with the time to retry after,
// if the user is over their limit.
func (l *Limiter) Call(user tidemark.UserID, cost int) error {
	if l == nil || cost == 0 {
		return nil
	}
	return l.calls.take(user, cost)
}
