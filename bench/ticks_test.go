package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

func TestTicks_wait_for_everybody_else(t *testing.T) {
	var h measure.Histogram
	k := newTicks("alice", 2, &h)
	k.confirmed(1, 0, time.Millisecond)
	k.confirmed(2, 0, time.Millisecond)
	for _, tc := range []struct {
		user  string
		acked int
		open  int
	}{
		{"alice", 2, 2}, // her own boundary says nothing
		{"bob", 2, 2},
		{"carol", 1, 1},
		{"bob", 1, 1}, // stale
		{"carol", 2, 0},
	} {
		status := fmt.Appendf(nil,
			`{"chat_id":"c","user_id":%q,"last_acked_sequence":%d,"last_read_sequence":0}`,
			tc.user, tc.acked)
		k.status(status, 2*time.Millisecond)
		if got := k.open(); got != tc.open {
			t.Errorf("after %s has %d: %d ticks are open, want %d", tc.user, tc.acked, got, tc.open)
		}
	}
	k.confirmed(2, 0, 3*time.Millisecond) // the tick came before the confirmation
	if got := h.Count(); got != 3 || k.open() != 0 {
		t.Errorf("%d ticks measured, %d open, want 3, 0", got, k.open())
	}
}

func TestTicks_of_large_groups_are_the_minimum(t *testing.T) {
	var h measure.Histogram
	k := newTicks("alice", 99, &h)
	k.confirmed(1, 0, 0)
	k.confirmed(2, 0, 0)
	k.status([]byte(`{"chat_id":"c","all_acked_sequence":1,"all_read_sequence":0}`),
		time.Millisecond)
	if got := k.open(); got != 1 {
		t.Errorf("%d ticks are open, want 1", got)
	}
}
