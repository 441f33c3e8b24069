package server

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// closeSessions closes sessions cleanly, in the order of R_ORDER: detach, mark, release. A session that could not mark, or whose open had
// not finished looking, leaves no proof. It returns the error of the marks.
func (s *Server) closeSessions(ctx context.Context, closing []*Session) error {
	var rows []tidemark.PendingDelivery
	detached := closing[:0:0]
	for _, sess := range closing {
		left, first := sess.end()
		if !first {
			continue
		}
		s.sessions.remove(sess)
		s.count.sessions.Add(-1)
		rows = append(rows, left...)
		detached = append(detached, sess)
	}
	err := s.mark(ctx, rows)
	if err != nil {
		s.owe(debt{rows: rows})
	}
	for _, sess := range detached {
		sess.release(ctx, err == nil)
	}
	return err
}

// end detaches the session for good: nothing reaches it any more. It returns the rows that have to be marked, and false if it had ended before.
func (s *Session) end() (rows []tidemark.PendingDelivery, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.closed = true
	for _, p := range s.chats {
		if p.unacknowledged() {
			rows = append(rows, tidemark.PendingDelivery{
				UserID: s.user, ChatID: p.chat, FirstUndelivered: tidemark.First(p.acked),
			})
		}
	}
	s.chats, s.wakes, s.statuses, s.statusOrder, s.snapshots = nil, nil, nil, nil, nil
	s.notify()
	return rows, true
}

// release gives the lease back and leaves the proof, if it is true.
func (s *Session) release(ctx context.Context, marked bool) {
	s.mu.Lock()
	proof := &s.epoch
	if !marked || !s.complete {
		proof = nil
	}
	leased := s.leased
	s.mu.Unlock()
	if !leased {
		return
	}
	if err := s.server.registry.Close(ctx, s.lease, proof); err != nil {
		s.server.count.registryErrors.Add(1)
		s.server.log.Warn("a lease was not released", "session", s.id, "error", err)
	}
}

// deadlines is a queue of sessions that are looked at after a time that is the same for all of them, so that it is in order. It is safe
// for concurrent use.
type deadlines struct {
	after  time.Duration
	signal chan struct{}

	mu    sync.Mutex
	queue []deadline
}

type deadline struct {
	due        time.Time
	session    *Session
	generation uint32            // of a resume window
	position   *position         // of a grace period
	sequence   tidemark.Sequence // of a grace period: what was woken when it began
}

func newDeadlines(after time.Duration) deadlines {
	return deadlines{after: after, signal: make(chan struct{}, 1)}
}

func (d *deadlines) push(e deadline) {
	d.mu.Lock()
	e.due = time.Now().Add(d.after)
	d.queue = append(d.queue, e)
	first := len(d.queue) == 1
	d.mu.Unlock()
	if first {
		signal(d.signal)
	}
}

// pop returns the entries that are due, and how long it is until the next one is; 0 if there is none.
func (d *deadlines) pop(now time.Time) (due []deadline, next time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.queue) && !d.queue[n].due.After(now) {
		n++
	}
	if n > 0 {
		due = append([]deadline(nil), d.queue[:n]...)
		d.queue = append(d.queue[:0], d.queue[n:]...)
	}
	if len(d.queue) > 0 {
		next = d.queue[0].due.Sub(now)
	}
	return due, next
}

// loop calls f with what is due, until ctx ends. Entries that fall due within a fortieth of the time are taken together.
func (d *deadlines) loop(ctx context.Context, f func(due []deadline)) {
	for {
		due, next := d.pop(time.Now())
		if len(due) > 0 {
			f(due)
			continue
		}
		if !wait(ctx, d.signal, max(next, d.after/40), next > 0) {
			return
		}
	}
}

// expiries ends the sessions to which no connection came back. It has at most one entry for each detachment.
type expiries struct{ deadlines }

func (x *expiries) add(s *Session, generation uint32) {
	x.push(deadline{session: s, generation: generation})
}

// expire closes the sessions whose resume window has passed.
func (s *Server) expire(ctx context.Context, due []deadline) {
	var over []*Session
	for _, e := range due {
		e.session.mu.Lock()
		if !e.session.closed && !e.session.attached && e.session.generation == e.generation {
			over = append(over, e.session)
		}
		e.session.mu.Unlock()
	}
	if len(over) == 0 {
		return
	}
	s.count.sessionsExpired.Add(int64(len(over)))
	if err := s.closeSessions(ctx, over); err != nil {
		s.log.Warn("sessions expired, and their rows wait to be marked", "sessions", len(over), "error", err)
	}
}

// graces marks what was woken and is not acknowledged in time. It has at most one entry for each position.
type graces struct{ deadlines }

func (g *graces) add(s *Session, p *position, sequence tidemark.Sequence) {
	g.push(deadline{session: s, position: p, sequence: sequence})
}

// overdue marks a row for each position whose client did not acknowledge within the grace period.
func (s *Server) overdue(ctx context.Context, due []deadline) {
	var rows []tidemark.PendingDelivery
	for _, e := range due {
		e.session.mu.Lock()
		p := e.position
		switch {
		case e.session.closed:
		case p.row, p.woken <= p.acked:
			p.graced = false
		case p.acked < e.sequence:
			p.graced, p.row = false, true
			rows = append(rows, tidemark.PendingDelivery{
				UserID: e.session.user, ChatID: p.chat, FirstUndelivered: tidemark.First(p.acked),
			})
		default: // the entry's own message was acknowledged, a later one was not yet
			s.grace.add(e.session, p, p.woken)
		}
		e.session.mu.Unlock()
	}
	if len(rows) == 0 {
		return
	}
	s.count.graceExpired.Add(int64(len(rows)))
	if err := s.mark(ctx, rows); err != nil {
		s.owe(debt{rows: rows})
	}
}
