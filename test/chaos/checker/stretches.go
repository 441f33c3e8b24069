package checker

import (
	"slices"
	"sync"
	"time"
)

// span is a stretch of time; it goes on while to is zero.
type span struct{ from, to time.Time }

// Stretches are stretches of time that may overlap. The zero value has none. They are safe for concurrent use.
type Stretches struct {
	mu    sync.Mutex // guards what follows
	spans []span
}

// Begin begins a stretch, which goes on until some time after the end that it returns is called.
func (s *Stretches) Begin(after time.Duration) (end func()) {
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

// Outside is how much of the time between two moments is in none of them.
func (s *Stretches) Outside(from, to time.Time) time.Duration {
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

// served is how much of the time from since to now is in one of the spans of a device's connections, and not dark.
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
			sum += l.Dark.Outside(from, to)
		}
	}
	return sum
}
