package pusher_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/queue"
)

// TestPusher_many_messages_and_then_others: who is told of none of the latest messages is told of
// those before, however many there are.
func TestPusher_many_messages_and_then_others(t *testing.T) {
	plain := func(*tidemark.Draft) {}
	system := func(d *tidemark.Draft) { d.Kind = tidemark.KindSystem }
	control := func(d *tidemark.Draft) { d.Kind = tidemark.KindControl }
	named := func(d *tidemark.Draft) {
		d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"bob"})
	}
	for name, tc := range map[string]struct {
		members     int
		first, then func(*tidemark.Draft)
	}{
		"lines of the system":       {2, plain, system},
		"control messages":          {2, plain, control},
		"others than the one named": {tidemark.PendingFanoutLimit + 1, named, plain},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				users := []tidemark.UserID{"alice", "bob"}
				for n := len(users); n < tc.members; n++ {
					users = append(users, tidemark.UserID(fmt.Sprint("u", n)))
				}
				c := w.chat(tidemark.Group, "g", users...)
				w.phone("bob", "phone")
				w.connect("bob", "phone") // So the messages wait for ten seconds.
				for n := range 250 {
					change := tc.then
					if n < 50 {
						change = tc.first
					}
					w.send(c, "alice", strconv.Itoa(n), change)
				}
				w.pass(2 * time.Minute)
				told := w.told()
				if len(told) != 1 || told[0].N.Body != "alice: 49" {
					t.Errorf("told %+v, want message 49", told)
				}
				if n := w.owed(); n != 0 {
					t.Errorf("%d chats are owed", n)
				}
			})
		})
	}
}

// TestPusher_full_queue: what has no room in the queue stays owed, and nothing is dropped for it.
func TestPusher_full_queue(t *testing.T) {
	in(t, func(w *world) {
		w.provider(func(ctx context.Context) push.Result {
			<-ctx.Done()
			return push.Result{Outcome: push.Retry, Detail: "no answer"}
		})
		for n := 0; w.phones.Room() > 0; n++ {
			user := tidemark.UserID(fmt.Sprint("user", n))
			w.phone(user, "phone")
			w.phones.Enqueue(push.Target{User: user, Device: "phone", Registration: 1},
				push.Notification{Kind: push.Badge})
		}
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.send(c, "alice", "text")
		w.pass(time.Minute)
		counts, gauges := w.phones.Stats()
		if counts.Dropped > 0 || gauges.Queued < queue.MaxQueued-push.MaxInFlight {
			t.Errorf("%d dropped, %d wait", counts.Dropped, gauges.Queued)
		}
		if n := w.owed(); n != 1 {
			t.Errorf("%d chats are owed, want 1", n)
		}
		w.provider(nil)
		w.pass(10 * time.Minute)
		found := false
		for _, g := range w.told() {
			found = found || g.To.User == "bob" && g.N.Body == "text"
		}
		if !found {
			t.Error("Bob was never told")
		}
	})
}

// TestPusher_asks_once_for_each_user: the badge is that of the user, on however many devices.
func TestPusher_asks_once_for_each_user(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		for _, id := range []tidemark.DeviceID{"one", "two", "three"} {
			w.phone("bob", id)
		}
		w.send(c, "alice", "text")
		w.pass(10 * time.Second)
		if n := len(w.told()); n != 3 {
			t.Errorf("%d devices are told, want 3", n)
		}
		if n := w.unread.Load(); n != 1 {
			t.Errorf("unread was asked for %d times, want once", n)
		}
	})
}
