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
	// reconcileStep is how many sessions begin to reconcile together.
	reconcileStep = 100
	// comparedAtOnce is how many sessions compare at a time, before further ones begin. They wait
	// for storage, whose concurrent comparisons may share a statement. If ComparesPerSecond/5 is
	// higher, that is the limit.
	comparedAtOnce = 512
	// comparedPause is the time until the sessions that compare are counted again.
	comparedPause = 5 * time.Millisecond
	// listsPerSecond is how many sessions list their recent chats in a second after a new epoch.
	// Each takes several reads.
	listsPerSecond = 2_000
	// elsewhereFor is longer than a node waits for a session that it requested, including calls to
	// the registry.
	elsewhereFor = 2 * time.Second
)

// heartbeatLoop refreshes the leases of the node and its sessions until ctx ends.
func (s *Sessions) heartbeatLoop(ctx context.Context) {
	for s.Leases.Await(ctx) {
		s.take(s.Leases.Heartbeat(ctx))
	}
}

// take passes a Report to the loops that act on it, so that heartbeats are not delayed.
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

// takeRepairs removes and returns what take has collected.
func (s *Sessions) takeRepairs() leases.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repairs
	s.repairs = leases.Report{}
	return r
}

// elsewhere has sessions whose leases another node has taken. Nothing is done about them until the
// time until.
type elsewhere struct {
	until    time.Time
	sessions []*session.Session
}

// repairLoop acquires lost leases again and closes superseded sessions, until ctx ends. If another
// node has taken a session's lease, it waits elsewhereFor for that node's Request. If none comes,
// it takes the lease back.
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

// reconcileLoop makes all sessions reconcile when requested, until ctx ends. While the node is
// degraded it repeats that.
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

// reconcileAll makes each session reconcile. It takes Spread, or longer if ComparesPerSecond or the
// storage demands. With force, sessions reconcile even if the epoch is the same. Afterwards they
// list their recent chats, in turn. It returns false when ctx ends.
func (s *Sessions) reconcileAll(ctx context.Context, force bool) bool {
	all := s.Table.All()
	steps := 1 + len(all)/reconcileStep
	over := max(s.Spread, time.Duration(len(all))*time.Second/time.Duration(s.ComparesPerSecond))
	atOnce := int64(max(comparedAtOnce, s.ComparesPerSecond/5))
	var later []*session.Session
	for i := range steps {
		epoch := s.Leases.Epoch()
		for _, sess := range all[len(all)*i/steps : len(all)*(i+1)/steps] {
			if sess.Reconcile(epoch, force) {
				later = append(later, sess)
			}
		}
		if (force || steps > 1) && !signal.Pause(ctx, over/time.Duration(steps)) {
			return false
		}
		//rule:bounded_use.compare-a-bounded-number-at-once
		for s.Host.Count.Comparing.Load() >= atOnce {
			if !signal.Pause(ctx, comparedPause) {
				return false
			}
		}
	}
	s.mu.Lock()
	s.lists = append(s.lists, later...)
	s.mu.Unlock()
	s.list.Set()
	return ctx.Err() == nil
}

// listLoop lets the sessions of reconcileAll list their recent chats, until ctx ends.
func (s *Sessions) listLoop(ctx context.Context) {
	for s.list.Wait(ctx) {
		s.mu.Lock()
		waiting := s.lists
		s.lists = nil
		s.mu.Unlock()
		for some := range slices.Chunk(waiting, reconcileStep) {
			for _, sess := range some {
				//rule:own_state_reaches_devices.list-in-turn
				sess.ListRecent()
			}
			if !signal.Pause(ctx, time.Duration(len(some))*time.Second/listsPerSecond) {
				return
			}
		}
	}
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

// againLoop makes sessions look at large chats again, until ctx ends.
func (s *Sessions) againLoop(ctx context.Context) {
	for {
		due, ok := s.Host.Again.Due(ctx)
		if !ok {
			return
		}
		session.LookAgain(due)
	}
}

// writtenLoop makes sessions tell what was written, until ctx ends.
func (s *Sessions) writtenLoop(ctx context.Context) {
	for {
		due, ok := s.Host.Written.Due(ctx)
		if !ok {
			return
		}
		session.TellWritten(due)
	}
}

// expiryLoop closes sessions whose resume window is over, until ctx ends.
func (s *Sessions) expiryLoop(ctx context.Context) {
	for {
		due, ok := s.Host.Expiry.Due(ctx)
		if !ok {
			return
		}
		s.expire(ctx, due)
	}
}
