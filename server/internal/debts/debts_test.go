package debts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/debts"
	"github.com/tidemark-im/tidemark/storage"
)

func row(user tidemark.UserID, first tidemark.Sequence) tidemark.PendingDelivery {
	return tidemark.PendingDelivery{UserID: user, ChatID: "c", FirstUndelivered: first}
}

func TestTake_returns_the_smallest_sequence_of_each_row_once(t *testing.T) {
	d := debts.New()
	d.Mark([]tidemark.PendingDelivery{row("ann", 5), row("ann", 3), row("ann", 4)})
	d.Wake([]tidemark.PendingDelivery{row("bob", 2)})
	d.Send(debts.Send{Draft: tidemark.Draft{ChatID: "c"}, Seen: 1})
	select {
	case <-d.Signal():
	default:
		t.Error("nobody was told")
	}
	if got := d.Len(); got != 3 {
		t.Errorf("Len = %d, want 3: a row, a wake and a send", got)
	}
	if got := d.Taken.Load(); got != 5 {
		t.Errorf("Taken = %d, want 5", got)
	}
	got := d.Take()
	want := debts.Owed{
		Marks: []tidemark.PendingDelivery{row("ann", 3)}, Wakes: []tidemark.PendingDelivery{row("bob", 2)},
		Sends: []debts.Send{{Draft: tidemark.Draft{ChatID: "c"}, Seen: 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again := d.Take(); d.Len() != 0 || len(again.Marks)+len(again.Wakes)+len(again.Sends) != 0 || again.Lost {
		t.Errorf("what was taken is still owed: %+v", again)
	}
}

// TestPayMarks_finds_the_rows_that_are_refused: all others are marked, and that some are not is owed.
func TestPayMarks_finds_the_rows_that_are_refused(t *testing.T) {
	const rows = 25_000 // several batches
	bad := map[tidemark.UserID]bool{"0": true, "7": true, "8": true, "9999": true, "24999": true}
	var all []tidemark.PendingDelivery
	for i := range rows {
		all = append(all, row(tidemark.UserID(fmt.Sprint(i)), 1))
	}
	d := debts.New()
	marked, tries := 0, 0
	refused, err := d.PayMarks(all, func(part []tidemark.PendingDelivery) error {
		tries++
		if len(part) == 0 || len(part) > storage.MaxBatch {
			t.Errorf("%d rows at once", len(part))
		}
		for _, r := range part {
			if bad[r.UserID] {
				return tidemark.Errorf(tidemark.Internal, "%s is refused", r.UserID)
			}
		}
		marked += len(part)
		return nil
	})
	if len(refused) != len(bad) || marked != rows-len(bad) || err == nil {
		t.Errorf("%d rows are marked, %v are refused, %v; want %d and %d", marked, refused, err, rows-len(bad), len(bad))
	}
	for _, r := range refused {
		if !bad[r.UserID] {
			t.Errorf("%v is refused", r)
		}
	}
	if tries > 3+2*14*len(bad) {
		t.Errorf("it took %d tries", tries)
	}
	if owed := d.Take(); !owed.Lost || len(owed.Marks) != 0 {
		t.Errorf("what is owed is %+v, want that something is lost", owed)
	}
}

// TestPayMarks_owes_again_what_was_not_tried: while storage cannot be reached, and when it refuses too much to find out why.
func TestPayMarks_owes_again_what_was_not_tried(t *testing.T) {
	for _, tt := range []struct {
		code  tidemark.Code
		tries int
		lost  bool
	}{{tidemark.Unavailable, 1, false}, {tidemark.Internal, 256, true}} {
		d := debts.New()
		var all []tidemark.PendingDelivery
		for i := range 1_000 {
			all = append(all, row(tidemark.UserID(fmt.Sprint(i)), 1))
		}
		tries := 0
		refused, err := d.PayMarks(all, func([]tidemark.PendingDelivery) error {
			tries++
			return tidemark.Errorf(tt.code, "no")
		})
		owed := d.Take()
		if tidemark.CodeOf(err) != tt.code || tries != tt.tries || len(owed.Marks)+len(refused) != len(all) || owed.Lost != tt.lost || (len(refused) > 0) != tt.lost {
			t.Errorf("%s: %v after %d tries, %d rows are refused and %d owed, lost %v", tt.code, err, tries, len(refused), len(owed.Marks), owed.Lost)
		}
	}
}

// TestBounds_beyond_them_something_is_lost: rows beyond 200,000, and sends beyond 64 MiB; a row that is there already is lowered all the same.
func TestBounds_beyond_them_something_is_lost(t *testing.T) {
	d := debts.New()
	rows := make([]tidemark.PendingDelivery, 200_000)
	for i := range rows {
		rows[i] = row(tidemark.UserID(fmt.Sprint(i)), 7)
	}
	d.Mark(rows)
	d.Mark([]tidemark.PendingDelivery{row("0", 6)})
	if got := d.Take(); got.Lost || len(got.Marks) != len(rows) {
		t.Fatalf("at the bound: %d rows, lost %v", len(got.Marks), got.Lost)
	}
	d.Mark(append(rows, row("one more", 1)))
	if got := d.Take(); !got.Lost || len(got.Marks) != len(rows) {
		t.Errorf("beyond the bound: %d rows, lost %v", len(got.Marks), got.Lost)
	}

	large := debts.Send{Draft: tidemark.Draft{Content: strings.Repeat("x", 1<<20)}}
	for range 64 {
		d.Send(large)
	}
	if got := d.Take(); !got.Lost || len(got.Sends) != 63 {
		t.Errorf("64 sends of somewhat more than a MiB: %d are remembered, lost %v", len(got.Sends), got.Lost)
	}
	d.Send(large)
	if got := d.Take(); got.Lost || len(got.Sends) != 1 {
		t.Errorf("after they were taken: %d, lost %v", len(got.Sends), got.Lost)
	}
	d.Lose()
	if got := d.Len(); got != 1 {
		t.Errorf("Len = %d after Lose, want 1", got)
	}
	if got := d.Take(); !got.Lost {
		t.Error("what was lost again is not lost")
	}
}
