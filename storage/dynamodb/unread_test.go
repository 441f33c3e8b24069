package dynamodb

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// TestRace_unread_exact_for_a_sender_who_was_moved_out: a process remembers a member who has sent
// nothing. In another process they send, and then so many others that the counter no longer has
// them. The first process sees that counter, and counts what they sent all the same.
func TestRace_unread_exact_for_a_sender_who_was_moved_out(t *testing.T) {
	t.Parallel()
	one, _, other := trapped(t)
	members := []tidemark.UserID{"anna", "bob"}
	for i := range 20 {
		members = append(members, tidemark.UserID(fmt.Sprintf("u%d", i)))
	}
	createGroup(t, other, "c", members...)
	read := func(n tidemark.Sequence) {
		got, err := one.Advance(t.Context(), []storage.Advance{
			{User: "anna", Chat: "c", Raise: tidemark.Raise{Read: n}, Now: time.UnixMilli(7)},
		})
		if err != nil || got[0].Err != nil {
			t.Fatalf("Advance to %d: %v, %v", n, got, err)
		}
	}
	send(t, other, "c", "bob", "first", 1)
	read(1)
	send(t, other, "c", "anna", "own", 2)
	for i, user := range members[2:] {
		send(t, other, "c", user, "others", tidemark.Sequence(3+i))
	}
	_, err := one.Heads(t.Context(), []tidemark.ChatID{"c"})
	must(t, err)
	read(22)
	send(t, other, "c", "bob", "last", 23)
	counts, err := one.Unread(t.Context(), []storage.StateKey{{User: "anna", Chat: "c"}})
	must(t, err)
	if counts[0].Messages != 1 {
		t.Errorf("got %d unread messages, want 1", counts[0].Messages)
	}
}
