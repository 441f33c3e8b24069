package tidemark_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
)

func TestTickOf_is_the_tick_state_of_the_specification(t *testing.T) {
	for _, test := range []struct {
		sequence, acked, read tidemark.Sequence
		want                  tidemark.Tick
	}{
		{44, 44, 42, tidemark.TickDelivered},
		{43, 44, 42, tidemark.TickDelivered},
		{42, 44, 42, tidemark.TickRead},
		{1, 44, 42, tidemark.TickRead},
		{45, 44, 42, tidemark.TickSent},
		{17, 17, 17, tidemark.TickRead},
		{1, 0, 0, tidemark.TickSent},
		{5, 3, 7, tidemark.TickRead},
	} {
		boundary := tidemark.Boundary{Acked: test.acked, Read: test.read}
		if got := tidemark.TickOf(test.sequence, boundary); got != test.want {
			t.Errorf("TickOf(%d, %d, %d): got %s, want %s",
				test.sequence, test.acked, test.read, got, test.want)
		}
	}
}

func TestExposed_read_implies_delivered(t *testing.T) {
	for _, test := range []struct {
		acked, read, want tidemark.Watermark
		ackedAt           tidemark.Millis
	}{
		{0, 0, 0, 2}, {5, 3, 5, 2}, {3, 5, 5, 1}, {4, 4, 4, 2},
	} {
		got := tidemark.DeliveryState{
			Acked: test.acked, Read: test.read,
			AckedAt: time.UnixMilli(2), ReadAt: time.UnixMilli(1),
		}.Exposed()
		want := tidemark.Boundary{
			Acked: test.want, Read: test.read, AckedAt: test.ackedAt, ReadAt: 1,
		}
		if got != want {
			t.Errorf("Exposed of %d, %d: got %+v, want %+v", test.acked, test.read, got, want)
		}
	}
}

func TestRaise_Apply(t *testing.T) {
	early, now := time.UnixMilli(1_000).UTC(), time.UnixMilli(2_000).UTC()
	start := tidemark.DeliveryState{UserID: "u", ChatID: "c", Acked: 5, Read: 3,
		AckedAt: early, ReadAt: early}
	for _, test := range []struct {
		name        string
		raise       tidemark.Raise
		acked, read tidemark.Watermark
	}{
		{"nothing", tidemark.Raise{}, 5, 3},
		{"stale", tidemark.Raise{Acked: 4, Read: 2}, 5, 3},
		{"equal", tidemark.Raise{Acked: 5, Read: 3}, 5, 3},
		{"acked", tidemark.Raise{Acked: 9}, 9, 3},
		{"read", tidemark.Raise{Read: 4}, 5, 4},
		{"read beyond acked", tidemark.Raise{Read: 9}, 5, 9},
		{"one up, one stale", tidemark.Raise{Acked: 6, Read: 1}, 6, 3},
		{"own run that follows", tidemark.Raise{AckedFrom: 6, Acked: 8}, 8, 3},
		{"own run that overlaps", tidemark.Raise{AckedFrom: 4, Acked: 8}, 8, 3},
		{"own run after a hole", tidemark.Raise{AckedFrom: 7, Acked: 8}, 5, 3},
		{"own run that is known", tidemark.Raise{AckedFrom: 2, Acked: 4}, 5, 3},
		{
			"own run after a hole beside a read",
			tidemark.Raise{AckedFrom: 7, Acked: 8, Read: 4}, 5, 4,
		},
		{"read within acked", tidemark.Raise{Read: 4, ReadWithinAcked: true}, 5, 4},
		{"read cut to acked", tidemark.Raise{Read: 9, ReadWithinAcked: true}, 5, 5},
		{
			"read cut to what the raise acknowledges",
			tidemark.Raise{Acked: 7, Read: 9, ReadWithinAcked: true}, 7, 7,
		},
		{
			"read cut, own run after a hole",
			tidemark.Raise{AckedFrom: 7, Acked: 8, Read: 8, ReadWithinAcked: true}, 5, 5,
		},
		{"stale read within acked", tidemark.Raise{Read: 1, ReadWithinAcked: true}, 5, 3},
	} {
		want := start
		want.Acked, want.Read = test.acked, test.read
		moves := test.acked != start.Acked || test.read != start.Read
		if test.acked != start.Acked {
			want.AckedAt = now
		}
		if test.read != start.Read {
			want.ReadAt = now
		}
		got, moved := test.raise.Apply(start, now)
		if diff := cmp.Diff(want, got); diff != "" || moved != moves {
			t.Errorf("%s: moved %v, want %v (-want +got):\n%s", test.name, moved, moves, diff)
		}
	}
}

