package auth

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// maxTickets bounds the tickets of everybody, maxUserTickets those of one user.
	maxTickets     = 100_000
	maxUserTickets = 128
)

// ticket is what a ticket stands for. It is fresh until it is redeemed, then opening until it is bound, then bound.
type ticket struct {
	identity Identity
	redeemed bool
	// session is the one that it opened, "" until it is bound.
	session tidemark.SessionID
	// connections is how many hold the session by this ticket now.
	connections int
	// ends is when it ends; not looked at while there is a connection.
	ends time.Time
}

func (t *ticket) over(now time.Time) bool {
	return t.connections == 0 && !now.Before(t.ends) || t.identity.Ended() != nil
}

// tickets are the tickets that are alive, in memory: a restarted server makes its clients get new ones.
type tickets struct {
	ttl    time.Duration
	resume time.Duration

	mu     sync.Mutex
	live   map[string]*ticket
	byUser map[tidemark.UserID]int
	// sweepAt is the number of tickets at which the ended ones are looked for.
	sweepAt int
}

// leastSweep is the least number of tickets for which sweeping is worth while.
const leastSweep = 1_024

func newTickets(ttl, resume time.Duration) *tickets {
	return &tickets{ttl: ttl, resume: resume, live: make(map[string]*ticket), byUser: make(map[tidemark.UserID]int), sweepAt: leastSweep}
}

func (s *tickets) issue(id Identity) (string, time.Time, error) {
	name := rand.Text() // 130 bits
	now := time.Now()
	expires := now.Add(s.ttl)
	if !id.Expires.IsZero() && id.Expires.Before(expires) {
		expires = id.Expires
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.live) >= s.sweepAt || s.byUser[id.User] >= maxUserTickets {
		s.sweep(now)
	}
	if len(s.live) >= maxTickets || s.byUser[id.User] >= maxUserTickets {
		return "", time.Time{}, tidemark.Errorf(tidemark.Exhausted, "too many tickets wait to be used; try again in %d seconds", int(s.ttl/time.Second))
	}
	// A ticket is for a browser: it can do nothing for which its user needs a backend.
	id.ticket, id.Backend = name, false
	s.live[name] = &ticket{identity: id, ends: expires}
	s.byUser[id.User]++
	return name, expires, nil
}

// redeem accepts a ticket once, and then for the session that it opened.
func (s *tickets) redeem(name string, session tidemark.SessionID) (Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.get(name)
	switch {
	case t == nil:
		return Identity{}, errTicket()
	case !t.redeemed:
		t.redeemed = true
	case session == "" || t.session != session:
		return Identity{}, errTicket()
	}
	return t.identity, nil
}

// look accepts a ticket without using it up.
func (s *tickets) look(name string) (Identity, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.get(name); t != nil {
		return t.identity, nil
	}
	return Identity{}, errTicket()
}

func (s *tickets) bind(name string, session tidemark.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.live[name]
	if t == nil {
		return
	}
	if t.session != session {
		t.session, t.connections = session, 0
	}
	t.connections++
}

func (s *tickets) leave(name string, session tidemark.SessionID) {
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

// count returns how many tickets are remembered.
func (s *tickets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// get returns a ticket that is alive, or nil. The caller holds mu.
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
	if s.byUser[t.identity.User]--; s.byUser[t.identity.User] <= 0 {
		delete(s.byUser, t.identity.User)
	}
}

func errTicket() error {
	return tidemark.Errorf(tidemark.Unauthenticated, "the ticket is unknown, used or has ended; get a new one from POST /api/v1/tickets")
}
