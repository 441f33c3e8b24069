package pusher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/push"
	"github.com/tidemark-im/tidemark/reach/push/devices"
	"github.com/tidemark-im/tidemark/reach/push/pusher"
)

// in runs a test in a world.
func in(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		time.Sleep(time.Minute) // The outlet is active.
		w.began = time.Now()
		test(w)
	})
}

// pass lets so much time of the bubble pass.
func (w *world) pass(d time.Duration) { time.Sleep(d) }

func TestPusher_tells_those_who_are_away(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.browser("bob", "laptop")
		w.phone("alice", "phone")
		w.send(c, "alice", "Lunch?")
		time.Sleep(2 * time.Second)
		w.shows()
		if n := w.owed(); n != 1 {
			t.Errorf("%d chats are owed while a message waits, want 1", n)
		}
		time.Sleep(3 * time.Second)
		told := w.told()
		if len(told) != 2 {
			t.Fatalf("told %+v, want both devices", told)
		}
		for _, g := range told {
			n := g.N
			if g.To.User != "bob" || n.Title != "alice" || n.Body != "Lunch?" || n.Badge != 1 ||
				n.Chat != c || n.From != 1 || n.To != 1 || n.Urgency != push.High ||
				n.Sealed != (g.To.Device == "laptop") || g.When > 4*time.Second {
				t.Errorf("told %+v", g)
			}
			ack, err := w.pusher.Acknowledged(t.Context(), n.Token)
			if err != nil || ack != (pusher.Ack{User: "bob", Chat: c, Through: 1}) {
				t.Errorf("the token acknowledges %+v, %v", ack, err)
			}
		}
		time.Sleep(10 * time.Second)
		w.shows()
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed after all was sent", n)
		}
	})
}

// TestPusher_one_banner_for_a_chat: messages within some seconds are one notification, and later
// ones take the place of earlier ones.
func TestPusher_one_banner_for_a_chat(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "Team", "alice", "bob", "carol")
		w.phone("bob", "phone")
		w.settings("carol", devices.Settings{DisplayName: "Carol"})
		for n := range 50 {
			w.send(c, "alice", fmt.Sprint("message ", n))
		}
		w.send(c, "carol", "last")
		time.Sleep(5 * time.Second)
		first := w.told()
		w.send(c, "alice", "one more")
		time.Sleep(5 * time.Second)
		second := w.told()
		if len(first) != 1 || len(second) != 1 {
			t.Fatalf("told %+v and %+v, want one and one", first, second)
		}
		n, next := first[0].N, second[0].N
		if n.Title != "Team" || n.Body != "Carol: last" || n.From != 1 || n.To != 51 ||
			n.Badge != 51 || n.Token != "" {
			t.Errorf("told %+v", n)
		}
		if next.Body != "alice: one more" || next.Name != n.Name || next.To != 52 {
			t.Errorf("told %+v", next)
		}
	})
}

// TestPusher_latest_of_a_stream: while messages come all the time, there is a banner of the latest
// one every few seconds, and at last one of the last.
func TestPusher_latest_of_a_stream(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		for n := range 100 {
			w.send(c, "alice", fmt.Sprint(n))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		told := w.told()
		if len(told) < 2 || len(told) > 5 {
			t.Errorf("%d notifications in 10 s, want 2 to 5", len(told))
		}
		for i, g := range told {
			late := int(g.When/(100*time.Millisecond)) - int(g.N.To)
			if i < len(told)-1 && late > 14 {
				t.Errorf("after %v, the banner is of message %d", g.When, g.N.To)
			}
		}
		if last := told[len(told)-1].N; last.Body != "99" {
			t.Errorf("the last banner is of %q", last.Body)
		}
	})
}

func TestPusher_tells_nobody_who_has_read(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.connect("bob", "laptop")
		w.send(c, "alice", "Lunch?")
		time.Sleep(8 * time.Second)
		w.raise("bob", c, tidemark.Raise{Acked: 1, Read: 1})
		time.Sleep(2 * time.Minute)
		w.shows()
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed after all was read", n)
		}
		w.send(c, "bob", "my own")
		time.Sleep(2 * time.Minute)
		w.shows()
	})
}

// TestPusher_suspended_does_nothing_but_wait: what comes in the meantime is not told later.
func TestPusher_suspended_does_nothing_but_wait(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		suspend := func(users ...tidemark.UserID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.suspended = map[tidemark.UserID]bool{}
			for _, user := range users {
				w.suspended[user] = true
			}
		}
		suspend("bob")
		w.send(c, "alice", "Lunch?")
		time.Sleep(2 * time.Minute)
		w.shows()
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed to a suspended user, want none", n)
		}
		suspend()
		time.Sleep(2 * time.Minute)
		w.shows()
		w.send(c, "alice", "Dinner?")
		time.Sleep(2 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.banner); n != 1 {
			t.Errorf("%d banners after the suspension, want one", n)
		}
	})
}

