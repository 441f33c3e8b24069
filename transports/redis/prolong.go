package redis

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark/internal/redis"
)

// Run answers for the tickets, and keeps those alive whose sessions this node holds, until ctx ends; afterwards all is Unavailable. There is one Run of each
// Tickets.
func (s *Tickets) Run(ctx context.Context) {
	s.trips.Start()
	defer s.trips.Abort()
	tick := time.NewTicker(min(tendEvery, s.cfg.ResumeWindow/10))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.tend(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Counters returns what was counted (transports.CounterFunc).
func (s *Tickets) Counters() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]int64{
		"tickets": int64(len(s.held)), "tickets_unavailable_total": s.failures.Load(),
	}
}

// tend tells Redis of the tickets that are due, and forgets those that are over.
func (s *Tickets) tend(ctx context.Context) {
	for now := time.Now(); ctx.Err() == nil; {
		names, calls := s.collect(now)
		if len(calls) == 0 {
			return
		}
		failed := false
		for i, reply := range s.cfg.Client.Run(ctx, calls) {
			switch kept, _ := reply.Value.(int64); {
			case reply.Err != nil:
				failed = true
				s.postpone(names[i])
			case kept == 0:
				s.release(names[i])
			}
		}
		if failed {
			s.failures.Add(1)
			return
		}
	}
}

// collect returns the tickets that are due, a round trip of them, and the calls that hold them. They are due again when it is time.
func (s *Tickets) collect(now time.Time) (names []string, calls []redis.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, h := range s.held {
		switch {
		case h.over(now, s.cfg.ResumeWindow):
			delete(s.held, name)
		//rule:ticket_once.prolong-held-ticket
		case !now.Before(h.due):
			names, calls = append(names, name), append(calls, s.holding(name, *h, now, "keep"))
			if h.due = now.Add(s.cfg.ResumeWindow / 2); h.connections == 0 {
				h.due = now.Add(2 * s.cfg.ResumeWindow) // it is told of once, and then over
			}
		}
		if len(calls) == holdAtOnce {
			return names, calls
		}
	}
	return names, calls
}

// postpone lets a ticket be told of again at the next look.
func (s *Tickets) postpone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		h.due = time.Time{}
	}
}

// release forgets a ticket that has another session by now.
func (s *Tickets) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, name)
}
