package debts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/debts"
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
