package erasure_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestWorker_erasure_is_announced_once: a process ends before each announcement of a chat. The next
// one announces the rest, and nothing twice. No announcement names the user.
func TestWorker_erasure_is_announced_once(t *testing.T) {
	for fails := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			group := w.chat("group", tidemark.Group, 120)
			n := 0
			w.core.announce = func() error {
				if n++; n == fails {
					return tidemark.Errorf(tidemark.Unavailable, "the process has ended")
				}
				return nil
			}
			r := w.register(nil)
			w.work(w.worker(r, w.store))
			_, err := r.Begin(w.ctx, zoe)
			w.ok(err)
			later(20 * time.Minute)
			w.nothingLeft("at the end")
			found := w.announced(group)
			if len(found) != 2 {
				t.Fatalf("%d announcements, want 2", len(found))
			}
			for i, want := range []int{100, 20} {
				if got := len(found[i].Relation.Sequences); got != want {
					t.Errorf("announcement %d names %d messages, want %d", i+1, got, want)
				}
			}
		})
	}
}

// TestWorker_erasure_is_announced_before_the_chat_is_done: as long as an announcement fails, the
// chat still names the user, so that the next pass finds it.
func TestWorker_erasure_is_announced_before_the_chat_is_done(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		group := w.chat("group", tidemark.Group, 1)
		w.core.announce = func() error {
			return tidemark.Errorf(tidemark.Unavailable, "nobody can be told")
		}
		r := w.register(nil)
		w.work(w.worker(r, w.store))
		_, err := r.Begin(w.ctx, zoe)
		w.ok(err)
		later(20 * time.Minute)
		chats, _, _, err := w.store.ChatsNaming(w.ctx, zoe, "", 10)
		if w.ok(err); len(chats) != 1 || chats[0] != group {
			t.Errorf("%v name zoe, want the chat that was not told", chats)
		}
	})
}
