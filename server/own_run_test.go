package server_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// A message of their own moves its author's boundary, which changes no tick of others.

// TestStatus_published_if_a_tick_changes_of_others: alice, bob and carol write, and each sees what
// changes the ticks of their own messages.
func TestStatus_published_if_a_tick_changes_of_others(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		alice, bob, carol := a.open("alice"), b.open("bob"), a.open("carol")
		all := func(what string, wanted ...string) {
			t.Helper()
			settle()
			for _, c := range []*client{alice, bob, carol} {
				var others []string
				for _, line := range wanted {
					if !strings.Contains(line, string(c.user)) {
						others = append(others, line)
					}
				}
				got := statusesOf(c.drain(), "alice", "bob", "carol")
				want(t, what+", to "+string(c.user), got, others...)
			}
		}
		all("nothing")
		a.send("alice", chat)
		all("the first message")
		a.send("alice", chat)
		all("one more")
		b.ack("bob", chat, 2, 0)
		all("an acknowledgement", "status abc bob 2 0")
		b.send("bob", chat)
		all("a reply, which reads", "status abc bob 3 3")
		b.send("bob", chat)
		all("one more of bob")
		a.ack("carol", chat, 4, 0)
		all("an acknowledgement by carol", "status abc carol 4 0")
		_, err := b.Send(b.ctx, "bob", tidemark.Draft{
			ChatID: chat, ClientMessageID: "seen", Content: "hello", Seen: tidemark.SeenThrough(4),
		})
		if err != nil {
			t.Fatal(err)
		}
		all("a third of bob, who has seen his own")
		a.ack("alice", chat, 5, 5)
		all("a read by alice", "status abc alice 5 5")
	})
}

// TestStatus_published_if_a_tick_changes_after_a_lost_answer: an acknowledgement is stored, and the
// node does not get the answer. The next raise of the user tells the others, also one over own
// messages.
func TestStatus_published_if_a_tick_changes_after_a_lost_answer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		alice := a.open("alice")
		a.send("alice", chat)
		settle()
		alice.drain()
		raise := []storage.Advance{{User: "bob", Chat: chat, Raise: tidemark.Raise{Acked: 1}}}
		if _, err := a.store.Advance(a.ctx, raise); err != nil {
			t.Fatal(err)
		}
		_, err := a.Send(a.ctx, "bob", tidemark.Draft{
			ChatID: chat, ClientMessageID: "reply", Content: "x", Seen: tidemark.SeenThrough(0),
		})
		if err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "the tick", statusesOf(alice.drain(), "bob"), "status ab bob 2 0")
	})
}

// TestStatus_published_if_a_tick_changes_while_it_is_read: a query reads what a reply has just
// written, before the node has the answer of that write.
func TestStatus_published_if_a_tick_changes_while_it_is_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		alice := a.open("alice")
		a.send("alice", chat)
		a.ack("bob", chat, 1, 0)
		settle()
		alice.drain()
		w.after.set(func(method string) error {
			if method == "Advance" {
				_, err := a.Statuses(a.ctx, "alice", []tidemark.ChatID{chat})
				return err
			}
			return nil
		})
		a.send("bob", chat)
		settle()
		w.after.clear()
		want(t, "alice", statusesOf(alice.drain(), "bob"), "status ab bob 2 2")
	})
}

// TestStatus_published_if_a_tick_changes_in_a_chat_that_grows: the last boundary that holds the
// aggregate back is the author's, on a node that still takes the chat for a small one.
func TestStatus_published_if_a_tick_changes_in_a_chat_that_grows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		b := w.node("b", func(cfg *server.Config) { cfg.AckInterval = 5 * time.Second })
		nodesTrust()
		users := crowd(tidemark.StatusFanoutLimit)
		chat := a.chat("crowd", users...)
		told := a.open("bob").collect()
		b.send("alice", chat)
		settle()
		b.send("alice", chat) // b writes that alice has it after 5 s
		for _, user := range users[1:] {
			a.ack(user, chat, 2, 0)
		}
		var late []func() error
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if to.ID == "b" && e.Membership != nil {
				late = append(late, send)
				return nil
			}
			return send()
		})
		a.add(chat, "zoe")
		a.ack("zoe", chat, 2, 0)
		time.Sleep(10 * time.Second)
		w.publish.clear()
		for _, send := range late {
			if err := send(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		want(t, "bob", lastOf(statusesOf(told(), "all")), "status crowd all 2 0")
	})
}

// TestStatus_published_if_a_tick_changes_in_a_large_chat: the author is the last who has a message.
func TestStatus_published_if_a_tick_changes_in_a_large_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.AckInterval = 5 * time.Second })
		users := crowd(tidemark.StatusFanoutLimit + 10)
		chat := a.chat("crowd", users...)
		told := a.open("bob").collect()
		a.send("alice", chat)
		settle()
		a.send("alice", chat) // that she has it is written after 5 s
		for _, user := range users[1:] {
			a.ack(user, chat, 2, 0)
		}
		time.Sleep(10 * time.Second)
		want(t, "bob", lastOf(statusesOf(told(), "all")), "status crowd all 2 0")
	})
}

func lastOf(lines []string) []string { return lines[max(0, len(lines)-1):] }

// TestStatus_ack_fire_and_forget_is_confirmed_later: a client gets its user's own boundary on the
// node that has written it, a few seconds later, once for all of that time.
func TestStatus_ack_fire_and_forget_is_confirmed_later(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		phone, bot := a.open("bob", withStatuses), a.open("bob")
		laptop := b.open("bob", withStatuses)
		for range 5 {
			a.send("alice", chat)
		}
		settle()
		for _, c := range []*client{phone, bot, laptop} {
			c.drain()
		}
		both := func(what string, onPhone ...string) {
			t.Helper()
			settle()
			want(t, what+", on the phone", statusesOf(phone.drain(), "bob"), onPhone...)
			want(t, what+", on the laptop", statusesOf(laptop.drain(), "bob"))
			want(t, what+", to a bot", statusesOf(bot.drain(), "bob"))
		}
		for n := range tidemark.Sequence(5) {
			phone.Ack(server.Ack{Chat: chat, Acked: n + 1})
			time.Sleep(200 * time.Millisecond)
		}
		both("at once")
		time.Sleep(4 * time.Second)
		both("after 4 s", "status ab bob 5 0")
		phone.Ack(server.Ack{Chat: chat, Acked: 5})
		time.Sleep(5 * time.Second)
		both("a repeated one", "status ab bob 5 0")
		time.Sleep(time.Minute)
		both("nothing more")
	})
}
