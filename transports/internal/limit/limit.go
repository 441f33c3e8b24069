// Package limit bounds what one user may ask of the server (Limiter), how many clients catch up at a time (Gate), and how many
// connections there are (Listener). docs/limits.md has all limits in one table.
package limit

import (
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
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
	// Shared is what several nodes know together of what users take. nil: this node limits alone.
	Shared Shared
}

// Limiter bounds how often a user may send, and how often he may call for anything else. What he takes on other nodes is debited once they have told of it
// (Run). It is safe for concurrent use. A nil Limiter allows everything.
type Limiter struct {
	sends, calls buckets
	shared       Shared
	failures     atomic.Int64
}

// New returns a Limiter.
func New(cfg Config) *Limiter {
	orDefault(&cfg.PerSecond, SendsPerSecond)
	orDefault(&cfg.Burst, SendBurst)
	orDefault(&cfg.CallsPerSecond, CallsPerSecond)
	orDefault(&cfg.CallBurst, CallBurst)
	orDefault(&cfg.MaxUsers, 100_000)
	l := &Limiter{shared: cfg.Shared}
	l.sends.init(Rate{What: "messages", PerSecond: cfg.PerSecond, Burst: cfg.Burst}, cfg.MaxUsers, cfg.Shared != nil)
	l.calls.init(Rate{What: "requests", PerSecond: cfg.CallsPerSecond, Burst: cfg.CallBurst}, cfg.MaxUsers, cfg.Shared != nil)
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
