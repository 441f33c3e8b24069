package session

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Deadlines is a queue of sessions that are looked at after a time that is the same for all of them, so that it is in order. It is safe
// for concurrent use.
type Deadlines struct {
	after  time.Duration
	signal chan struct{}

	mu    sync.Mutex
	queue []Deadline
}

// Deadline is one entry.
type Deadline struct {
	due        time.Time
	session    *Session
	generation uint32            // of a resume window
	position   *position         // of a grace period
	sequence   tidemark.Sequence // of a grace period: what was woken when it began
}

// NewDeadlines returns an empty queue.
func NewDeadlines(after time.Duration) *Deadlines {
	return &Deadlines{after: after, signal: make(chan struct{}, 1)}
}

func (d *Deadlines) push(e Deadline) {
	d.mu.Lock()
	e.due = time.Now().Add(d.after)
	d.queue = append(d.queue, e)
	first := len(d.queue) == 1
	d.mu.Unlock()
	if first {
		notify(d.signal)
	}
}

// pop returns the entries that are due, and how long it is until the next one is; 0 if there is none.
func (d *Deadlines) pop(now time.Time) (due []Deadline, next time.Duration) {
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
		next = d.queue[0].due.Sub(now)
	}
	return due, next
}

// Loop calls f with what is due, until ctx ends. Entries that fall due within a fortieth of the time are taken together.
func (d *Deadlines) Loop(ctx context.Context, f func(due []Deadline)) {
	for {
		due, next := d.pop(time.Now())
		if len(due) > 0 {
			f(due)
			continue
		}
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(max(next, d.after/40))
		}
		select {
		case <-d.signal:
		case <-timer:
		case <-ctx.Done():
			return
		}
	}
}

// notify sends on a channel that has room for one signal, unless one waits there. It never blocks, on a nil channel either.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Expired returns the sessions of the entries: those to which no connection came back are to be ended.
func Expired(due []Deadline) []Ending {
	endings := make([]Ending, len(due))
	for i, e := range due {
		endings[i] = Ending{Session: e.session, generation: e.generation}
	}
	return endings
}

// Unacknowledged returns the chats of the entries whose client has not acknowledged, as far as their sessions know.
func Unacknowledged(due []Deadline) []storage.StateKey {
	var keys []storage.StateKey
	for _, e := range due {
		e.session.mu.Lock()
		if !e.session.closed && e.position.acked < e.sequence {
			keys = append(keys, storage.StateKey{User: e.session.User, Chat: e.position.chat})
		}
		e.session.mu.Unlock()
	}
	return keys
}

// Overdue returns the rows to be marked for the entries whose client did not acknowledge in time. Their sessions know then that a row may stand.
func Overdue(due []Deadline) []tidemark.PendingDelivery {
	var rows []tidemark.PendingDelivery
	for _, e := range due {
		s, p := e.session, e.position
		s.mu.Lock()
		switch {
		case s.closed:
		case p.woken <= p.acked:
			p.graced = false
			s.room()
		case p.acked < e.sequence:
			//rule:pending_once.mark-once-after-grace
			p.graced, p.row = false, true
			//rule:pending_or_delivered.row-after-grace
			rows = append(rows, p.pending(s.User))
		default: // the entry's own message was acknowledged, a later one was not yet
			//rule:pending_or_delivered.grace-for-later-message
			s.node.Grace.push(Deadline{session: s, position: p, sequence: p.woken})
		}
		s.mu.Unlock()
	}
	return rows
}
