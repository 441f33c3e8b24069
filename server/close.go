package server

import (
	"cmp"
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/debts"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/storage"
)

// closeSessions closes sessions cleanly, in the order of R_ORDER: detach, mark, release. A session that could not mark, or whose open had
// not finished looking, leaves no proof. It returns how many it closed, and the error of the marks.
func (s *Server) closeSessions(ctx context.Context, endings []session.Ending) (closed int, err error) {
	ctx, cancel := after(ctx)
	defer cancel()
	var rows []tidemark.PendingDelivery
	var detached []*session.Session
	for _, e := range endings {
		left, ended := e.End()
		if !ended {
			continue
		}
		s.sessions.Remove(e.Session)
		rows = append(rows, left...)
		detached = append(detached, e.Session)
	}
	// In an order that no map gives, so that a run of the simulation can be repeated.
	debts.Sort(rows)
	slices.SortFunc(detached, func(a, b *session.Session) int {
		return cmp.Or(cmp.Compare(a.User(), b.User()), cmp.Compare(a.Lease.Device, b.Lease.Device))
	})
	//rule:R_ORDER.mark-before-release
	err = s.mark(ctx, rows)
	//rule:pending_or_delivered.retry-rows-not-marked
	if err != nil {
		s.debts.Mark(rows)
	}
	flow.SideBySide(detached, func(sess *session.Session) { s.release(ctx, sess, err == nil) })
	return len(detached), err
}

// closeReplaced closes sessions whose devices have newer ones.
func (s *Server) closeReplaced(ctx context.Context, replaced []*session.Session) {
	if _, err := s.closeSessions(ctx, session.Endings(replaced, session.Superseded)); err != nil {
		s.log.Warn("sessions whose devices have newer ones were not closed cleanly", "sessions", len(replaced), "error", err)
	}
}

// release gives the lease back and leaves the proof, if it is true.
func (s *Server) release(ctx context.Context, sess *session.Session, marked bool) {
	proof, release := sess.Proof()
	if !release {
		return
	}
	//rule:R_COMPLETE.no-proof-without-rows
	if !marked {
		proof = nil
	}
	if err := s.registry.Close(ctx, sess.Lease, proof); err != nil {
		s.locate.Failed("a lease was not released", err)
	}
}

// expiryLoop closes sessions whose resume window has passed, until ctx ends.
func (s *Server) expiryLoop(ctx context.Context) {
	for {
		due, ok := s.host.Expiry.Due(ctx)
		if !ok {
			return
		}
		s.expire(ctx, due)
	}
}

// graceLoop marks what was not acknowledged in time, until ctx ends.
func (s *Server) graceLoop(ctx context.Context) {
	for {
		due, ok := s.host.Grace.Due(ctx)
		if !ok {
			return
		}
		s.overdue(ctx, due)
	}
}

// expire closes the sessions whose resume window has passed.
func (s *Server) expire(ctx context.Context, due []session.Deadline) {
	closed, err := s.closeSessions(ctx, session.Expired(due))
	s.count.sessionsExpired.Add(int64(closed))
	if err != nil {
		s.log.Warn("sessions expired, and their rows wait to be marked", "sessions", closed, "error", err)
	}
}

// learn tells sessions what their users have acknowledged elsewhere: over another node, of which this one is not told.
func (s *Server) learn(ctx context.Context, keys []storage.StateKey) {
	if len(keys) == 0 || s.pulse.Alone() {
		return
	}
	states, _ := s.storage.States(ctx, keys) // without them rows are marked that need not be
	for _, st := range states {
		for _, sess := range s.sessions.Of(st.UserID) {
			sess.Acknowledged(st.ChatID, st.Acked)
		}
	}
}

// overdue marks a row for each position whose client did not acknowledge within the grace period.
func (s *Server) overdue(ctx context.Context, due []session.Deadline) {
	s.learn(ctx, session.Unacknowledged(due))
	//rule:pending_or_delivered.mark-after-grace
	rows := session.Overdue(due)
	s.count.graceExpired.Add(int64(len(rows)))
	if err := s.mark(ctx, rows); err != nil {
		s.debts.Mark(rows)
	}
}
