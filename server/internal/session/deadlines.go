package session

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage"
)

// Deadlines is a queue of sessions to look at later. The delay is the same for all, so the queue is
// in order. It is safe for concurrent use.
type Deadlines struct {
	after time.Duration
	flag  signal.Flag

	mu    sync.Mutex
	queue []Deadline
}

// Deadline is one entry of the queue.
type Deadline struct {
	due      time.Time
	session  *Session
	left     uint32            // for a resume window: the generation of the connection that left
	progress *progress         // for a grace period
	sequence tidemark.Sequence // for a grace period: the head when it began
}

// NewDeadlines returns an empty queue with a delay.
func NewDeadlines(after time.Duration) *Deadlines {
	return &Deadlines{after: after, flag: signal.New()}
}

// push enters a deadline, and returns the time from which its delay runs.
func (d *Deadlines) push(e Deadline) (began time.Time) {
	d.mu.Lock()
	began = time.Now()
	e.due = began.Add(d.after)
	d.queue = append(d.queue, e)
	first := len(d.queue) == 1
	d.mu.Unlock()
	if first {
		d.flag.Set()
	}
	return began
}

// take removes and returns the entries that are due. next is when the next one is due, or zero.
func (d *Deadlines) take(now time.Time) (due []Deadline, next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for n < len(d.queue) && !d.queue[n].due.After(now) {
		n++
	}
	if n > 0 {
		due = append([]Deadline(nil), d.queue[:n]...)
		left := copy(d.queue, d.queue[n:])
		clear(d.queue[left:]) // release the sessions of removed entries
		d.queue = d.queue[:left]
	}
	if len(d.queue) > 0 {
		next = d.queue[0].due
	}
	return due, next
}

// Due waits for entries that are due, and returns them. It returns false when ctx ends. It collects
// entries for up to a fortieth of the delay, so that it wakes seldom.
func (d *Deadlines) Due(ctx context.Context) ([]Deadline, bool) {
	for {
		now := time.Now()
		due, next := d.take(now)
		if len(due) > 0 {
			return due, true
		}
		if soon := now.Add(d.after / 40); !next.IsZero() && next.Before(soon) {
			next = soon
		}
		if _, ok := d.flag.WaitUntil(ctx, next); !ok {
			return nil, false
		}
	}
}

// Expired returns requests to end the sessions whose resume window is over. End does nothing if a
// connection came back.
func Expired(due []Deadline) []Ending {
	endings := make([]Ending, len(due))
	for i, e := range due {
		endings[i] = Ending{Session: e.session, reason: Closed, left: e.left}
	}
	return endings
}

// LookAgain makes sessions look at the aggregates that they read too early.
func LookAgain(due []Deadline) {
	for _, e := range due {
		s := e.session
		s.mu.Lock()
		if !s.residence.final() {
			s.statuses.intervalOver()
			s.attachment.flag.Set()
		}
		s.mu.Unlock()
	}
}

// TellWritten makes sessions send their clients the user's own boundaries that were written.
func TellWritten(due []Deadline) {
	for _, e := range due {
		s := e.session
		s.mu.Lock()
		for _, chat := range s.statuses.written {
			b := s.host.Watermarks.Own(s.User(), chat)
			if b != (tidemark.Boundary{}) {
				s.statuses.raise(statusKey{chat, s.User()}, b)
			}
		}
		s.statuses.written = nil
		s.attachment.flag.Set()
		s.mu.Unlock()
	}
}

// Overstayed returns the sessions that are still arriving. The caller ends them.
func Overstayed(due []Deadline) []*Session {
	var late []*Session
	for _, e := range due {
		e.session.mu.Lock()
		if e.session.residence.arrives() {
			late = append(late, e.session)
		}
		e.session.mu.Unlock()
	}
	return late
}

// Unacknowledged returns the chats of those grace periods in which the client has not acknowledged,
// as far as the session knows.
func Unacknowledged(due []Deadline) []storage.StateKey {
	var keys []storage.StateKey
	for _, e := range due {
		e.session.mu.Lock()
		if !e.session.residence.final() && e.progress.acked < e.sequence {
			keys = append(keys, e.session.key(e.progress.chat))
		}
		e.session.mu.Unlock()
	}
	return keys
}

// Overdue returns the rows to mark for clients that did not acknowledge in time. It also records in
// their sessions that a row may exist.
func Overdue(due []Deadline) []tidemark.PendingDelivery {
	var rows []tidemark.PendingDelivery
	for _, e := range due {
		s, p := e.session, e.progress
		s.mu.Lock()
		switch {
		case s.residence.final():
		case !p.behind():
			p.grace = graceOff
			s.madeRoom()
		case p.acked < e.sequence:
			//rule:pending_once.mark-once-after-grace
			p.grace, p.mayBePending = graceOff, true
			//rule:pending_or_delivered.row-after-grace
			rows = append(rows, p.pending(s.User()))
		// The first message was acknowledged, a later one was not.
		default:
			// All that was there when the last period began is acknowledged.
			//rule:stats_of_all_nodes.age-goes-on-with-a-later-message
			p.since = uint32(e.due.Add(-s.host.Grace.after).Unix())
			//rule:pending_or_delivered.grace-for-later-message
			s.host.Grace.push(Deadline{session: s, progress: p, sequence: p.head})
		}
		s.mu.Unlock()
	}
	return rows
}
