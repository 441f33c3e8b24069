package presence

import (
	"testing"
	"time"
)

// TestPerson_steps: each step from each state, as the table of person says.
func TestPerson_steps(t *testing.T) {
	start := time.Unix(1_000, 0)
	now := start.Add(time.Second)
	steps := map[string]func(*person) bool{
		"came":        func(q *person) bool { return q.came(now) },
		"left":        func(q *person) bool { return q.left(now, 0) },
		"has a lease": func(q *person) bool { return q.check(true, now, now) },
		"has none":    func(q *person) bool { return q.check(false, now, now) },
		"has none when due": func(q *person) bool {
			return q.check(false, start.Add(lingers), start.Add(lingers))
		},
		// What happened since the look-up began is newer.
		"had a lease": func(q *person) bool { return q.check(true, start.Add(-1), now) },
		"had none":    func(q *person) bool { return q.check(false, start.Add(-1), now) },
	}
	for _, tc := range []struct {
		from personState
		step string
		want personState
		// changed says that others see a difference.
		changed bool
	}{
		{unknown, "came", online, true},
		{unknown, "left", leaving, true},
		{unknown, "has a lease", online, true},
		{unknown, "has none", offline, true},
		{unknown, "had a lease", online, true},
		{unknown, "had none", offline, true},

		{online, "came", online, false},
		{online, "left", leaving, false},
		{online, "has a lease", online, false},
		{online, "has none", leaving, false},
		{online, "had none", online, false},

		{leaving, "came", online, false},
		{leaving, "left", leaving, false},
		{leaving, "has a lease", online, false},
		{leaving, "has none", leaving, false},
		{leaving, "has none when due", offline, true},
		{leaving, "had a lease", leaving, false},

		{offline, "came", online, true},
		{offline, "left", offline, false},
		{offline, "has a lease", online, true},
		{offline, "has none", offline, false},
		{offline, "had a lease", offline, false},
	} {
		q := &person{state: tc.from, since: start, due: start.Add(lingers)}
		changed := steps[tc.step](q)
		if q.state != tc.want || changed != tc.changed {
			t.Errorf("%d, %s: got %d, changed %t; want %d, changed %t", tc.from, tc.step, q.state,
				changed, tc.want, tc.changed)
		}
	}
}

// TestPerson_left_twice: a person who leaves a second node lingers from then on.
func TestPerson_left_twice(t *testing.T) {
	start := time.Unix(1_000, 0)
	q := &person{state: online, since: start}
	q.left(start, 1)
	q.left(start.Add(20*time.Second), 2)
	at := start.Add(lingers)
	if q.check(false, at, at); q.state != leaving || q.seen != 2 {
		t.Errorf("got %d, seen at %d; want %d, seen at 2", q.state, q.seen, leaving)
	}
}
