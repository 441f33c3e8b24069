package dynamodb

import (
	"fmt"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Two users on two nodes write to each other in turn. After the first time, a node reads the
// counter first, and its transactions succeed.
func TestAppend_in_turn_with_another_process_costs_a_read(t *testing.T) {
	s, counts, url := openCounted(t)
	other := openTest(t, url)
	createGroup(t, s, "c", "anna", "ben")
	say := func(s *Store, sender tidemark.UserID, n int) {
		t.Helper()
		d := drafts("c", sender, 1, "hello")[0]
		d.ClientMessageID = fmt.Sprint(sender, n)
		if a, err := storage.AppendOne(t.Context(), s, d); err != nil || a.Duplicate {
			t.Fatal(a, err)
		}
		// A message that comes before the turn of the last one has ended would follow it at once,
		// without a look at the counter.
		s.appends.Wait()
	}
	for n, want := range []int{1, 2, 1, 1, 1} {
		calls, _ := counts.during("TransactWriteItems", func() { say(s, "anna", n) })
		if calls != want {
			t.Errorf("message %d took %d transactions, want %d", n, calls, want)
		}
		say(other, "ben", n)
	}
}