// TestPusher_of_those_who_have_a_session: their other devices ring after a while. One that has the
// session itself does not, unless it does not acknowledge, or has gone.
func TestPusher_of_those_who_have_a_session(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.phone("bob", "tablet")
		w.connect("bob", "phone")
		w.send(c, "alice", "one")
		time.Sleep(time.Second)
		w.raise("bob", c, tidemark.Raise{Acked: 1})
		time.Sleep(3 * time.Minute)
		w.shows(`10s bob/tablet alice: "one", 1 unread`)

		w.began = time.Now()
		w.send(c, "alice", "two") // The phone has a session, and does not acknowledge.
		time.Sleep(3 * time.Minute)
		if n := len(w.told()); n != 2 {
			t.Errorf("%d notifications, want one for each device", n)
		}

		w.began = time.Now()
		w.send(c, "alice", "three") // It acknowledges, and goes away.
		w.raise("bob", c, tidemark.Raise{Acked: 3})
		time.Sleep(30 * time.Second)
		w.shows(`10s bob/tablet alice: "three", 3 unread`)
		w.connect("bob")
		time.Sleep(time.Minute)
		told := w.told()
		if len(told) != 1 || told[0].To.Device != "phone" {
			t.Errorf("after the session of the phone has ended: %+v", told)
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
	})
}

// TestPusher_settings: mutes and quiet hours leave the badge, and previews say how much is shown.
func TestPusher_settings(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		for _, tc := range []struct {
			settings devices.Settings
			want     string
		}{
			{devices.Settings{}, `alice: "text", 1 unread`},
			{devices.Settings{Preview: push.PreviewSender}, `alice: "New message", 2 unread`},
			{devices.Settings{Preview: push.PreviewNone}, `: "New message", 3 unread`},
			{devices.Settings{Preview: push.PreviewSealed}, `: "New message", 4 unread`},
			{devices.Settings{Mutes: []devices.Mute{{Chat: c}}}, `badge, 5 unread`},
			{devices.Settings{Mutes: []devices.Mute{{Chat: "another"}}},
				`alice: "text", 6 unread`},
			{devices.Settings{Quiet: &devices.Quiet{Start: "00:00", End: "00:00", Zone: "UTC"}},
				`badge, 7 unread`},
		} {
			w.settings("bob", tc.settings)
			w.began = time.Now()
			w.send(c, "alice", "text")
			time.Sleep(5 * time.Second)
			told := w.told()
			if len(told) != 1 {
				t.Fatalf("with %+v: %+v", tc.settings, told)
			}
			n := told[0].N
			got := fmt.Sprintf("%s: %q, %d unread", n.Title, n.Body, n.Badge)
			if n.Kind == push.Badge {
				got = fmt.Sprintf("badge, %d unread", n.Badge)
			}
			if got != tc.want {
				t.Errorf("with %+v: %s, want %s", tc.settings, got, tc.want)
			}
			if whole := n.Body == "text" && n.From == n.To; (n.Token != "") != whole {
				t.Errorf("with %+v: the token is %q", tc.settings, n.Token)
			}
			w.raise("bob", c, tidemark.Raise{Acked: n.To})
		}
	})
}

// TestPusher_ack_token_honest: only a notification that holds all that is new has a token.
func TestPusher_ack_token_honest(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		for name, tc := range map[string]struct {
			text   string
			acked  bool
			change func(*tidemark.Draft)
			want   bool
		}{
			"whole":         {"text", true, nil, true},
			"after another": {"text", false, nil, false},
			"attachment": {"text", true, func(d *tidemark.Draft) {
				d.Attachments = json.RawMessage(`[{"s3_ref":"x"}]`)
			}, false},
			"no text": {"AAAA", true, func(d *tidemark.Draft) {
				d.ContentType = "x/sealed"
			}, false},
			"nearly text": {"AAAA", true, func(d *tidemark.Draft) {
				d.ContentType = "text/plain-sealed"
			}, false},
			"metadata": {"text", true, func(d *tidemark.Draft) {
				d.Metadata = json.RawMessage(`{"place":"here"}`)
			}, false},
			"spaces": {"  ", true, nil, false},
		} {
			var changes []func(*tidemark.Draft)
			if tc.change != nil {
				changes = append(changes, tc.change)
			}
			if !tc.acked {
				w.send(c, "alice", "before")
			}
			n := w.send(c, "alice", tc.text, changes...)
			time.Sleep(6 * time.Second)
			told := w.told()
			if len(told) != 1 || told[0].N.To != n || (told[0].N.Token != "") != tc.want {
				t.Errorf("%s: told %+v", name, told)
			}
			w.raise("bob", c, tidemark.Raise{Acked: n})
		}
		// A token ends with its registration, and one of another secret is forged.
		w.send(c, "alice", "text")
		time.Sleep(6 * time.Second)
		token := w.told()[0].N.Token
		ack, err := w.pusher.Acknowledged(t.Context(), token)
		w.ok(err)
		if ack.User != "bob" {
			t.Errorf("the token acknowledges %+v", ack)
		}
		for _, forged := range []string{"", token[:len(token)-1], "B" + token[1:], token + "A"} {
			refused(w, forged)
		}
		w.ok(w.devices.Drop(t.Context(), "bob", "phone"))
		refused(w, token)
		w.phone("bob", "phone")
		refused(w, token)
	})
}

