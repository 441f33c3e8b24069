package pusher_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
	"github.com/tidemark-im/tidemark/storage"
)

// tells sends a message, and waits until Bob was told of it.
func (w *world) tells(c tidemark.ChatID, want string) tidemark.Sequence {
	w.Helper()
	n := w.send(c, "alice", "text")
	w.pass(5 * time.Second)
	w.says(want)
	return n
}

// reads says that Bob reads a chat elsewhere, and waits until the devices know.
func (w *world) reads(c tidemark.ChatID, n tidemark.Sequence) {
	w.Helper()
	w.raise("bob", c, tidemark.Raise{Acked: n, Read: n})
	w.pass(3 * time.Second)
}

// TestPusher_clears_what_was_read_elsewhere, as far as each provider can.
func TestPusher_clears_what_was_read_elsewhere(t *testing.T) {
	for name, tc := range map[string]struct {
		register           func(*world, tidemark.UserID, tidemark.DeviceID)
		first, third, next []string
	}{
		"fcm": {
			(*world).phone, []string{"clear 1, 0 unread"}, []string{"clear 3, 0 unread"},
			[]string{`other: "alice: text", 1 unread`},
		},
		"apns": { // two an hour
			(*world).iphone, []string{"badge, 0 unread", "clear 1, 0 unread"},
			[]string{"badge, 0 unread"}, []string{`other: "alice: text", clears 3, 1 unread`},
		},
		"webpush": {
			(*world).browser, nil, nil, []string{`other: "alice: text", clears 3, 1 unread`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				c := w.chat(tidemark.Group, "one", "alice", "bob")
				other := w.chat(tidemark.Group, "other", "alice", "bob")
				tc.register(w, "bob", "device")
				for round := range 3 {
					n := w.tells(c, `one: "alice: text", 1 unread`)
					w.reads(c, n)
					want := tc.first
					switch round {
					case 1:
						w.told()
						continue
					case 2:
						want = tc.third
					}
					w.says(want...)
				}
				w.send(other, "alice", "text")
				w.pass(5 * time.Second)
				w.says(tc.next...)
				w.reads(other, 1)
				w.told()
				w.pass(time.Hour)
				w.says()
			})
		})
	}
}

// TestPusher_clears_nothing_else: what was not shown, and what is not all read, costs nothing.
func TestPusher_clears_nothing_else(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "one", "alice", "bob")
		w.phone("bob", "phone")
		w.send(c, "alice", "read at once")
		w.pass(time.Second)
		w.reads(c, 1)
		w.pass(time.Minute)
		w.says()
		w.send(c, "alice", "two")
		w.send(c, "alice", "three")
		w.pass(5 * time.Second)
		w.says(`one: "alice: three", 2 unread`)
		before := w.unread.Load()
		w.reads(c, 2)
		w.pass(time.Minute)
		w.says()
		if n := w.unread.Load() - before; n != 0 {
			t.Errorf("unread was asked for %d times, for nothing", n)
		}
		w.pusher.Heard("read/bob/" + string(c)) // Who says so may be wrong.
		w.pass(3 * time.Second)
		w.says()
		w.reads(c, 3)
		w.says("clear 3, 0 unread")
	})
}

// TestPusher_clears_once_for_several_chats: who reads several chats gets the badge of the last.
func TestPusher_clears_once_for_several_chats(t *testing.T) {
	in(t, func(w *world) {
		w.iphone("bob", "phone")
		var chats []tidemark.ChatID
		for n := range 5 {
			chats = append(chats, w.chat(tidemark.Group, strconv.Itoa(n), "alice", "bob"))
			w.send(chats[n], "alice", "text")
		}
		w.pass(6 * time.Second)
		w.told()
		before := w.unread.Load()
		for _, c := range chats[1:] {
			w.raise("bob", c, tidemark.Raise{Acked: 1, Read: 1})
		}
		w.pass(3 * time.Second)
		w.says("badge, 1 unread", "clear 1, 1 unread", "clear 1, 1 unread")
		if n := w.unread.Load() - before; n != 1 {
			t.Errorf("unread was asked for %d times, want once", n)
		}
		w.tells(chats[0], `0: "alice: text", clears 1, clears 1, 2 unread`)
	})
}

// TestPusher_clears_when_a_session_has_ended: a device that is connected knows what was read. One
// whose connection has ended does not.
func TestPusher_clears_when_a_session_has_ended(t *testing.T) {
	for name, ends := range map[string]bool{"ended": true, "open": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				c := w.chat(tidemark.Group, "one", "alice", "bob")
				w.phone("bob", "phone")
				w.tells(c, `one: "alice: text", 1 unread`)
				w.connect("bob", "phone")
				w.reads(c, 1)
				w.says()
				if ends {
					w.connect("bob")
				}
				w.pass(2 * time.Minute)
				if ends {
					w.says("clear 1, 0 unread")
				} else {
					w.says()
				}
			})
		})
	}
}

