package sessions

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

const (
	// reconcilesPerSecond bounds how fast the sessions of a node are told to reconcile: each costs a
	// read or two.
	reconcilesPerSecond = 2_000
	// elsewhereFor is longer than a node that asks for a session waits for it, the registry's answers
	// included.
	elsewhereFor = 2 * time.Second
)

// heartbeatLoop keeps the leases of the node and its sessions, until ctx ends.
func (s *Sessions) heartbeatLoop(ctx context.Context) {
	for s.Leases.Await(ctx) {
		s.take(s.Leases.Heartbeat(ctx))
	}
}

// take hands what a heartbeat found to the loops that act on it. However much that is, heartbeats go
// on meanwhile.
func (s *Sessions) take(r leases.Report) {
	if r.Reconcile {
		s.reconcile.Set()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:pending_or_delivered.remember-lost-leases
	s.repairs.Lost = append(s.repairs.Lost, r.Lost...)
	s.repairs.Superseded = append(s.repairs.Superseded, r.Superseded...)
	s.repairs.Elsewhere = append(s.repairs.Elsewhere, r.Elsewhere...)
	s.repair.Set()
}

// takeRepairs returns what take has collected.
func (s *Sessions) takeRepairs() leases.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repairs
	s.repairs = leases.Report{}
	return r
}

// elsewhere are sessions whose leases another node has, and that are left to it until then.
type elsewhere struct {
	until    time.Time
	sessions []*session.Session
}

// repairLoop acquires lost leases again, and ends sessions that are superseded, until ctx ends. A
// session whose lease another node has is left to it for as long as a move takes. If nobody has asked
// for it then, its lease is taken back.
func (s *Sessions) repairLoop(ctx context.Context) {
	var left []elsewhere
	for {
		var until time.Time
		if len(left) > 0 {
			until = left[0].until
		}
		if _, ok := s.repair.WaitUntil(ctx, until); !ok {
			return
		}
		r := s.takeRepairs()
		s.closeSuperseded(ctx, r.Superseded)
		s.reacquire(ctx, r.Lost)
		if len(r.Elsewhere) > 0 {
			//rule:R_NOBODY.wait-for-pending-move
			left = append(left, elsewhere{time.Now().Add(elsewhereFor), r.Elsewhere})
		}
		if len(left) > 0 && !time.Now().Before(left[0].until) {
			here := slices.DeleteFunc(left[0].sessions, (*session.Session).Ended)
			left = left[1:]
			s.Leases.Count.Lost.Add(int64(len(here)))
			//rule:R_ADDR.release-lease-given-away
			s.reacquire(ctx, here)
		}
	}
}

// reconcileLoop lets all sessions reconcile when that is asked for, and again and again while the
// node is degraded, until ctx ends.
func (s *Sessions) reconcileLoop(ctx context.Context) {
	for s.reconcile.Wait(ctx) {
		for degraded := true; degraded; {
			degraded = s.Leases.Degraded() != nil
			if !s.reconcileAll(ctx, degraded) {
				return
			}
		}
	}
}

// reconcileAll orders a reconciliation for each session, spread over Spread, or over as long as
// reconcilesPerSecond takes. With force they reconcile whatever the epoch is. It returns false when
// ctx ends.
func (s *Sessions) reconcileAll(ctx context.Context, force bool) bool {
	all := s.Table.All()
	steps := min(100, 1+len(all)/100)
	over := max(s.Spread, time.Duration(len(all))*time.Second/reconcilesPerSecond)
	for i := range steps {
		epoch := s.Leases.Epoch()
		for _, sess := range all[len(all)*i/steps : len(all)*(i+1)/steps] {
			sess.Reconcile(epoch, force)
		}
		if (force || steps > 1) && !signal.Pause(ctx, over/time.Duration(steps)) {
			return false
		}
	}
	return ctx.Err() == nil
}

// graceLoop marks what was not acknowledged in time, until ctx ends.
func (s *Sessions) graceLoop(ctx context.Context) {
	for {
		due, ok := s.Host.Grace.Due(ctx)
		if !ok {
			return
		}
		s.overdue(ctx, due)
	}
}

// expiryLoop closes sessions whose resume window has passed, until ctx ends.
func (s *Sessions) expiryLoop(ctx context.Context) {
	for {
		due, ok := s.Host.Expiry.Due(ctx)
		if !ok {
			return
		}
		s.expire(ctx, due)
	}
}