func refused(w *world, token string) {
	w.Helper()
	_, err := w.pusher.Acknowledged(w.Context(), token)
	if tidemark.CodeOf(err) != tidemark.Unauthenticated {
		w.Errorf("the token %q: %v", token, err)
	}
}

// TestPusher_no_push_outside_membership: who left, and who joined later, hear nothing of it. Nor
// does the former user of a phone.
func TestPusher_no_push_outside_membership(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Group, "g", "alice", "bob", "carol")
		for _, user := range []tidemark.UserID{"bob", "carol", "dave"} {
			w.phone(user, "phone")
		}
		_, err := w.store.RemoveMember(t.Context(), c, "bob", time.Now())
		w.ok(err)
		w.send(c, "alice", "secret")
		_, err = w.store.AddMembers(t.Context(), c, []tidemark.UserID{"dave"}, tidemark.Ordinary,
			time.Now())
		w.ok(err)
		// Dave logs in on Carol's phone.
		_, err = w.devices.Put(t.Context(), "dave", devices.Device{
			ID: "new", Platform: devices.FCM, Address: "address-of-carol-phone",
		})
		w.ok(err)
		time.Sleep(time.Minute)
		w.shows()
		// Bob returns, and sees what comes from now on.
		_, err = w.store.AddMembers(t.Context(), c, []tidemark.UserID{"bob"}, tidemark.Ordinary,
			time.Now())
		w.ok(err)
		w.ok(w.engine.Replay(t.Context(), "push", c, 1, time.Time{}))
		time.Sleep(10 * time.Second)
		w.shows()
		w.ok(w.devices.Drop(t.Context(), "bob", "phone"))
		w.began = time.Now()
		w.send(c, "alice", "to dave")
		time.Sleep(6 * time.Second)
		for _, g := range w.told() {
			if g.To.User != "dave" || g.N.From != 2 || g.N.Badge != 1 {
				t.Errorf("told %+v", g)
			}
		}
	})
}

// TestPusher_kinds_that_do_not_count: lines about the chat wake nobody. In a large chat only those
// are told whom a message names.
func TestPusher_kinds_that_do_not_count(t *testing.T) {
	in(t, func(w *world) {
		users := []tidemark.UserID{"alice", "bob", "carol"}
		for n := range tidemark.PendingFanoutLimit {
			users = append(users, tidemark.UserID(fmt.Sprint("u", n)))
		}
		small, large := w.chat(tidemark.Group, "small", users[:3]...),
			w.chat(tidemark.Group, "large", users...)
		w.phone("bob", "phone")
		w.phone("carol", "phone")
		w.send(small, "alice", "carol has joined", func(d *tidemark.Draft) {
			d.Kind = tidemark.KindSystem
		})
		w.send(large, "alice", "hello, all of you")
		w.send(large, "alice", "all", func(d *tidemark.Draft) {
			d.Mentions = tidemark.NewMentions(true, nil)
		})
		time.Sleep(time.Minute)
		w.shows()
		w.began = time.Now()
		w.send(large, "alice", "hello, Bob", func(d *tidemark.Draft) {
			d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"bob"})
		})
		time.Sleep(6 * time.Second)
		w.shows(`3s bob/phone large: "alice: hello, Bob", 3 unread`)
	})
}

