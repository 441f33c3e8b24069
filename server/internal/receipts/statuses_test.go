package receipts

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestStatuses_move_as_their_table_says follows the table above the type statuses.
func TestStatuses_move_as_their_table_says(t *testing.T) {
	const interval = time.Second
	const none = statusState(99)
	now := time.UnixMilli(1_000)
	r := &Receipts{statuses: newStatuses()}
	s, key := &r.statuses, statusKey{"c", "bob"}
	raise := func(to tidemark.Sequence) {
		s.mu.Lock()
		defer s.mu.Unlock()
		r.raiseLocked(key, tidemark.Boundary{Acked: to})
	}
	publish := func() (acked tidemark.Sequence) {
		due, _ := s.due(now, interval)
		for _, u := range due["c"] {
			acked = u.Acked
		}
		return acked
	}
	for _, step := range []struct {
		event  string
		raise  tidemark.Sequence // 0: the loop looks what is due
		later  time.Duration
		want   statusState
		pushed tidemark.Sequence
	}{
		{"raised", 3, 0, waiting, 0},
		{"raised again", 2, 0, waiting, 0},
		{"published", 0, 0, paused, 3},
		{"nothing new", 0, interval / 2, paused, 0},
		{"raised in the pause", 4, 0, raised, 0},
		{"raised in the pause again", 5, 0, raised, 0},
		{"the pause goes on", 0, 0, raised, 0},
		{"the pause is over", 0, interval / 2, paused, 5},
		{"the next pause is over", 0, interval, none, 0},
	} {
		now = now.Add(step.later)
		pushed := tidemark.Sequence(0)
		if step.raise > 0 {
			raise(step.raise)
		} else {
			pushed = publish()
		}
		state := none
		if e := s.entries[key]; e != nil {
			state = e.state
		}
		if state != step.want || pushed != step.pushed {
			t.Fatalf("%s: state %d, published %d; want %d, %d",
				step.event, state, pushed, step.want, step.pushed)
		}
	}
}

func TestStatuses_beyond_the_bound_are_dropped_and_counted(t *testing.T) {
	r := &Receipts{statuses: newStatuses()}
	for i := range tidemark.Sequence(maxStatuses + 2) {
		r.raiseLocked(statusKey{"c", tidemark.UserID(fmt.Sprint("u", i))}, tidemark.Boundary{})
	}
	if n, dropped := len(r.statuses.entries), r.Count.UpdatesDropped.Load(); n != maxStatuses ||
		dropped != 2 {
		t.Errorf("%d are kept and %d dropped, want %d and 2", n, dropped, maxStatuses)
	}
}
