package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
)

// TestKnown_only_grows: values that arrive late, or come from an older copy, replace nothing.
func TestKnown_only_grows(t *testing.T) {
	k := NewKnown()
	if _, found := k.Guess("u", "c"); found || k.Reaches("c", 1) {
		t.Error("something is known from the beginning")
	}
	k.SawHead("c", 7)
	k.SawHead("c", 5)
	if !k.Reaches("c", 7) || k.Reaches("c", 8) {
		t.Error("the head that is known is not the highest that was seen")
	}
	state := func(acked, read tidemark.Sequence, n int) State {
		return State{DeliveryState: tidemark.DeliveryState{
			UserID: "u", ChatID: "c", Acked: acked, Read: read, AckedAt: at(n),
		}}
	}
	want := state(7, 3, 2)
	k.SawState(want)
	for _, older := range []State{state(6, 3, 1), state(7, 2, 1), state(0, 0, 0)} {
		k.SawState(older)
		got, found := k.Guess("u", "c")
		if diff := cmp.Diff(want, got); diff != "" || !found {
			t.Errorf("an older state replaced the later one (-want +got):\n%s", diff)
		}
	}
	want.Acked, want.AckedAt = 8, at(3)
	k.SawState(want)
	if got, _ := k.Guess("u", "c"); got != want {
		t.Errorf("a later state was not remembered: %v", got)
	}
}
