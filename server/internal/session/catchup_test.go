package session

import (
	"testing"

	"github.com/tidemark-im/tidemark"
)

func TestCatchUp_steps(t *testing.T) {
	for _, tt := range []struct {
		from, restart catchUpState
		backlog       int
		complete, due bool
	}{
		{catching, catching, 0, true, true},
		{catching, catching, 1, true, false},
		{catching, catching, 0, false, false},
		{caughtUp, catching, 0, true, false},
		{awaitingCursors, awaitingCursors, 0, true, false},
	} {
		c := catchUp{state: tt.from, backlog: tt.backlog}
		if got := c.due(tt.complete); got != tt.due {
			t.Errorf("%+v, complete %v: due = %v, want %v", c, tt.complete, got, tt.due)
		}
		if c.restart(); c.state != tt.restart {
			t.Errorf("state %d, restart: got %d, want %d", tt.from, c.state, tt.restart)
		}
	}
}

// `caught_up` waits for the messages that were known when it was counted, and not for later ones.
func TestCatchUp_waits_for_what_was_known_when_it_was_counted(t *testing.T) {
	var c catchUp
	p := at(1, 1, 5, 0)
	c.expect(p)
	c.expect(p)
	if c.backlog != 1 {
		t.Fatalf("backlog = %d, want 1", c.backlog)
	}
	p.head = 9
	for _, tt := range []struct {
		through   tidemark.Sequence
		openEnded bool
		want      int
	}{{4, false, 1}, {5, true, 1}, {5, false, 0}, {6, false, 0}} {
		p.next, p.openEnded = tt.through+1, tt.openEnded
		if c.served(p); c.backlog != tt.want {
			t.Errorf("served through %d, open-ended %v: backlog %d, want %d",
				tt.through, tt.openEnded, c.backlog, tt.want)
		}
	}
}
