package pusher_test

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
)

// TestPusher_one_summary_of_many: FCM keeps a hundred messages for a device that is away, and drops
// all of them at the next. So there is one summary in place of further banners, until the device
// gives a sign of life.
func TestPusher_one_summary_of_many(t *testing.T) {
	const many = 80
	alive := map[string]func(w *world, c tidemark.ChatID, token string){
		"acknowledged": func(w *world, _ tidemark.ChatID, token string) {
			_, err := w.pusher.Acknowledged(w.Context(), token)
			w.ok(err)
		},
		"session": func(w *world, _ tidemark.ChatID, _ string) { w.connect("bob", "phone") },
		"registered": func(w *world, _ tidemark.ChatID, _ string) {
			w.ok(w.devices.Drop(w.Context(), "bob", "phone"))
			w.phone("bob", "phone")
		},
	}
	for name, sign := range alive {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				c := w.chat(tidemark.Direct, "d", "alice", "bob")
				w.phone("bob", "phone")
				w.browser("bob", "laptop")
				token := ""
				for range many + 3 {
					w.send(c, "alice", "text")
					w.pass(5 * time.Second)
				}
				var phone []push.Notification
				for _, g := range w.told() {
					if token == "" && g.To.Device == "phone" {
						token = g.N.Token
					}
					if g.To.Device == "phone" {
						phone = append(phone, g.N)
					} else if g.N.Kind != push.Banner {
						t.Errorf("the browser has got a %s", g.N.Kind)
					}
				}
				if len(phone) != many+3 {
					t.Fatalf("%d notifications, want %d", len(phone), many+3)
				}
				for i, n := range phone {
					if want := i >= many; (n.Kind == push.Summary) != want {
						t.Fatalf("notification %d is a %s", i, n.Kind)
					}
				}
				last := phone[len(phone)-1]
				if last.Name == phone[0].Name || last.Name != phone[many].Name ||
					last.Chat != "" || last.Token != "" || last.Badge != many+3 ||
					last.Body != "New messages" {
					t.Errorf("the summary is %+v", last)
				}
				sign(w, c, token)
				w.send(c, "alice", "text")
				w.pass(15 * time.Second)
				for _, g := range w.told() {
					if g.N.Kind != push.Banner {
						t.Errorf("after a sign of life: %+v", g)
					}
				}
				w.connect("bob")
				w.raise("bob", c, tidemark.Raise{Acked: 5, Read: many + 4})
				w.pass(5 * time.Second)
				if n := len(w.told()); n != 1 {
					t.Errorf("%d notifications after all was read, want one", n)
				}
			})
		})
	}
}

// TestPusher_summaries_of_several_nodes: each node counts what the others send, too.
func TestPusher_summaries_of_several_nodes(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		tell := func(want push.Kind) {
			t.Helper()
			w.send(c, "alice", "text")
			w.pass(5 * time.Second)
			told := w.told()
			if len(told) != 1 || told[0].N.Kind != want {
				t.Errorf("told %+v, want a %s", told, want)
			}
		}
		for range 79 {
			w.pusher.Heard("shown/other/bob/phone/c/1")
		}
		tell(push.Banner)
		tell(push.Summary)
		w.pusher.Heard("seen/bob/phone")
		tell(push.Banner)
	})
}
