package reach

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// sendOld appends messages that were created 20 days ago, less one minute for each.
func (w *world) sendOld(chat tidemark.ChatID, n int) {
	w.Helper()
	for i := range n {
		key := fmt.Sprint("old", i)
		_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
			ChatID: chat, SenderID: "alice", ClientMessageID: key, Content: key,
			ContentType: "text/plain", Kind: tidemark.KindMessage,
			MessageID: tidemark.MessageID(key),
			CreatedAt: time.Now().Add(-20*24*time.Hour + time.Duration(i)*time.Minute),
		})
		w.ok(err)
	}
}

// expire lets the first n messages of a chat expire.
func (w *world) expire(chat tidemark.ChatID, n int) {
	w.Helper()
	done, err := w.store.Expire(w.ctx, chat, time.Now().Add(-10*24*time.Hour), n)
	w.ok(err)
	if done.Removed != n {
		w.Errorf("%d messages have expired, want %d", done.Removed, n)
	}
}

// TestReader_skips_what_has_expired: an outlet that was behind goes on at the floor. It is told
// nothing beyond the end that the chat had when it was read.
func TestReader_skips_what_has_expired(t *testing.T) {
	for _, tc := range []struct {
		name        string
		expired     int
		head, first tidemark.Sequence
	}{
		{"nothing", 0, 10, 1}, {"some", 8, 10, 9}, {"some, and the chat has grown", 8, 9, 9},
		{"all", 10, 10, 0}, {"all that were there", 8, 8, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			c := w.group()
			w.sendOld(c, 10)
			if tc.expired > 0 {
				w.expire(c, tc.expired)
			}
			r := &reader{store: w.store, chat: tidemark.Chat{ID: c, Head: tc.head}}
			var got []step
			for tries := 0; !r.done(); tries++ {
				steps, err := r.next(w.ctx)
				if err != nil || tries > 10 {
					t.Fatalf("at %d: %v", r.at.Sequence, err)
				}
				got = append(got, steps...)
			}
			want := 0
			if tc.first > 0 {
				want = int(tc.head + 1 - tc.first)
			}
			if len(got) != want || want > 0 && got[0].Sequence != uint64(tc.first) {
				t.Errorf("got %d events, want %d from %d on", len(got), want, tc.first)
			}
			if r.at.Sequence != tc.head {
				t.Errorf("the reader is at %d, want %d", r.at.Sequence, tc.head)
			}
		})
	}
}

// TestEngine_pending_of_what_has_expired: an outlet of missed messages is away until they have
// expired. Nothing holds up what comes next.
func TestEngine_pending_of_what_has_expired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.online = connected("alice")
		p := w.start(nil)
		c := w.group()
		long := time.Now().Add(-30 * 24 * time.Hour)
		others := []tidemark.UserID{"u0", "u1"}
		_, err := w.store.AddMembers(w.ctx, c, others, tidemark.Ordinary, long)
		w.ok(err)
		id := w.outlet(p, NewOutlet{Events: pendingOnly})
		w.inbox(home).does(func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
			return 0, &outlet.Refusal{Action: outlet.Later, After: time.Minute}
		})
		w.sendOld(c, 4)
		p.Hint(c)
		time.Sleep(30 * time.Second)
		if n := w.backlogs(pendingOf(id)); n != 1 {
			t.Errorf("%d backlogs wait for the outlet, want 1", n)
		}
		w.expire(c, 4)
		w.inbox(home).does(nil)
		time.Sleep(10 * time.Minute)
		if got := w.inbox(home).missed(); len(got) != 0 {
			t.Errorf("got %q", got)
		}
		if n := w.backlogs(pendingOf(id)); n != 0 {
			t.Errorf("%d backlogs are left", n)
		}
		w.send(c, p)
		w.ack(c, "alice")
		time.Sleep(time.Minute)
		if got := w.inbox(home).missed(); len(got) != 2 {
			t.Errorf("of the next message, got %q, want it for two users", got)
		}
	})
}