// TestPusher_many_members: in a chat of many, all who are away are told. Nothing is left of what
// concerns nobody.
func TestPusher_many_members(t *testing.T) {
	in(t, func(w *world) {
		users := []tidemark.UserID{"alice"}
		for n := range 50 {
			users = append(users, tidemark.UserID(fmt.Sprint("u", n)))
		}
		c := w.chat(tidemark.Group, "many", users...)
		w.send(c, "alice", "nobody has a device")
		time.Sleep(time.Minute)
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
		for _, user := range users {
			w.phone(user, "phone")
		}
		w.send(c, "alice", "hello")
		time.Sleep(10 * time.Second)
		if n := len(w.told()); n != 50 {
			t.Errorf("%d are told, want 50", n)
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
	})
}

// TestPusher_push_is_owed_until_sent: a crash and a provider that is away lose no banner.
func TestPusher_push_is_owed_until_sent(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.provider(func(context.Context) push.Result {
			return push.Result{Outcome: push.Retry, Detail: "away"}
		})
		w.send(c, "alice", "one")
		time.Sleep(5 * time.Minute)
		w.shows()
		if n := w.owed(); n != 1 {
			t.Errorf("%d chats are owed while the provider is away, want 1", n)
		}
		w.stop() // What the queue has is lost.
		w.provider(nil)
		w.start()
		time.Sleep(time.Minute)
		told := w.told()
		if len(told) != 1 || told[0].N.Body != "one" {
			t.Errorf("after a restart: told %+v", told)
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed after all was sent", n)
		}
		// What no provider takes for an hour is no news any more.
		w.provider(func(context.Context) push.Result {
			return push.Result{Outcome: push.Retry, Detail: "away"}
		})
		w.send(c, "alice", "two")
		time.Sleep(2 * time.Hour)
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed after two hours", n)
		}
	})
}

// TestPusher_ends_dead_registrations, and not those that were made since.
func TestPusher_ends_dead_registrations(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.provider(func(context.Context) push.Result {
			return push.Result{Outcome: push.DropTarget, Detail: "gone"}
		})
		w.send(c, "alice", "one")
		time.Sleep(10 * time.Second)
		found, err := w.devices.Of(t.Context(), []tidemark.UserID{"bob"})
		w.ok(err)
		if len(found[0].Devices) != 0 {
			t.Errorf("the devices are %+v", found[0].Devices)
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
		w.provider(nil)
		w.phone("bob", "phone")
		w.send(c, "alice", "two")
		time.Sleep(10 * time.Second)
		if told := w.told(); len(told) != 1 || told[0].N.Body != "two" {
			t.Errorf("told %+v", told)
		}
	})
}

// TestPusher_many_messages_while_a_provider_is_slow: each device gets the last one, and no chat
// waits for another.
func TestPusher_many_messages_while_a_provider_is_slow(t *testing.T) {
	in(t, func(w *world) {
		w.provider(func(ctx context.Context) push.Result {
			select {
			case <-ctx.Done():
				return push.Result{Outcome: push.Retry}
			case <-time.After(5 * time.Second):
			}
			return push.Result{Outcome: push.Sent}
		})
		var chats []tidemark.ChatID
		for n := range 100 {
			user := tidemark.UserID(fmt.Sprint("bob", n))
			w.phone(user, "phone")
			chats = append(chats, w.chat(tidemark.Direct, fmt.Sprint("d", n), "alice", user))
		}
		for round := range 30 {
			for _, c := range chats {
				w.send(c, "alice", fmt.Sprint("round ", round))
			}
			time.Sleep(700 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		last := map[tidemark.UserID]string{}
		for _, g := range w.told() {
			last[g.To.User] = g.N.Body
		}
		for n := range chats {
			user := tidemark.UserID(fmt.Sprint("bob", n))
			if !strings.HasSuffix(last[user], "round 29") {
				t.Errorf("%s was told %q at last", user, last[user])
			}
		}
		if n := w.owed(); n != 0 {
			t.Errorf("%d chats are owed", n)
		}
	})
}

// TestPusher_tokens_of_other_data: a token counts only for the data from which it is.
func TestPusher_tokens_of_other_data(t *testing.T) {
	in(t, func(w *world) {
		c := w.chat(tidemark.Direct, "d", "alice", "bob")
		w.phone("bob", "phone")
		w.send(c, "alice", "text")
		time.Sleep(6 * time.Second)
		token := w.told()[0].N.Token
		for incarnation, good := range map[tidemark.Incarnation]bool{"": true, "restored": false} {
			other, err := pusher.New(pusher.Config{
				Store: w.store, Devices: w.devices, Secret: make([]byte, 32),
				Incarnation: incarnation,
			})
			w.ok(err)
			if _, err := other.Acknowledged(t.Context(), token); (err == nil) != good {
				t.Errorf("with the data %q: %v", incarnation, err)
			}
		}
		if _, err := pusher.New(pusher.Config{Secret: make([]byte, 31)}); err == nil {
			t.Error("a short secret is taken")
		}
	})
}