// TestPusher_clears_a_chat_that_was_left, and sets the badge of one that is muted.
func TestPusher_clears_a_chat_that_was_left(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "", "alice", "bob", "carol")
		w.phone("bob", "phone")
		w.tells(c, `alice: "text", 1 unread`)
		_, err := w.pusher.Reading(w.store).RemoveMember(t.Context(), c, "bob", time.Now())
		w.ok(err)
		w.pass(3 * time.Second)
		w.says("clear 1, 0 unread")
		muted := w.chat(tidemark.Group, "muted", "alice", "bob")
		w.settings("bob", devices.Settings{Mutes: []devices.Mute{{Chat: muted}}})
		w.tells(muted, "badge, 1 unread")
		w.reads(muted, 1)
		w.says("badge, 0 unread")
	})
}

// TestPusher_clears_a_chat_from_which_a_user_is_banned, as one that was left.
func TestPusher_clears_a_chat_from_which_a_user_is_banned(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "", "alice", "bob", "carol")
		w.phone("bob", "phone")
		w.tells(c, `alice: "text", 1 unread`)
		_, err := w.pusher.Reading(w.store).Ban(t.Context(), c, "bob", time.Now())
		w.ok(err)
		w.pass(3 * time.Second)
		w.says("clear 1, 0 unread")
	})
}

// TestPusher_deleted_is_gone: the banners of a deleted chat are removed. What waits is not told.
func TestPusher_deleted_is_gone(t *testing.T) {
	in(t, func(w *world) {
		store := w.pusher.Reading(w.store)
		c := w.chat(tidemark.Group, "", "alice", "bob", "carol")
		w.phone("bob", "phone")
		w.tells(c, `alice: "text", 1 unread`)
		_, err := store.DeleteChat(t.Context(), c, time.Now())
		w.ok(err)
		w.pass(3 * time.Second)
		w.says("clear 1, 0 unread")
		for name, tc := range map[string]struct {
			provides func(context.Context) push.Result
			says     []string
		}{
			"moment": {nil, nil},
			// An attempt may have reached the device although the provider did not say so.
			"long": {away, []string{"clear 1, 0 unread"}},
		} {
			waits := w.chat(tidemark.Group, name, "alice", "bob")
			w.provider(tc.provides)
			w.send(waits, "alice", "too late")
			w.pass(time.Second)
			if tc.provides != nil {
				w.pass(time.Minute)
			}
			_, err = store.DeleteChat(t.Context(), waits, time.Now())
			w.ok(err)
			w.provider(nil)
			w.pass(10 * time.Minute)
			w.says(tc.says...)
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
	})
}

// TestPusher_looks_at_several_chats_at_once: who leaves many chats costs one read of their members.
func TestPusher_looks_at_several_chats_at_once(t *testing.T) {
	in(t, func(w *world) {
		w.browser("bob", "browser")
		var chats []tidemark.ChatID
		for n := range 10 {
			c := w.chat(tidemark.Group, strconv.Itoa(n), "alice", "bob", "carol")
			w.send(c, "alice", "text")
			chats = append(chats, c)
		}
		w.pass(time.Minute)
		before := w.rosters.Load()
		for _, c := range chats {
			_, err := w.pusher.Reading(w.store).RemoveMember(t.Context(), c, "bob", time.Now())
			w.ok(err)
		}
		w.pass(time.Minute)
		if n := w.rosters.Load() - before; n != 1 {
			t.Errorf("the members of chats were read in %d calls, want 1", n)
		}
		if n := w.pusher.Counters()["push_clears_total{next_banner}"]; n != 10 {
			t.Errorf("%d chats are left for the next banner, want 10", n)
		}
	})
}

// TestPusher_clears_what_is_read_on_another_node: the node that stores what is read tells the one
// that sent the banner, and says nothing of what nobody was notified of.
func TestPusher_clears_what_is_read_on_another_node(t *testing.T) {
	in(t, func(w *world) {
		w.stop()
		var gateway *pusher.Pusher
		var hints atomic.Int64
		w.forward = func(hint string) {
			hints.Add(1)
			gateway.Heard(hint)
			w.pusher.Heard(hint)
		}
		var err error
		gateway, err = pusher.New(pusher.Config{
			Store: w.store, Devices: w.devices, Secret: make([]byte, 32),
			Forward: w.forward, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		w.ok(err)
		w.start()
		w.pass(time.Minute)
		c := w.chat(tidemark.Group, "one", "alice", "bob")
		other := w.chat(tidemark.Group, "other", "alice", "bob")
		w.phone("bob", "phone")
		w.tells(c, `one: "alice: text", 1 unread`)
		w.send(other, "alice", "text")
		read := func(chat tidemark.ChatID) {
			_, err := gateway.Reading(w.store).Advance(t.Context(), []storage.Advance{{
				User: "bob", Chat: chat, Raise: tidemark.Raise{Acked: 1, Read: 1},
			}})
			w.ok(err)
		}
		before := hints.Load()
		read(other)
		if hints.Load() != before {
			t.Error("a hint of what nobody was notified of")
		}
		read(c)
		read(c)
		if hints.Load() != before+1 {
			t.Errorf("%d hints, want one", hints.Load()-before)
		}
		w.pass(3 * time.Second)
		w.says("clear 1, 0 unread")
		for _, hint := range []string{"", "/", "read", "read/bob", "shown/x/bob/phone/c/-1",
			"shown/x/bob/phone/c/n", "seen/b b/phone", "other/bob/c"} {
			w.pusher.Heard(hint)
		}
	})
}

// TestPusher_clear_drops_nothing: while the queue is full, what was read is left for the next
// banner, and no banner is dropped for it.
func TestPusher_clear_drops_nothing(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "one", "alice", "bob")
		w.phone("bob", "phone")
		w.tells(c, `one: "alice: text", 1 unread`)
		w.provider(away)
		for n := 0; w.phones.Room() > 0; n++ {
			user := tidemark.UserID(fmt.Sprint("user", n))
			w.phones.Enqueue(push.Target{User: user, Device: "phone", Registration: 1},
				push.Notification{Kind: push.Badge})
		}
		w.reads(c, 1)
		if counts, _ := w.phones.Stats(); counts.Dropped > 0 {
			t.Errorf("%d were dropped", counts.Dropped)
		}
	})
}