// Reads are hidden from the first hidden one on, until one is not hidden.
func TestDeliveryState_shown_within_real(t *testing.T) {
	s := tidemark.DeliveryState{Acked: 2, Read: 1, AckedAt: time.UnixMilli(1),
		ReadAt: time.UnixMilli(2)}
	who := tidemark.DeliveryState{UserID: "other", Hides: true}
	for i, step := range []struct {
		tidemark.Raise
		acked, read, from tidemark.Sequence
		readAt            tidemark.Millis
	}{
		{tidemark.Raise{Read: 3, Hidden: true}, 2, 1, 2, 2},
		{tidemark.Raise{Read: 4, Acked: 3, Hidden: true}, 3, 1, 2, 2},
		{tidemark.Raise{Read: 4, Acked: 4}, 4, 1, 2, 2},
		{tidemark.Raise{Read: 6}, 6, 6, 0, 103},
		{tidemark.Raise{Read: 8, Hidden: true}, 6, 6, 7, 103},
		{tidemark.Raise{Acked: 9, Hidden: true}, 9, 6, 7, 103},
	} {
		s, _ = step.Apply(s, time.UnixMilli(int64(100+i)))
		b := s.Exposed()
		if b.Acked != step.acked || b.Read != step.read || b.ReadAt != step.readAt ||
			s.HiddenFrom != step.from {
			t.Errorf("step %d: others see %+v of %+v, want %d, %d at %d", i, b, s, step.acked,
				step.read, step.readAt)
		}
		if b.Read > s.Read || s.ShownRead() != b.Read {
			t.Errorf("step %d: others see %d, and the user read %d", i, b.Read, s.Read)
		}
		if got, want := s.ShownTo(who).Exposed(), b.Unread(); got.Acked != want.Acked ||
			got.Read != 0 || got.ReadAt != 0 {
			t.Errorf("step %d: who hides sees %+v, want %+v", i, got, want)
		}
		if got, want := s.ShownTo(tidemark.DeliveryState{}), s.Shown(); got != want {
			t.Errorf("step %d: others see the state %+v, want %+v", i, got, want)
		}
	}
}

func TestRaise_Bounded_by_the_head(t *testing.T) {
	for _, test := range []struct {
		raise tidemark.Raise
		head  tidemark.Sequence
		want  tidemark.Code
	}{
		{tidemark.Raise{}, 0, ""},
		{tidemark.Raise{Acked: 5, Read: 5}, 5, ""},
		{tidemark.Raise{Acked: 6}, 5, tidemark.InvalidSequence},
		{tidemark.Raise{Read: 6}, 5, tidemark.InvalidSequence},
		{tidemark.Raise{Read: 6, ReadWithinAcked: true}, 5, tidemark.InvalidSequence},
		{tidemark.Raise{Acked: 1}, 0, tidemark.InvalidSequence},
		{tidemark.Raise{Acked: tidemark.MaxSequence}, tidemark.MaxSequence, ""},
	} {
		if got := tidemark.CodeOf(test.raise.Bounded(test.head)); got != test.want {
			t.Errorf("%+v bounded by %d: got code %q, want %q",
				test.raise, test.head, got, test.want)
		}
	}
}

