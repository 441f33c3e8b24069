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
	"github.com/tidemark-im/tidemark/server/internal/moves"
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

// Counters only grow. ClaimTime is in microseconds.
type Counters struct {
	Opens, GraceExpired, Expired                    atomic.Int64
	Claims, Claimed, Given, ClaimsFailed, ClaimTime atomic.Int64
}

// Sessions is safe for concurrent use.
type Sessions struct {
	Config
	// Count is what the sessions count.
	Count Counters
	moves *moves.Moves
	// background counts goroutines that answer other nodes.
	background sync.WaitGroup

	// reconcile asks for a reconciliation of all sessions, repair for a look at repairs.
	reconcile, repair signal.Flag

	mu      sync.Mutex
	repairs leases.Report
}

// New returns Sessions without goroutines.
func New(cfg Config) *Sessions {
	return &Sessions{
		Config: cfg, moves: moves.New(cfg.Bus, cfg.Node), reconcile: signal.New(), repair: signal.New(),
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
	loops.Go(func() { s.moves.Loop(ctx, s.answer, s.undelivered) })
	loops.Wait()
	s.background.Wait()
}

// Get returns a session of this node, nil if it is not here.
func (s *Sessions) Get(id tidemark.SessionID) *session.Session { return s.Table.Get(id) }

// Claim takes another node's question about a session. It does not block.
func (s *Sessions) Claim(c *bus.Claim) { s.moves.Receive(c) }

// Claimed takes the answer to a question of this node.
func (s *Sessions) Claimed(c *bus.Claimed) {
	//rule:R_WAKESET.mark-late-answer
	if !s.moves.Answered(c) { // too late
		s.undelivered(c.State)
	}
}

// Follow notifies the sessions of leases whose rows are marked, if they have moved from here a moment
// ago (R_FOLLOW).
func (s *Sessions) Follow(absent []registry.Lease, chat tidemark.ChatID, sequence tidemark.Sequence) {
	var rows []tidemark.PendingDelivery
	for _, lease := range absent {
		if s.moves.Who(lease.Session) != nil {
			rows = append(rows, tidemark.PendingDelivery{
				UserID: lease.User, ChatID: chat, FirstUndelivered: sequence,
			})
		}
	}
	//rule:R_FOLLOW.wake-moved-session
	s.Delivery.Retry.Notify(rows)
}
