package server

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// debt is something that must happen for a stored message and has not: rows to be marked, or a hand-over.
type debt struct {
	rows     []tidemark.PendingDelivery
	handOver *handOver
}

// debts is the bounded queue of what the node owes. It is safe for concurrent use.
type debts struct {
	signal chan struct{}

	mu    sync.Mutex
	queue []debt
	// lost says that the bound was exceeded since the node joined the registry anew.
	lost bool
}

// Bounds of what the node owes, and how often it tries again. Beyond the bound the node gives up its claim to know: it voids all proofs by joining
// the registry again, as if it had crashed, so that every open compares.
const (
	maxDebts   = 100_000
	debtsPause = time.Second
)

func newDebts() *debts { return &debts{signal: make(chan struct{}, 1)} }

// owe takes on a debt. It does not block.
func (s *Server) owe(d debt) {
	s.debts.mu.Lock()
	if len(s.debts.queue) < maxDebts {
		s.debts.queue = append(s.debts.queue, d)
		s.count.debtsTaken.Add(1)
	} else {
		s.debts.lost = true
	}
	s.debts.mu.Unlock()
	select {
	case s.debts.signal <- struct{}{}:
	default:
	}
}

// pay pays everything it can, and reports whether nothing is owed any more.
func (s *Server) pay(ctx context.Context) bool {
	s.debts.mu.Lock()
	queue, lost := s.debts.queue, s.debts.lost
	s.debts.queue = nil
	s.debts.mu.Unlock()
	if lost {
		if err := s.nodes.Join(ctx, s.node, s.cfg.LeaseTTL); err == nil {
			s.debts.mu.Lock()
			s.debts.lost = false
			s.debts.mu.Unlock()
		}
	}
	for i, d := range queue {
		err := s.mark(ctx, d.rows)
		if err == nil && d.handOver != nil {
			err = s.handOver(ctx, *d.handOver)
		}
		if err != nil {
			s.log.Warn("what is owed for stored messages waits", "debts", len(queue)-i, "error", err)
			s.debts.mu.Lock()
			s.debts.queue = append(queue[i:], s.debts.queue...)
			s.debts.mu.Unlock()
			return false
		}
	}
	return !lost
}

// payLoop pays until ctx ends.
func (s *Server) payLoop(ctx context.Context) {
	for {
		select {
		case <-s.debts.signal:
		case <-ctx.Done():
			return
		}
		for !s.pay(ctx) {
			if !pause(ctx, debtsPause) {
				return
			}
		}
	}
}
