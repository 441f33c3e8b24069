package auth

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

// maxTickets bounds the tickets of all users.
const maxTickets = 100_000

// ticket is a ticket in memory. It is fresh until it is redeemed, then opening until Bind, then
// bound.
type ticket struct {
	Ticket
	redeemed bool
	// session is the session that the ticket opened, or "" before Bind.
	session tidemark.SessionID
	// connections is how many connections hold the session by this ticket.
	connections int
	// ends is when the ticket ends. It counts only while connections is 0.
	ends time.Time
}

// over reports whether the ticket has ended.
func (t *ticket) over(now time.Time) bool {
	//rule:ticket_once.unused-ticket-expires
	return t.connections == 0 && !now.Before(t.ends) || t.Ticket.over(now)
}

// tickets implements Tickets in memory, for one node. After a restart, clients need new tickets.
type tickets struct {
	ttl    time.Duration
	resume time.Duration

	mu     sync.Mutex
	live   map[string]*ticket
	byUser map[tidemark.UserID]int
	// sweepAt is the number of tickets at which Issue drops those that have ended.
	sweepAt int
}

// leastSweep is the smallest number of tickets that is worth a sweep.
const leastSweep = 1_024

func newTickets(ttl, resume time.Duration) *tickets {
	return &tickets{
		ttl:     ttl,
		resume:  resume,
		live:    make(map[string]*ticket),
		byUser:  make(map[tidemark.UserID]int),
		sweepAt: leastSweep,
	}
}

// Issue implements Tickets.
func (s *tickets) Issue(_ context.Context, t Ticket) (string, time.Time, error) {
	name := t.NewName()
	now := time.Now()
	expires := t.Ends(now, s.ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live) >= s.sweepAt || s.byUser[t.User] >= MaxUserTickets {
		s.sweep(now)
	}
	//rule:bounded_use.limit-tickets
	if len(s.live) >= maxTickets || s.byUser[t.User] >= MaxUserTickets {
		return "", time.Time{}, ErrTickets(s.ttl)
	}
	s.live[name] = &ticket{Ticket: t, ends: expires}
	s.byUser[t.User]++
	return name, expires, nil
}

// Redeem implements Tickets.
func (s *tickets) Redeem(
	_ context.Context, name string, session tidemark.SessionID,
) (Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.get(name)
	switch {
	case t == nil:
		return Ticket{}, ErrTicket()
	case !t.redeemed:
		//rule:ticket_once.use-up-ticket
		t.redeemed = true
	//rule:ticket_once.resume-session-of-ticket
	case session == "" || t.session != session:
		return Ticket{}, ErrTicket()
	}
	return t.Ticket, nil
}

// Look implements Tickets.
func (s *tickets) Look(_ context.Context, name string) (Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.get(name); t != nil {
		//rule:ticket_once.beacon-keeps-ticket
		return t.Ticket, nil
	}
	return Ticket{}, ErrTicket()
}

// Bind implements Tickets.
func (s *tickets) Bind(_ context.Context, name string, _ Ticket, session tidemark.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.live[name]
	if t == nil {
		return
	}
	if t.session != session {
		//rule:ticket_once.new-session-counts-anew
		t.session, t.connections = session, 0
	}
	t.connections++
}

// Leave implements Tickets.
func (s *tickets) Leave(name string, session tidemark.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.live[name]
	if t == nil || t.session != session || t.connections == 0 {
		return
	}
	if t.connections--; t.connections == 0 {
		t.ends = time.Now().Add(s.resume)
	}
}

// count returns the number of tickets.
func (s *tickets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// get returns a ticket that has not ended, or nil. The caller holds mu.
func (s *tickets) get(name string) *ticket {
	t := s.live[name]
	if t != nil && t.over(time.Now()) {
		s.drop(name, t)
		return nil
	}
	return t
}

// sweep drops the tickets that have ended. The caller holds mu.
func (s *tickets) sweep(now time.Time) {
	for name, t := range s.live {
		if t.over(now) {
			s.drop(name, t)
		}
	}
	s.sweepAt = max(leastSweep, 2*len(s.live))
}

// drop forgets a ticket. The caller holds mu.
func (s *tickets) drop(name string, t *ticket) {
	delete(s.live, name)
	if s.byUser[t.User]--; s.byUser[t.User] <= 0 {
		delete(s.byUser, t.User)
	}
}
