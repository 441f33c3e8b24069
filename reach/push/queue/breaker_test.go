package queue

import (
	"testing"
	"time"
)

// TestBreaker_table: each step from each state, and whether a request may begin after it.
func TestBreaker_table(t *testing.T) {
	now := time.Unix(1_000, 0)
	failed := func(wait time.Duration) func(*breaker) {
		return func(b *breaker) { b.failed(now, wait) }
	}
	succeeded, began := (*breaker).succeeded, (*breaker).began
	open := breaker{state: breakerOpen, failures: 5, pause: time.Second, until: now}
	probing := breaker{state: breakerProbing, failures: 5, pause: time.Second, until: now}
	for _, tc := range []struct {
		name  string
		from  breaker
		step  func(*breaker)
		want  breakerState
		pause time.Duration // for which it does not allow a request; -1 is until told otherwise
	}{
		{"closed, a success", breaker{}, succeeded, breakerClosed, 0},
		{"closed, a failure", breaker{state: breakerClosed}, failed(0), breakerClosed, 0},
		{"closed, a request", breaker{state: breakerClosed}, began, breakerClosed, 0},
		{"closed, the fourth", breaker{state: breakerClosed, failures: 3}, failed(0),
			breakerClosed, 0},
		{"closed, the fifth", breaker{state: breakerClosed, failures: 4}, failed(0),
			breakerOpen, time.Second},
		{"closed, the fifth, which says when", breaker{state: breakerClosed, failures: 4},
			failed(time.Minute), breakerOpen, time.Minute},
		{"closed, the fifth, which says never", breaker{state: breakerClosed, failures: 4},
			failed(time.Hour), breakerOpen, longestTold},
		{"open, a late success", open, succeeded, breakerOpen, 0},
		{"open, a late failure", open, failed(7 * time.Second), breakerOpen, 7 * time.Second},
		{"open, a request", open, began, breakerProbing, -1},
		{"open, a request that was not made", open, (*breaker).unasked, breakerOpen, 0},
		{"probing, a request that was not made", probing, (*breaker).unasked, breakerOpen, 0},
		{"closed, a request that was not made", breaker{state: breakerClosed, failures: 4},
			(*breaker).unasked, breakerClosed, 0},
		{"probing, a success", probing, succeeded, breakerClosed, 0},
		{"probing, a failure", probing, failed(0), breakerOpen, 2 * time.Second},
		{"probing, a failure after a long pause",
			breaker{state: breakerProbing, pause: longestPause}, failed(0),
			breakerOpen, longestPause},
	} {
		b := tc.from
		tc.step(&b)
		if b.state != tc.want {
			t.Errorf("%s: it is %s, want %s", tc.name, b.state, tc.want)
		}
		at := now.Add(max(tc.pause, 0))
		if got := b.allows(at); got != (tc.pause >= 0) {
			t.Errorf("%s: allows a request after %v = %t", tc.name, tc.pause, got)
		}
		if tc.pause > 0 && b.allows(at.Add(-1)) {
			t.Errorf("%s: allows a request before %v", tc.name, tc.pause)
		}
	}
}
