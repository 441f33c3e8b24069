package session

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage"
)

// Deadlines is a queue of sessions that are looked at after a time that is the same for all of them,
// so that it is in order. It is safe for concurrent use.
type Deadlines struct {
	after time.Duration
	flag  signal.Flag

	mu    sync.Mutex
	queue []Deadline
}

// Deadline is one entry.
type Deadline struct {
	due      time.Time
	session  *Session
	left     uint32            // of a resume window: the generation of the connection that left
	progress *progress         // of a grace period
	sequence tidemark.Sequence // of a grace period: the head when it began
}

// NewDeadlines returns an empty queue.
func NewDeadlines(after time.Duration) *Deadlines {
	return &Deadlines{after: after, flag: signal.New()}
}

func (d *Deadlines) push(e Deadline) {
	d.mu.Lock()
	e.due = time.Now().Add(d.after)
	d.queue = append(d.queue, e)
	first := len(d.queue) == 1
	d.mu.Unlock()
	if first {
		d.flag.Set()
	}
}

// take returns the entries that are due, and when the next one is; zero if there is none.
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
		clear(d.queue[left:]) // no session is held by what is over
		d.queue = d.queue[:left]
	}
	if len(d.queue) > 0 {
		next = d.queue[0].due
	}
	return due, next
}

// Due waits for entries that are due and returns them; false when ctx ends. Those that fall due
// within a fortieth of the time are taken together.
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

// Expired returns the sessions of the entries: those to which no connection came back are to be
// ended.
func Expired(due []Deadline) []Ending {
	endings := make([]Ending, len(due))
	for i, e := range due {
		endings[i] = Ending{Session: e.session, reason: Closed, left: e.left}
	}
	return endings
}

// Overstayed returns the sessions of the entries: those that are still arriving are to be ended.
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

// Unacknowledged returns the chats of the entries whose client has not acknowledged, as far as their
// sessions know.
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

// Overdue returns the rows to be marked for the entries whose client did not acknowledge in time.
// Their sessions know then that a row may stand.
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
		default: // what began the period was acknowledged, a later message was not yet
			//rule:pending_or_delivered.grace-for-later-message
			s.host.Grace.push(Deadline{session: s, progress: p, sequence: p.head})
		}
		s.mu.Unlock()
	}
	return rows
}
