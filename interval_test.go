package tidemark_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
)

// ivs returns intervals with the given ends: from, to, from, to, …
func ivs(ends ...tidemark.Sequence) tidemark.Intervals {
	var iv tidemark.Intervals
	for i := 0; i < len(ends); i += 2 {
		iv = append(iv, tidemark.Interval{From: ends[i], To: ends[i+1]})
	}
	return iv
}

func TestIntervals_Joined(t *testing.T) {
	const full, since = tidemark.HistoryFull, tidemark.HistorySinceJoin
	for _, test := range []struct {
		name      string
		before    tidemark.Intervals
		head      tidemark.Sequence
		history   tidemark.HistoryMode
		returning bool
		want      tidemark.Intervals
	}{
		{"first join, full", nil, 7, full, false, ivs(1, 0)},
		{"first join, since join", nil, 7, since, false, ivs(8, 0)},
		{"first join of an empty chat, full", nil, 0, full, false, ivs(1, 0)},
		{"first join of an empty chat, since join", nil, 0, since, false, ivs(1, 0)},
		{"returning, full", ivs(1, 4), 7, full, true, ivs(1, 4, 8, 0)},
		{"returning, since join", ivs(3, 4), 7, since, true, ivs(3, 4, 8, 0)},
		{"returning with nothing missed", ivs(1, 2, 4, 7), 7, since, true, ivs(1, 2, 4, 0)},
		{"returning after an empty membership, full", nil, 7, full, true, ivs(8, 0)},
		{"returning after an empty membership, since join", nil, 7, since, true, ivs(8, 0)},
		{"a member already", ivs(1, 2, 5, 0), 7, full, true, ivs(1, 2, 5, 0)},
	} {
		got := test.before.Joined(test.head, test.history, test.returning)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestIntervals_Left(t *testing.T) {
	for _, test := range []struct {
		name   string
		before tidemark.Intervals
		head   tidemark.Sequence
		want   tidemark.Intervals
	}{
		{"after messages", ivs(1, 0), 7, ivs(1, 7)},
		{"after one message", ivs(7, 0), 7, ivs(7, 7)},
		{"nothing was sent in it", ivs(8, 0), 7, nil},
		{"nothing was sent in the last one", ivs(1, 4, 8, 0), 7, ivs(1, 4)},
		{"no member", ivs(1, 4), 7, ivs(1, 4)},
		{"never a member", nil, 7, nil},
	} {
		kept := append(tidemark.Intervals(nil), test.before...)
		got := test.before.Left(test.head)
		if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
		if diff := cmp.Diff(kept, test.before); diff != "" {
			t.Errorf("%s: the old intervals were changed (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestIntervals_Visible_cuts_off_the_first_piece(t *testing.T) {
	iv := ivs(3, 5, 8, 8, 11, 0)
	for _, test := range []struct {
		from, to, end tidemark.Sequence
		visible       bool
	}{
		{1, 20, 2, false}, {2, 2, 2, false}, {3, 20, 5, true}, {4, 4, 4, true}, {5, 20, 5, true},
		{6, 20, 7, false}, {6, 6, 6, false}, {8, 20, 8, true}, {9, 10, 10, false},
		{11, 20, 20, true}, {500, 600, 600, true},
	} {
		end, visible := iv.Visible(test.from, test.to)
		if end != test.end || visible != test.visible {
			t.Errorf("Visible(%d, %d): got %d, %v, want %d, %v",
				test.from, test.to, end, visible, test.end, test.visible)
		}
	}
	if end, visible := ivs(1, 4).Visible(5, 9); end != 9 || visible {
		t.Errorf("after the user left: got %d, %v, want 9, false", end, visible)
	}
	if end, visible := (tidemark.Intervals)(nil).Visible(1, 9); end != 9 || visible {
		t.Errorf("never a member: got %d, %v, want 9, false", end, visible)
	}
}

func TestIntervals_Gaps(t *testing.T) {
	gap := func(from, to tidemark.Sequence) tidemark.Gap {
		return tidemark.Gap{ChatID: "c", From: from, To: to, Reason: tidemark.GapNotMember}
	}
	for _, test := range []struct {
		iv       tidemark.Intervals
		from, to tidemark.Sequence
		want     []tidemark.Gap
	}{
		{ivs(1, 0), 1, 9, nil},
		{ivs(1, 3, 6, 0), 1, 9, []tidemark.Gap{gap(4, 5)}},
		{ivs(3, 4, 6, 0), 1, 9, []tidemark.Gap{gap(1, 2), gap(5, 5)}},
		{ivs(3, 4, 6, 6), 4, 9, []tidemark.Gap{gap(5, 5), gap(7, 9)}},
		{nil, 1, 9, []tidemark.Gap{gap(1, 9)}},
		{ivs(3, 4), 9, 8, nil},
	} {
		if diff := cmp.Diff(test.want, test.iv.Gaps("c", test.from, test.to)); diff != "" {
			t.Errorf("gaps of %v in %d..%d (-want +got):\n%s", test.iv, test.from, test.to, diff)
		}
	}
}

func TestIntervals_of_any_life_show_what_was_sent_while_a_member(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		modes := []tidemark.HistoryMode{tidemark.HistoryFull, tidemark.HistorySinceJoin}
		history := rapid.SampledFrom(modes).Draw(t, "history")
		var iv tidemark.Intervals
		var head tidemark.Sequence
		member, ever := false, false
		sees := map[tidemark.Sequence]bool{}
		steps := rapid.SampledFrom([]string{"send", "join", "leave"})
		for _, step := range rapid.SliceOf(steps).Draw(t, "life") {
			switch step {
			case "send":
				head++
				sees[head] = member
			case "join":
				if !ever && history == tidemark.HistoryFull {
					for n := tidemark.Sequence(1); n <= head; n++ {
						sees[n] = true
					}
				}
				iv = iv.Joined(head, history, ever)
				member, ever = true, true
			case "leave":
				iv, member = iv.Left(head), false
			}
			checkIntervals(t, iv, head, member, sees)
		}
	})
}

func checkIntervals(
	t *rapid.T, iv tidemark.Intervals, head tidemark.Sequence, member bool,
	sees map[tidemark.Sequence]bool,
) {
	if iv.Open() != member {
		t.Fatalf("%v: got open %v of a member %v", iv, iv.Open(), member)
	}
	for i, in := range iv {
		last := i == len(iv)-1
		if in.From == 0 || in.To == 0 && !last || in.To != 0 && in.To < in.From ||
			i > 0 && in.From <= iv[i-1].To+1 {
			t.Fatalf("%v are not ascending, disjoint, apart and non-empty", iv)
		}
	}
	for n := tidemark.Sequence(1); n <= head; n++ {
		if iv.Contains(n) != sees[n] {
			t.Fatalf("%v: got %v for message %d, want %v", iv, iv.Contains(n), n, sees[n])
		}
	}
	if head > 0 {
		from := tidemark.Sequence(rapid.Uint64Range(1, uint64(head)).Draw(t, "from"))
		to := tidemark.Sequence(rapid.Uint64Range(uint64(from), uint64(head)).Draw(t, "to"))
		checkPartition(t, iv, from, to)
	}
}

// checkPartition fails the test unless the pieces of Visible cover from..to exactly once.
// Neighbouring pieces must differ, and Gaps must be the invisible ones.
func checkPartition(t *rapid.T, iv tidemark.Intervals, from, to tidemark.Sequence) {
	var gaps []tidemark.Gap
	for next := from; next <= to; {
		end, visible := iv.Visible(next, to)
		if end < next || end > to {
			t.Fatalf("%v: got a piece %d..%d of %d..%d", iv, next, end, next, to)
		}
		for n := next; n <= end; n++ {
			if iv.Contains(n) != visible {
				t.Fatalf("%v: got %v for %d in the piece %d..%d", iv, visible, n, next, end)
			}
		}
		if end < to && iv.Contains(end+1) == visible {
			t.Fatalf("%v: the piece %d..%d of %d..%d ends too early", iv, next, end, next, to)
		}
		if !visible {
			gaps = append(gaps,
				tidemark.Gap{ChatID: "c", From: next, To: end, Reason: tidemark.GapNotMember})
		}
		next = end + 1
	}
	if diff := cmp.Diff(gaps, iv.Gaps("c", from, to)); diff != "" {
		t.Fatalf("gaps of %v in %d..%d (-want +got):\n%s", iv, from, to, diff)
	}
}

func TestIntervals_Before_is_Visible_backwards(t *testing.T) {
	iv := tidemark.Intervals{{From: 3, To: 5}, {From: 9}}
	tests := []struct {
		to, from tidemark.Sequence
		visible  bool
	}{
		{12, 9, true}, {9, 9, true}, {8, 6, false}, {6, 6, false},
		{5, 3, true}, {3, 3, true}, {2, 1, false}, {1, 1, false},
	}
	for _, tt := range tests {
		if from, visible := iv.Before(tt.to); from != tt.from || visible != tt.visible {
			t.Errorf("Before(%d) = %d, %t, want %d, %t", tt.to, from, visible, tt.from, tt.visible)
		}
	}
	if from, visible := (tidemark.Intervals)(nil).Before(7); from != 1 || visible {
		t.Errorf("without intervals: got %d, %t, want 1, false", from, visible)
	}
}

func TestIntervals_text_is_read_as_it_was_written(t *testing.T) {
	sequence := rapid.Uint64Max(uint64(tidemark.MaxSequence))
	rapid.Check(t, func(t *rapid.T) {
		intervals := rapid.SliceOf(rapid.Custom(func(t *rapid.T) tidemark.Interval {
			return tidemark.Interval{
				From: tidemark.Sequence(sequence.Draw(t, "from")),
				To:   tidemark.Sequence(sequence.Draw(t, "to")),
			}
		})).Draw(t, "intervals")
		text := tidemark.Intervals(intervals).Text()
		got, err := tidemark.ParseIntervals(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(tidemark.Intervals(intervals)) {
			t.Errorf("%q was read as %v, want %v", text, got, intervals)
		}
	})
	for _, text := range []string{"x", "1", "-", "1-x", "1-2,", "1-2;3-"} {
		if got, err := tidemark.ParseIntervals(text); tidemark.CodeOf(err) != tidemark.Internal {
			t.Errorf("%q was read as %v, %v, want an Internal error", text, got, err)
		}
	}
}
