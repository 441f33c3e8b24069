package pusher_test

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestPusher_reads_no_chat_that_waits: while a notification waits for its provider, its chat is not
// read, and a later message takes its place at the next look. When the provider is back, the
// message is told once.
func TestPusher_reads_no_chat_that_waits(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.provider(away)
		w.send(c, "alice", "one")
		w.pass(20 * time.Second)
		before := w.rosters.Load()
		w.pass(10 * time.Minute)
		// The look before each attempt reads the members.
		counts, _ := w.phones.Stats()
		if n := w.rosters.Load() - before; n > int64(counts.Retried) {
			t.Errorf("in ten minutes the members were read %d times, for %d attempts", n,
				counts.Retried)
		}
		w.send(c, "alice", "two")
		w.pass(time.Minute)
		if counts, _ = w.phones.Stats(); counts.Replaced != 1 {
			t.Errorf("%d notifications were replaced by the one of the later message, want 1",
				counts.Replaced)
		}
		w.provider(nil)
		w.pass(10 * time.Minute)
		w.says(`alice: "two", 2 unread`)
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
	})
}

// TestPusher_reads_twice: a notification that leaves at once costs two looks at the members: when
// its message comes, and when it is told.
func TestPusher_reads_twice(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.pass(10 * time.Second)
		before := w.rosters.Load()
		w.send(c, "alice", "one")
		w.pass(time.Minute)
		w.says(`alice: "one", 1 unread`)
		if n := w.rosters.Load() - before; n != 2 {
			t.Errorf("the members were read %d times, want twice", n)
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
	})
}
