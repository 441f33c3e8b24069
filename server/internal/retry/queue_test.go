package retry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

func row(user tidemark.UserID, first tidemark.Sequence) tidemark.PendingDelivery {
	return tidemark.PendingDelivery{UserID: user, ChatID: "c", FirstUndelivered: first}
}

// bisect marks rows through a Bisection, and queues what it leaves.
func bisect(
	q *retry.Queue, rows []tidemark.PendingDelivery, mark func([]tidemark.PendingDelivery) error,
) (refused []tidemark.PendingDelivery, err error) {
	b := retry.Bisect(rows)
	for part := b.Next(); part != nil; part = b.Next() {
		b.Took(mark(part))
	}
	return q.Requeue(b)
}

func TestTake_returns_the_smallest_sequence_of_each_row_once(t *testing.T) {
	q := retry.New()
	q.Mark([]tidemark.PendingDelivery{row("ann", 5), row("ann", 3), row("ann", 4)})
	q.Notify([]tidemark.PendingDelivery{row("bob", 2)})
	lease := registry.Lease{User: "bob", Device: "phone", Node: "a", Boot: "1", Session: "s"}
	q.Follow([]retry.Follow{
		{Lease: lease, Chat: "c", Sequence: 7}, {Lease: lease, Chat: "c", Sequence: 6},
	})
	q.Send(tidemark.Draft{ChatID: "c", Seen: tidemark.SeenThrough(1)})
	if !q.Flag().Clear() {
		t.Error("the flag is not set")
	}
	if got := q.Len(); got != 4 {
		t.Errorf("Len = %d, want 4: a row, a notification, a session to follow and a send", got)
	}
	if got := q.Count.Load(); got != 7 {
		t.Errorf("Count = %d, want 7", got)
	}
	got := q.Take()
	want := retry.Due{
		Marks:  []tidemark.PendingDelivery{row("ann", 3)},
		Notify: []tidemark.PendingDelivery{row("bob", 2)},
		Follow: []retry.Follow{{Lease: lease, Chat: "c", Sequence: 6}},
		Sends:  []tidemark.Draft{{ChatID: "c", Seen: tidemark.SeenThrough(1)}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again := q.Take()
	left := len(again.Marks) + len(again.Notify) + len(again.Follow) + len(again.Sends)
	if q.Len() != 0 || left != 0 || again.Overflow {
		t.Errorf("what was taken is still queued: %+v", again)
	}
}

// All other rows are marked, and the queue records that some are not.
func TestBisect_finds_the_rows_that_are_refused(t *testing.T) {
	const rows = 25_000 // several batches
	bad := map[tidemark.UserID]bool{"0": true, "7": true, "8": true, "9999": true, "24999": true}
	var all []tidemark.PendingDelivery
	for i := range rows {
		all = append(all, row(tidemark.UserID(fmt.Sprint(i)), 1))
	}
	q := retry.New()
	marked, tries := 0, 0
	refused, err := bisect(q, all, func(part []tidemark.PendingDelivery) error {
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
		t.Errorf("%d rows are marked, %v are refused, %v; want %d and %d",
			marked, refused, err, rows-len(bad), len(bad))
	}
	for _, r := range refused {
		if !bad[r.UserID] {
			t.Errorf("%v is refused", r)
		}
	}
	if tries > 3+2*14*len(bad) {
		t.Errorf("it took %d tries", tries)
	}
	if owed := q.Take(); !owed.Overflow || len(owed.Marks) != 0 {
		t.Errorf("the queue has %+v, want that it reports a loss", owed)
	}
}

// Rows are queued again if storage is unavailable, or refuses so many that not all can be found.
func TestBisect_queues_again_what_was_not_tried(t *testing.T) {
	for _, tt := range []struct {
		code  tidemark.Code
		tries int
		lost  bool
	}{{tidemark.Unavailable, 1, false}, {tidemark.Internal, 256, true}} {
		q := retry.New()
		var all []tidemark.PendingDelivery
		for i := range 1_000 {
			all = append(all, row(tidemark.UserID(fmt.Sprint(i)), 1))
		}
		tries := 0
		refused, err := bisect(q, all, func([]tidemark.PendingDelivery) error {
			tries++
			return tidemark.Errorf(tt.code, "no")
		})
		owed := q.Take()
		if tidemark.CodeOf(err) != tt.code || tries != tt.tries ||
			len(owed.Marks)+len(refused) != len(all) || owed.Overflow != tt.lost ||
			(len(refused) > 0) != tt.lost {
			t.Errorf("%s: %v after %d tries, %d rows are refused and %d queued, lost %v",
				tt.code, err, tries, len(refused), len(owed.Marks), owed.Overflow)
		}
	}
}

// Work is lost beyond 200,000 rows and beyond 64 MiB of sends. A row that is queued already can
// still be lowered.
func TestBounds_beyond_them_something_is_lost(t *testing.T) {
	q := retry.New()
	rows := make([]tidemark.PendingDelivery, 200_000)
	for i := range rows {
		rows[i] = row(tidemark.UserID(fmt.Sprint(i)), 7)
	}
	q.Mark(rows)
	q.Mark([]tidemark.PendingDelivery{row("0", 6)})
	if got := q.Take(); got.Overflow || len(got.Marks) != len(rows) {
		t.Fatalf("at the bound: %d rows, lost %v", len(got.Marks), got.Overflow)
	}
	q.Mark(append(rows, row("one more", 1)))
	if got := q.Take(); !got.Overflow || len(got.Marks) != len(rows) {
		t.Errorf("beyond the bound: %d rows, lost %v", len(got.Marks), got.Overflow)
	}

	large := tidemark.Draft{Content: strings.Repeat("x", 1<<20)}
	for range 64 {
		q.Send(large)
	}
	if got := q.Take(); !got.Overflow || len(got.Sends) != 63 {
		t.Errorf("64 sends of somewhat more than a MiB: %d are remembered, lost %v",
			len(got.Sends), got.Overflow)
	}
	q.Send(large)
	if got := q.Take(); got.Overflow || len(got.Sends) != 1 {
		t.Errorf("after they were taken: %d, lost %v", len(got.Sends), got.Overflow)
	}
	q.Overflow()
	if got := q.Len(); got != 1 {
		t.Errorf("Len = %d after Overflow, want 1", got)
	}
	if got := q.Take(); !got.Overflow {
		t.Error("what was lost again is not lost")
	}
}
