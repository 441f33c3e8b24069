package server

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// closeSessions closes sessions cleanly, in the order of R_ORDER: detach, mark, release. A session that could not mark, or whose open had
// not finished looking, leaves no proof. It returns the error of the marks.
func (s *Server) closeSessions(ctx context.Context, closing []*Session) error {
	var rows []tidemark.PendingDelivery
	var detached []*Session
	for _, sess := range closing {
		left, first := sess.End()
		if !first {
			continue
		}
		s.sessions.remove(sess)
		rows = append(rows, left...)
		detached = append(detached, sess)
	}
	err := s.mark(ctx, rows)
	if err != nil {
		s.owe(debt{rows: rows})
	}
	for _, sess := range detached {
		s.release(ctx, sess, err == nil)
	}
	return err
}

// release gives the lease back and leaves the proof, if it is true.
func (s *Server) release(ctx context.Context, sess *Session, marked bool) {
	proof, leased := sess.Proof()
	if !leased {
		return
	}
	if !marked {
		proof = nil
	}
	if err := s.registry.Close(ctx, sess.Lease, proof); err != nil {
		s.registryFailed("a lease was not released", err)
	}
}

// expire closes the sessions whose resume window has passed.
func (s *Server) expire(ctx context.Context, due []session.Deadline) {
	over := session.Expired(due)
	s.count.sessionsExpired.Add(int64(len(over)))
	if err := s.closeSessions(ctx, over); err != nil {
		s.log.Warn("sessions expired, and their rows wait to be marked", "sessions", len(over), "error", err)
	}
}

// overdue marks a row for each position whose client did not acknowledge within the grace period.
func (s *Server) overdue(ctx context.Context, due []session.Deadline) {
	rows := session.Overdue(due)
	s.count.graceExpired.Add(int64(len(rows)))
	if err := s.mark(ctx, rows); err != nil {
		s.owe(debt{rows: rows})
	}
}