// screen is a device, whose handler does what docs/push.md says.
type screen struct {
	shown map[string]push.Notification // by name
	// latest is the greatest To of each name.
	latest map[string]tidemark.Sequence
}

// show shows a notification, and returns the banners that it removes.
func (s *screen) show(n push.Notification) (removed []push.Notification) {
	remove := func(name string, to tidemark.Sequence) {
		if before, there := s.shown[name]; there && before.To <= to {
			removed = append(removed, before)
			delete(s.shown, name)
		}
	}
	switch n.Kind {
	case push.Banner:
		if n.To > s.latest[n.Name] {
			s.shown[n.Name], s.latest[n.Name] = n, n.To
		}
	case push.Clear:
		remove(n.Name, n.To)
	}
	for _, c := range n.Clears {
		remove(c.Name, c.To)
	}
	return removed
}

// TestPusher_clear_hides_no_unread: whatever is sent and read, while the provider fails and
// overtakes, no banner of an unread message is removed. What is read is removed at last, if the
// provider can say so.
func TestPusher_clear_hides_no_unread(t *testing.T) {
	var cleared, carried int
	for seed := range uint64(15) {
		in(t, func(w *world) {
			random, network := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			var mu sync.Mutex // guards network
			w.provider(func(context.Context) push.Result {
				mu.Lock()
				wait, fails := time.Duration(network.IntN(3000)), network.IntN(4) == 0
				mu.Unlock()
				w.pass(wait * time.Millisecond)
				if fails {
					return away(context.Background())
				}
				return push.Result{Outcome: push.Sent}
			})
			chats := make([]tidemark.ChatID, 3)
			for i := range chats {
				chats[i] = w.chat(tidemark.Group, strconv.Itoa(i), "alice", "bob")
			}
			w.phone("bob", "phone")
			w.browser("bob", "laptop")
			screens := map[tidemark.DeviceID]*screen{}
			for _, id := range []tidemark.DeviceID{"phone", "laptop"} {
				screens[id] = &screen{
					map[string]push.Notification{}, map[string]tidemark.Sequence{},
				}
			}
			check := func() {
				for _, g := range w.told() {
					for _, n := range screens[g.To.Device].show(g.N) {
						states, err := w.store.States(t.Context(),
							[]storage.StateKey{{User: "bob", Chat: n.Chat}})
						w.ok(err)
						if states[0].Read < n.To {
							t.Fatalf("seed %d: the banner of %s/%d is gone, %d is read", seed,
								n.Chat, n.To, states[0].Read)
						}
					}
					if g.N.Kind == push.Clear {
						cleared++
					}
					carried += len(g.N.Clears)
				}
			}
			heads := make([]tidemark.Sequence, len(chats))
			for range 60 {
				i := random.IntN(len(chats))
				if random.IntN(3) == 0 && heads[i] > 0 {
					n := heads[i] - tidemark.Sequence(random.IntN(2))
					w.raise("bob", chats[i], tidemark.Raise{Acked: n, Read: n})
				} else {
					heads[i] = w.send(chats[i], "alice", "text")
				}
				w.pass(time.Duration(random.IntN(8000)) * time.Millisecond)
				check()
			}
			w.pass(10 * time.Minute)
			w.provider(nil)
			w.pass(10 * time.Minute)
			for i, c := range chats {
				w.raise("bob", c, tidemark.Raise{Acked: heads[i], Read: heads[i]})
			}
			w.pass(10 * time.Second)
			check()
			if n := len(screens["phone"].shown); n > 0 {
				t.Errorf("seed %d: %d banners of what is read are left", seed, n)
			}
		})
	}
	if cleared < 25 || carried < 25 {
		t.Errorf("%d were cleared, and %d with another banner: too few", cleared, carried)
	}
}
