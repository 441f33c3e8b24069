package dynamodb

import "testing"

// Two users on two nodes write to each other in turn. After the first time, a node reads the
// counter first, and its transactions succeed.
func TestAppend_in_turn_with_another_process_costs_a_read(t *testing.T) {
	s, counts, url := openCounted(t)
	other := openTest(t, url)
	createGroup(t, s, "c", "anna", "ben")
	for n, want := range []int{1, 2, 1, 1, 1} {
		calls, _ := counts.during("TransactWriteItems", func() { say(t, s, "anna", n) })
		if calls != want {
			t.Errorf("message %d took %d transactions, want %d", n, calls, want)
		}
		say(t, other, "ben", n)
	}
}
