package tickets

import (
	"context"
	"time"
)

// Run makes the calls of the tickets, and prolongs those whose sessions this node holds, until ctx
// ends. Afterwards every call is Unavailable. A Tickets value must have exactly one Run.
func (s *Tickets) Run(ctx context.Context) {
	s.cfg.Store.Start()
	defer s.cfg.Store.Stop()
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

// prolong prolongs the tickets that are due, and forgets those that have ended.
func (s *Tickets) prolong(ctx context.Context) {
	for now := time.Now(); ctx.Err() == nil; {
		names, due := s.collect(now)
		if len(due) == 0 {
			return
		}
		failed := false
		for i, done := range s.cfg.Store.Hold(ctx, due) {
			switch {
			case done.Err != nil:
				failed = true
				s.postpone(names[i])
			case !done.Kept:
				s.release(names[i])
			}
		}
		if failed {
			s.failures.Add(1)
			return
		}
	}
}

// collect returns the tickets that are due, up to holdAtOnce of them. It sets when each is due
// again.
func (s *Tickets) collect(now time.Time) (names []string, due []Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, h := range s.held {
		switch {
		case h.over(now, s.cfg.ResumeWindow):
			delete(s.held, name)
		//rule:ticket_once.prolong-held-ticket
		case !now.Before(h.due):
			names, due = append(names, name), append(due, s.holding(name, *h, now))
			if h.due = now.Add(s.cfg.ResumeWindow / 2); h.connections == 0 {
				h.due = now.Add(2 * s.cfg.ResumeWindow) // the ticket ends before that
			}
		}
		if len(due) == holdAtOnce {
			return names, due
		}
	}
	return names, due
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