func TestImplicitRead_of_a_reply(t *testing.T) {
	state := tidemark.DeliveryState{Acked: 5, Read: 2}
	for _, test := range []struct {
		name     string
		from, to tidemark.Sequence
		seen     tidemark.Seen
		want     tidemark.Watermark
	}{
		{"what had reached the author", 9, 9, tidemark.Seen{}, 5},
		{"everything, and the reply", 5, 5, tidemark.Seen{}, 5},
		{"what the client says it showed", 9, 9, tidemark.SeenThrough(7), 7},
		{"all that the client could show, and the reply", 9, 9, tidemark.SeenThrough(8), 9},
		{"the whole run", 8, 10, tidemark.SeenThrough(7), 10},
		{"not the run, if something before it was not shown", 8, 10, tidemark.SeenThrough(6), 6},
		{"nothing, says the client", 9, 9, tidemark.SeenThrough(0), 2},
		{"never beyond the reply", 9, 9, tidemark.SeenThrough(100), 9},
		{"never back", 9, 9, tidemark.SeenThrough(1), 2},
		{"the first message of a chat", 1, 1, tidemark.Seen{}, 2},
		{"the first message, said to be seen", 1, 1, tidemark.SeenThrough(1), 2},
	} {
		raise := tidemark.ImplicitRead(test.from, test.to, test.seen)
		got, _ := raise.Apply(state, time.Now())
		if got.Read != test.want || got.Acked != state.Acked {
			t.Errorf("%s: got acked %d and read %d, want %d and %d",
				test.name, got.Acked, got.Read, state.Acked, test.want)
		}
		if err := raise.Bounded(test.to); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if raise := tidemark.ImplicitRead(1, 1, tidemark.SeenThrough(0)); raise.Read != 0 {
		t.Errorf("who declines reading has read %d, the first message of the chat", raise.Read)
	}
}

var (
	sequences = rapid.Map(rapid.Uint64Range(0, 12),
		func(n uint64) tidemark.Sequence { return tidemark.Sequence(n) })
	boundaries = rapid.Custom(func(t *rapid.T) tidemark.Boundary {
		return tidemark.Boundary{Acked: sequences.Draw(t, "acked"), Read: sequences.Draw(t, "read")}
	})
	raises = rapid.Custom(func(t *rapid.T) tidemark.Raise {
		return tidemark.Raise{
			Acked:           sequences.Draw(t, "acked"),
			AckedFrom:       sequences.Draw(t, "from"),
			Read:            sequences.Draw(t, "read"),
			ReadWithinAcked: rapid.Bool().Draw(t, "within"),
		}
	})
)

// TestMerge_keeps_the_time_of_each_watermark: who learns of a watermark again keeps its first time.
func TestMerge_keeps_the_time_of_each_watermark(t *testing.T) {
	b := tidemark.Boundary{Acked: 5, Read: 3, AckedAt: 50, ReadAt: 30}
	for _, test := range []struct{ other, want tidemark.Boundary }{
		{tidemark.Boundary{}, b},
		{tidemark.Boundary{Acked: 5, Read: 3, AckedAt: 99, ReadAt: 99}, b},
		{tidemark.Boundary{Acked: 6, Read: 2, AckedAt: 60, ReadAt: 20},
			tidemark.Boundary{Acked: 6, Read: 3, AckedAt: 60, ReadAt: 30}},
		{tidemark.Boundary{Acked: 4, Read: 4, AckedAt: 40, ReadAt: 40},
			tidemark.Boundary{Acked: 5, Read: 4, AckedAt: 50, ReadAt: 40}},
	} {
		if got := b.Merge(test.other); got != test.want {
			t.Errorf("%+v with %+v: got %+v, want %+v", b, test.other, got, test.want)
		}
	}
	state := tidemark.DeliveryState{AckedAt: time.UnixMilli(2), ReadAt: time.UnixMilli(3)}
	if got := state.UpdatedAt(); !got.Equal(state.ReadAt) {
		t.Errorf("a state whose read moved last was updated at %v", got)
	}
}

func TestRaise_Apply_watermark_monotonic_and_bounded_by_counter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, head := tidemark.DeliveryState{UserID: "u", ChatID: "c"}, sequences.Draw(t, "head")
		for i, raise := range rapid.SliceOf(raises).Draw(t, "raises") {
			if raise.Bounded(head) != nil {
				continue
			}
			next, moved := raise.Apply(state, time.UnixMilli(int64(i+1)))
			switch {
			case next.Acked < state.Acked || next.Read < state.Read:
				t.Fatalf("%+v lowered %+v to %+v", raise, state, next)
			case next.Acked > head || next.Read > head:
				t.Fatalf("%+v raised %+v to %+v, above the head %d", raise, state, next, head)
			case moved != (next != state):
				t.Fatalf("%+v: got moved %v from %+v to %+v", raise, moved, state, next)
			case raise.AckedFrom == 0 && next.Acked < raise.Acked ||
				!raise.ReadWithinAcked && next.Read < raise.Read:
				t.Fatalf("%+v left %+v", raise, next)
			case raise.ReadWithinAcked && next.Read > max(state.Read, next.Acked):
				t.Fatalf("%+v raised read of %+v to %d, above acked", raise, state, next.Read)
			}
			again, moved := raise.Apply(next, time.UnixMilli(99))
			if moved && raise.AckedFrom == 0 {
				t.Fatalf("%+v applied twice moved %+v to %+v", raise, next, again)
			}
			state = next
		}
	})
}

