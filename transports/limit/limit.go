// Package limit bounds what clients may use of the server. Limiter bounds the calls of a user. Gate
// bounds how many clients catch up at a time. Listener bounds the connections. docs/limits.md lists
// all limits.
package limit

import (
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// The rates of users who show credentials of their own, by default.
const (
	SendsPerSecond    = 50
	SendBurst         = 500
	SilentPerSecond   = 1
	SilentBurst       = 60
	CallsPerSecond    = 200
	CallBurst         = 1_000
	StatusesPerSecond = 600
	StatusBurst       = 1_200
)

// The rates of users for whom a backend calls, by default.
const (
	BackendSendsPerSecond    = 1_000
	BackendSendBurst         = 5_000
	BackendSilentPerSecond   = 1_000
	BackendSilentBurst       = 5_000
	BackendCallsPerSecond    = 2_000
	BackendCallBurst         = 10_000
	BackendStatusesPerSecond = 2_000
	BackendStatusBurst       = 10_000
)

// RequestWithin is how long a client may take to send a whole request, with a body of up to 400
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
	// MembersPerCall is how many members of a new chat, or new members of a chat, cost as much as
	// one Call.
	MembersPerCall = 10
)

// Config configures a Limiter. A zero field has its default.
type Config struct {
	// User has the rates of users who show credentials of their own, and Backend those of users for
	// whom a backend calls. They are counted apart.
	User, Backend Rates
	// MaxUsers bounds how many users are remembered for each rate. Above it, some users start again
	// with a full bucket. Default 100,000.
	MaxUsers int
	// Shared holds the buckets that all nodes share. If it is nil, this node limits alone.
	Shared Shared
}

// Rates bound what one user may do. A zero field has its default.
type Rates struct {
	// Sends are of messages.
	Sends Rate
	// Silent are sends of kinds that nobody is shown (tidemark.Kind.Shown), such as edits. They
	// also count as Sends. Nobody sees a flood of them, so the rate is low (lifecycle.md §2).
	Silent Rate
	// Calls are all other calls, by their cost. Their burst must be at least LargeCall.
	Calls Rate
	// Statuses are chats whose delivery status is asked for. Clients poll it (ADR-008 §4.2).
	Statuses Rate
}

// kind is what a rate bounds.
type kind uint8

const (
	sends kind = iota
	silent
	calls
	statuses
	kinds
)

// Limiter bounds how often a user may send, ask for delivery statuses, and make other calls. What
// they take on other nodes counts too, as soon as Run has read it. A nil Limiter allows everything.
// It is safe for concurrent use.
type Limiter struct {
	rates    atomic.Pointer[rateSet]
	maxUsers int
	shared   Shared
	failures atomic.Int64
}

// rateSet has the buckets of each kind, for users and for those for whom a backend calls.
type rateSet struct{ user, backend [kinds]*buckets }

// New returns a Limiter that remembers no user yet.
func New(cfg Config) *Limiter {
	orDefault(&cfg.MaxUsers, 100_000)
	l := &Limiter{maxUsers: cfg.MaxUsers, shared: cfg.Shared}
	l.rates.Store(new(rateSet))
	l.SetRates(cfg.User, cfg.Backend)
	return l
}

// SetRates changes the rates. A zero field has its default. Where a rate changes, all users begin
// with a full bucket. It may not be called by two goroutines at a time. A nil Limiter stays without
// limits.
func (l *Limiter) SetRates(user, backend Rates) {
	if l == nil {
		return
	}
	before, next := l.rates.Load(), new(rateSet)
	for k, of := range [kinds]struct {
		name              string
		user, backend     Rate
		byUser, byBackend Rate
	}{
		{
			"sends", user.Sends, backend.Sends,
			Rate{SendsPerSecond, SendBurst}, Rate{BackendSendsPerSecond, BackendSendBurst},
		},
		{
			"silent", user.Silent, backend.Silent,
			Rate{SilentPerSecond, SilentBurst},
			Rate{BackendSilentPerSecond, BackendSilentBurst},
		},
		{
			"calls", user.Calls, backend.Calls,
			Rate{CallsPerSecond, CallBurst}, Rate{BackendCallsPerSecond, BackendCallBurst},
		},
		{
			"statuses", user.Statuses, backend.Statuses,
			Rate{StatusesPerSecond, StatusBurst},
			Rate{BackendStatusesPerSecond, BackendStatusBurst},
		},
	} {
		orDefault(&of.user, of.byUser)
		orDefault(&of.backend, of.byBackend)
		next.user[k] = l.buckets(before.user[k], Bucket{Name: of.name, Rate: of.user})
		next.backend[k] = l.buckets(before.backend[k],
			Bucket{Name: "backend-" + of.name, Rate: of.backend})
	}
	l.rates.Store(next)
}

// buckets returns old if the rate stays, else new buckets.
func (l *Limiter) buckets(old *buckets, bucket Bucket) *buckets {
	//rule:bounded_use.keep-buckets-of-a-rate-that-stays
	if old != nil && old.bucket == bucket {
		return old
	}
	return newBuckets(bucket, l.maxUsers, l.shared != nil)
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Send counts one send of the caller, of a message of this kind. It returns Exhausted, with the
// time to retry after, if they are over their limit of sends, or of silent ones. A send that is
// refused may have counted as a silent one.
func (l *Limiter) Send(who server.Caller, of tidemark.Kind) (Quota, error) {
	//rule:bounded_use.silent-kinds-have-a-rate
	if !of.Shown() {
		if quota, err := l.take(who, silent, 1); err != nil {
			return quota, err
		}
	}
	return l.take(who, sends, 1)
}

// Call counts a call by its cost. It returns Exhausted, with the time to retry after, if the caller
// is over their limit.
func (l *Limiter) Call(who server.Caller, cost int) (Quota, error) {
	return l.take(who, calls, cost)
}

// Status counts a question about the delivery status of some chats. It returns Exhausted, with the
// time to retry after, if the caller is over their limit.
func (l *Limiter) Status(who server.Caller, chats int) (Quota, error) {
	return l.take(who, statuses, chats)
}

func (l *Limiter) take(who server.Caller, k kind, n int) (Quota, error) {
	switch {
	case l == nil || n == 0:
		return Quota{}, nil
	//rule:bounded_use.classes-apart
	case who.Backend:
		return l.rates.Load().backend[k].take(who.User, n)
	default:
		return l.rates.Load().user[k].take(who.User, n)
	}
}
