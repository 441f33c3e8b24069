package redis

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark/internal/redis"
)

// Run makes the calls of the tickets, and prolongs those whose sessions this node holds, until ctx
// ends. Afterwards every call is Unavailable. A Tickets value must have exactly one Run.
func (s *Tickets) Run(ctx context.Context) {
	s.trips.Start()
	defer s.trips.Abort()
	tick := time.NewTicker(min(prolongEvery, s.cfg.ResumeWindow/10))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.prolong(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Counters returns the metrics of the tickets (transports.CounterFunc).
func (s *Tickets) Counters() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]int64{
		"tickets": int64(len(s.held)), "tickets_unavailable_total": s.failures.Load(),
	}
}

// prolong prolongs the tickets that are due in Redis, and forgets those that have ended.
func (s *Tickets) prolong(ctx context.Context) {
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

// collect returns the tickets that are due, up to holdAtOnce of them, with the calls that prolong
// them. It sets when each is due again.
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
				h.due = now.Add(2 * s.cfg.ResumeWindow) // the ticket ends before that
			}
		}
		if len(calls) == holdAtOnce {
			return names, calls
		}
	}
	return names, calls
}

// postpone makes a ticket due at the next tick.
func (s *Tickets) postpone(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.held[name]; h != nil {
		h.due = time.Time{}
	}
}

// release forgets a ticket that has another session now.
func (s *Tickets) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, name)
}
