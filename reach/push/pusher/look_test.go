package pusher_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
)

func away(context.Context) push.Result {
	return push.Result{Outcome: push.Retry, Detail: "away"}
}

// TestPusher_looks_again: what waits for a provider is not sent if the user has read it, has left
// the chat, or has logged out meanwhile. What is sent has the present badge.
func TestPusher_looks_again(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(w *world, c tidemark.ChatID)
		want      string
	}{
		"nothing": {func(*world, tidemark.ChatID) {}, `alice: "text", 2 unread`},
		"read": {func(w *world, c tidemark.ChatID) {
			w.raiseIn(w.store, "bob", c, tidemark.Raise{Acked: 1, Read: 1})
		}, ""},
		"read, and the pusher knows": {func(w *world, c tidemark.ChatID) {
			w.raise("bob", c, tidemark.Raise{Acked: 1, Read: 1})
		}, "clear 1, 1 unread"},
		"acknowledged": {func(w *world, c tidemark.ChatID) {
			w.raise("bob", c, tidemark.Raise{Acked: 1})
		}, `alice: "text", 2 unread`},
		"another chat was read": {func(w *world, _ tidemark.ChatID) {
			w.raise("bob", "c-other", tidemark.Raise{Acked: 1, Read: 1})
		}, `alice: "text", 1 unread`},
		"left": {func(w *world, c tidemark.ChatID) {
			_, err := w.store.RemoveMember(w.Context(), c, "bob", time.Now())
			w.ok(err)
		}, ""},
		"logged out": {func(w *world, _ tidemark.ChatID) {
			w.ok(w.devices.Drop(w.Context(), "bob", "phone"))
		}, ""},
		"muted": {func(w *world, c tidemark.ChatID) {
			w.settings("bob", devices.Settings{Mutes: []devices.Mute{{Chat: c}}})
		}, "badge, 2 unread"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				c := w.chat(tidemark.Group, "", "alice", "bob", "carol")
				other := w.chat(tidemark.Direct, "other", "alice", "bob")
				w.phone("bob", "phone")
				w.send(other, "alice", "line", func(d *tidemark.Draft) {
					d.CreatedAt = time.Now().Add(-2 * time.Hour) // No banner has it.
				})
				w.provider(away)
				w.send(c, "alice", "text")
				w.pass(20 * time.Second)
				tc.meanwhile(w, c)
				w.provider(nil)
				w.pass(5 * time.Minute)
				var want []string
				if tc.want != "" {
					want = append(want, tc.want)
				}
				w.says(want...)
				if n := w.owed(); n != 0 {
					t.Errorf("%d chats are owed", n)
				}
			})
		})
	}
}

// TestPusher_looks_again_after_a_slow_store: a user who reads the message while the notifications
// of others are formed is not told.
func TestPusher_looks_again_after_a_slow_store(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "", "alice", "bob", "carol")
		w.phone("bob", "phone")
		w.phone("carol", "phone")
		w.slow = 2 * time.Second
		w.send(c, "alice", "text")
		w.pass(4 * time.Second) // The states were read after three.
		w.raiseIn(w.store, "carol", c, tidemark.Raise{Acked: 1, Read: 1})
		w.pass(time.Minute)
		var users []tidemark.UserID
		for _, g := range w.told() {
			users = append(users, g.To.User)
		}
		if want := []tidemark.UserID{"bob"}; !slices.Equal(users, want) {
			t.Errorf("told %v, want %v", users, want)
		}
	})
}
