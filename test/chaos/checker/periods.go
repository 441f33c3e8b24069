package checker

import (
	"slices"
	"sync"
	"time"
)

// span is a period of time. It goes on while to is zero.
type span struct{ from, to time.Time }

// Periods are periods of time that may overlap. The zero value has none. Periods is safe for
// concurrent use.
type Periods struct {
	mu    sync.Mutex // guards the fields below
	spans []span
}

// Begin begins a period. It goes on until the given time after the call of end.
func (s *Periods) Begin(after time.Duration) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.spans)
	s.spans = append(s.spans, span{from: time.Now()})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.spans[i].to = time.Now().Add(after)
	}
}

// Outside returns how much of the time between two moments is in none of the periods.
func (s *Periods) Outside(from, to time.Time) time.Duration {
	s.mu.Lock()
	spans := slices.Clone(s.spans)
	s.mu.Unlock()
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	sum, at := time.Duration(0), from
	for _, d := range spans {
		end := d.to
		if end.IsZero() || end.After(to) {
			end = to
		}
		if !end.After(at) || !d.from.Before(to) {
			continue
		}
		if d.from.After(at) {
			sum += d.from.Sub(at)
		}
		at = end
	}
	return sum + max(0, to.Sub(at))
}

// served returns how much of the time from since to now the device was connected, outside of
// outages.
func (l *Ledger) served(since, now time.Time, connected []span) (sum time.Duration) {
	for _, s := range connected {
		from, to := s.from, now
		if since.After(from) {
			from = since
		}
		if !s.to.IsZero() && s.to.Before(now) {
			to = s.to
		}
		if to.After(from) {
			sum += l.Outages.Outside(from, to)
		}
	}
	return sum
}
