// Package sessions opens, resumes and closes the sessions of a node, and moves them between nodes.
// It owns the goroutines that serve them (delivery.md §4, Open, Close, Transfer). The state of a
// session is in package session.
package sessions

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/internal/receipts"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Config has what Sessions need. All fields are required.
type Config struct {
	Node     registry.Node
	Host     *session.Host
	Table    *session.Table
	Leases   *leases.Leases
	Delivery *delivery.Delivery
	Receipts *receipts.Receipts
	Bus      bus.Bus
	Log      *slog.Logger
	// PerUser is how many sessions one user may have.
	PerUser int
	// Spread is the least time over which all sessions of the node reconcile.
	Spread time.Duration
	// ComparesPerSecond is how many sessions may begin to reconcile in a second.
	ComparesPerSecond int
}

// Counters count events of Sessions. They only grow. Asked counts arrivals that began, and Given
// sessions that moved to another node. TransferTime is how long resumes waited for arrivals, in
// microseconds.
type Counters struct {
	Opens, GraceExpired, Expired atomic.Int64
	Asked, Given, TransferTime   atomic.Int64
}

// Sessions manages the sessions of a node. It is safe for concurrent use.
type Sessions struct {
	Config
	Count Counters
	// queued has Requests and Seeks for transferLoop. ends has Ends for endLoop, which writes to
	// storage: moving sessions do not wait for it.
	queued, ends chan bus.Event
	asked        questions
	// replaced has the sessions that ended here and whose clients must not open a new one.
	replaced replaced

	// reconcile wakes reconcileLoop, repair wakes repairLoop, and list wakes listLoop.
	reconcile, repair, list signal.Flag

	mu      sync.Mutex
	repairs leases.Report
	// lists has the sessions that wait for listLoop.
	lists []*session.Session
}

// New returns Sessions. It starts no goroutines.
func New(cfg Config) *Sessions {
	return &Sessions{
		Config: cfg, queued: make(chan bus.Event, maxQueued),
		ends:      make(chan bus.Event, maxQueued),
		asked:     questions{open: make(map[string]signal.Flag)},
		reconcile: signal.New(), repair: signal.New(), list: signal.New(),
	}
}

// Start joins the registry. An unreachable registry is no error.
func (s *Sessions) Start(ctx context.Context) error {
	report, err := s.Leases.Join(ctx)
	if err == nil {
		s.take(report)
	}
	return err
}

// Run runs the loops until ctx ends, and returns when all of them have.
func (s *Sessions) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { s.heartbeatLoop(ctx) })
	loops.Go(func() { s.repairLoop(ctx) })
	loops.Go(func() { s.reconcileLoop(ctx) })
	loops.Go(func() { s.listLoop(ctx) })
	loops.Go(func() { s.graceLoop(ctx) })
	loops.Go(func() { s.expiryLoop(ctx) })
	loops.Go(func() { s.againLoop(ctx) })
	loops.Go(func() { s.writtenLoop(ctx) })
	loops.Go(func() { s.transferLoop(ctx) })
	loops.Go(func() { s.endLoop(ctx) })
	loops.Go(func() { s.arrivalLoop(ctx) })
	loops.Wait()
}
