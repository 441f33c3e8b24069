package dynamodb

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// longAgo is when the messages of these tests were created, and cutoff is later.
var (
	longAgo = time.Now().Add(-20 * 24 * time.Hour)
	cutoff  = time.Now().Add(-10 * 24 * time.Hour)
)

// agedChat creates a chat of alice and bob with n messages that are old, in turn of each.
func agedChat(t *testing.T, s *Store, chat tidemark.ChatID, n int) {
	t.Helper()
	_, _, err := s.CreateChat(t.Context(), storage.NewChat{
		ID: chat, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: longAgo,
		Creator: "alice", Members: []tidemark.UserID{"alice", "bob"},
	})
	must(t, err)
	for i := range n {
		d := textBy([]tidemark.UserID{"alice", "bob"}[i%2], chat)
		d[0].ClientMessageID, d[0].CreatedAt = fmt.Sprint("k", i), longAgo
		d[0].Mentions = tidemark.NewMentions(false, []tidemark.UserID{"bob"})
		must(t, appendAll(t, s, d))
	}
}

// wantKept checks that a chat has the messages from its floor to its head, and what alice and bob
// have not read.
func wantKept(t *testing.T, s *Store, chat tidemark.ChatID, floor, head tidemark.Sequence) {
	t.Helper()
	found, err := s.Chat(t.Context(), chat)
	must(t, err)
	if found.Floor != floor || found.Head != head {
		t.Errorf("the chat is %d to %d, want %d to %d", found.Floor, found.Head, floor, head)
	}
	for name, r := range map[string]storage.Range{
		"upwards":   {Chat: chat, Limit: 100},
		"downwards": {Chat: chat, Before: head + 1, Limit: 100},
	} {
		pages, err := s.Ranges(t.Context(), []storage.Range{r})
		must(t, err)
		if n := len(pages[0]); n != int(head+1-floor) || n > 0 && pages[0][0].Sequence != floor {
			t.Errorf("%s: %d messages, want %d from %d", name, n, head+1-floor, floor)
		}
	}
	counts, err := s.Unread(t.Context(), []storage.StateKey{
		{User: "alice", Chat: chat}, {User: "bob", Chat: chat},
	})
	must(t, err)
	var want [2]storage.Unread
	for n := floor; n <= head; n++ {
		if n%2 == 0 {
			want[0].Messages++ // of bob
		} else {
			want[1].Messages++
			want[1].Mentions++
		}
	}
	for i, user := range []string{"alice", "bob"} {
		if counts[i] != want[i] {
			t.Errorf("%s has %+v unread, want %+v", user, counts[i], want[i])
		}
	}
}

// TestExpire_may_end_anywhere: a call dies before one of its writes. What is below the floor is
// shown to nobody and counted rightly, and later calls of another process finish the work, with a
// smaller limit.
func TestExpire_may_end_anywhere(t *testing.T) {
	t.Parallel()
	author, w, other := trapped(t)
	for i, death := range []struct {
		name  string
		at    trap
		floor tidemark.Sequence
	}{
		{"before the floor rises", trap{operation: "UpdateItem", has: "SET floor"}, 1},
		{"before the first count", trap{operation: "UpdateItem", has: "expired_at"}, 9},
		{"between the counts", trap{operation: "UpdateItem", has: "expired_at", skip: 1}, 9},
		{"before the mentions go", trap{operation: "BatchWriteItem", has: "mention|"}, 9},
		{"before the messages go", trap{operation: "BatchWriteItem", has: `{"S":"c4"}`}, 9},
	} {
		t.Run(death.name, func(t *testing.T) {
			chat := tidemark.ChatID(fmt.Sprint("c", i))
			agedChat(t, other, chat, 12)
			if _, err := author.Expire(die(t, w, death.at), chat, cutoff, 8); err == nil {
				t.Fatal("the call did not die")
			}
			wantKept(t, other, chat, death.floor, 12)
			for range 9 {
				done, err := other.Expire(t.Context(), chat, cutoff, 3)
				must(t, err)
				wantKept(t, other, chat, done.Floor, 12)
			}
			wantKept(t, author, chat, 13, 12)
			done, err := other.Expire(t.Context(), chat, cutoff, 8)
			if err != nil || done.Removed != 0 {
				t.Errorf("something is left: %+v, %v", done, err)
			}
		})
	}
}

// TestExpire_beside_a_hold: the chat is put on hold between the read of its messages and the step.
func TestExpire_beside_a_hold(t *testing.T) {
	t.Parallel()
	s, w, other := trapped(t)
	agedChat(t, other, "c", 9)
	hold := func(on bool) {
		_, err := other.UpdateChat(context.WithoutCancel(t.Context()), "c",
			storage.ChatChange{Hold: &on})
		if err != nil {
			t.Error(err)
		}
	}
	w.set(t, trap{operation: "UpdateItem", has: "SET floor", before: func() { hold(true) }})
	_, err := s.Expire(t.Context(), "c", cutoff, 5)
	if tidemark.CodeOf(err) != tidemark.Conflict {
		t.Errorf("Expire: %v, want Conflict", err)
	}
	wantKept(t, s, "c", 1, 9)
	hold(false)
	_, err = s.Expire(t.Context(), "c", cutoff, 5)
	must(t, err)
	wantKept(t, s, "c", 6, 9)
}

// TestExpire_a_floor_never_falls, although a slow process wants a lower one.
func TestExpire_a_floor_never_falls(t *testing.T) {
	t.Parallel()
	s := openTest(t, newTables(t))
	agedChat(t, s, "c", 9)
	c := s.caller("test")
	must(t, c.raiseFloor(t.Context(), "c", 7))
	must(t, c.raiseFloor(t.Context(), "c", 4))
	wantKept(t, s, "c", 7, 9)
}