func TestRaise_Apply_multi_device_highest_wins_in_any_order(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		acks := rapid.SliceOfN(sequences, 1, 8).Draw(t, "acks")
		var highest tidemark.Sequence
		for _, n := range acks {
			highest = max(highest, n)
		}
		var state tidemark.DeliveryState
		for _, n := range rapid.Permutation(acks).Draw(t, "order") {
			state, _ = tidemark.Raise{Acked: n}.Apply(state, time.UnixMilli(1))
		}
		if state.Acked != highest {
			t.Fatalf("got %d, want %d", state.Acked, highest)
		}
	})
}

func TestBoundary_Merge_and_Least_are_a_lattice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := boundaries.Draw(t, "a"), boundaries.Draw(t, "b"), boundaries.Draw(t, "c")
		for name, equal := range map[string]bool{
			"Merge is commutative": a.Merge(b) == b.Merge(a),
			"Merge is associative": a.Merge(b).Merge(c) == a.Merge(b.Merge(c)),
			"Merge is idempotent":  a.Merge(b).Merge(b) == a.Merge(b),
			"Merge starts at zero": a.Merge(tidemark.Boundary{}) == a,
			"Least is commutative": a.Least(b) == b.Least(a),
			"Least is associative": a.Least(b).Least(c) == a.Least(b.Least(c)),
			"Least is idempotent":  a.Least(a) == a,
			"each absorbs other":   a.Merge(a.Least(b)) == a && a.Least(a.Merge(b)) == a,
		} {
			if !equal {
				t.Errorf("%s: not for %+v, %+v, %+v", name, a, b, c)
			}
		}
	})
}

func TestBoundary_tick_monotone(t *testing.T) {
	order := map[tidemark.Tick]int{
		tidemark.TickSent: 1, tidemark.TickDelivered: 2, tidemark.TickRead: 3,
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b, n := boundaries.Draw(t, "a"), boundaries.Draw(t, "b"), sequences.Draw(t, "sequence")
		before, after := tidemark.TickOf(n, a), tidemark.TickOf(n, a.Merge(b))
		if order[after] < order[before] {
			t.Fatalf("the tick of %d fell from %s to %s", n, before, after)
		}
	})
}
