package session

import (
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

func TestAttachment_only_the_newest_reads(t *testing.T) {
	var a attachment
	if a.abandoned(0) && a.generation != 0 {
		t.Error("a session without a reader has a generation")
	}
	older := signal.New()
	if replaced := a.attach(older); replaced || a.generation != 1 || a.state != attached {
		t.Errorf("first attach: replaced %v, %+v", replaced, a)
	}
	if replaced := a.attach(signal.New()); !replaced || a.generation != 2 {
		t.Errorf("second attach: replaced %v, %+v", replaced, a)
	}
	if !older.Clear() {
		t.Error("the older reader was not signalled")
	}
	if err := a.owns(1); tidemark.CodeOf(err) != tidemark.Replaced {
		t.Errorf("owns(1) = %v, want Replaced", err)
	}
	if err := a.owns(2); err != nil {
		t.Errorf("owns(2) = %v, want nil", err)
	}
	if a.detach(1) || a.state != attached {
		t.Error("the older reader detached the newer one")
	}
	if a.abandoned(2) {
		t.Error("abandoned while a reader is attached")
	}
	if !a.detach(2) || !a.abandoned(2) || a.abandoned(1) {
		t.Errorf("after detach(2): %+v", a)
	}
	a.attach(signal.New())
	if a.abandoned(2) {
		t.Error("a deadline of an earlier connection ends the session of a newer one")
	}
}

// A session that has moved is as if a connection had just left it.
func TestAttachment_of_a_session_that_has_moved(t *testing.T) {
	var a attachment
	left := a.land()
	if left == 0 || !a.abandoned(left) {
		t.Errorf("land = %d, %+v, want a generation that counts as left", left, a)
	}
	a.attach(signal.New())
	if a.abandoned(left) {
		t.Error("the resume window ends a session that has a reader")
	}
}
