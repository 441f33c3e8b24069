// Package sessions opens, resumes and closes the sessions of a node, moves them between nodes, and
// owns the goroutines that look after them (delivery.md §4, Open, Close, Move). The state of a
// session is in package session.
package sessions

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/internal/receipts"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Config is what Sessions work with. All fields are required.
type Config struct {
	Node     registry.Node
	Host     *session.Host
	Table    *session.Table
	Leases   *leases.Leases
	Delivery *delivery.Delivery
	Receipts *receipts.Receipts
	Bus      bus.Bus
	Log      *slog.Logger
	// PerUser bounds the sessions of one user.
	PerUser int
	// Spread is the time over which the sessions of the node reconcile if all of them have to.
	Spread time.Duration
}

// Counters only grow. Asked counts the arrivals that began, Given the sessions that went to another
// node. TransferTime is how long resumes waited for arrivals, in microseconds.
type Counters struct {
	Opens, GraceExpired, Expired atomic.Int64
	Asked, Given, TransferTime   atomic.Int64
}

// Sessions is safe for concurrent use.
type Sessions struct {
	Config
	// Count is what the sessions count.
	Count Counters
	// queued are Requests and Seeks for transferLoop.
	queued chan bus.Event
	seeks  questions

	// reconcile asks for a reconciliation of all sessions, repair for a look at repairs.
	reconcile, repair signal.Flag

	mu      sync.Mutex
	repairs leases.Report
}

// New returns Sessions without goroutines.
func New(cfg Config) *Sessions {
	return &Sessions{
		Config: cfg, queued: make(chan bus.Event, maxQueued),
		seeks:     questions{open: make(map[string]signal.Flag)},
		reconcile: signal.New(), repair: signal.New(),
	}
}

// Start joins the registry. A registry that cannot be reached is no reason not to serve.
func (s *Sessions) Start(ctx context.Context) error {
	report, err := s.Leases.Join(ctx)
	if err == nil {
		s.take(report)
	}
	return err
}

// Run looks after the sessions until ctx ends. It returns when all its goroutines have ended.
func (s *Sessions) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { s.heartbeatLoop(ctx) })
	loops.Go(func() { s.repairLoop(ctx) })
	loops.Go(func() { s.reconcileLoop(ctx) })
	loops.Go(func() { s.graceLoop(ctx) })
	loops.Go(func() { s.expiryLoop(ctx) })
	loops.Go(func() { s.transferLoop(ctx) })
	loops.Go(func() { s.arrivalLoop(ctx) })
	loops.Wait()
}

// Get returns a session of this node, nil if it is not here.
func (s *Sessions) Get(id tidemark.SessionID) *session.Session { return s.Table.Get(id) }
