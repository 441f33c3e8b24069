package server_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// What no node handed over, another device of the user may have got when it was opened, and acknowledged: his watermark says nothing of what this session has.
func TestR_EPOCH_a_live_session_gets_what_another_device_acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		laptop := a.open("bob")
		a.send("alice", chat)
		want(t, "before", messagesOf(laptop.drain()), "message ab 1")
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "k")
		phone := a.open("bob")
		want(t, "the phone", messagesOf(phone.drain()), "message ab 1", "message ab 2")
		a.ack("bob", chat, 2, 0)
		time.Sleep(time.Minute)
		want(t, "the laptop", messagesOf(laptop.drain()), "message ab 2")
		want(t, "the phone again", messagesOf(phone.drain()))
	})
}

// The same in a chat of which the session knows nothing: nothing was said there since it opened.
func TestR_EPOCH_a_session_gets_what_another_device_acknowledged_in_a_quiet_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		quiet, old := a.chat("quiet", "alice", "bob"), a.chat("old", "alice", "bob", "carol")
		a.send("alice", old)
		a.ack("bob", old, 1, 0)
		time.Sleep(time.Hour)
		for range 3 {
			a.send("alice", quiet)
		}
		a.ack("bob", quiet, 3, 0)
		time.Sleep(time.Hour)
		phone, laptop := a.open("bob"), b.open("bob")
		phone.drain()
		laptop.drain()
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if to.ID == "b" && e.Notification != nil {
				return nil // lost, and nobody knows
			}
			return send()
		})
		a.send("alice", quiet)
		a.send("alice", quiet)
		want(t, "the phone", messagesOf(phone.drain()), "message quiet 4", "message quiet 5")
		phone.Ack(server.Ack{Chat: quiet, Acked: 5})
		settle()
		want(t, "the laptop, before b knows", messagesOf(laptop.drain()))
		w.publish.clear()
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after all have compared",
			messagesOf(laptop.drain()), "message quiet 4", "message quiet 5")
		w.ghost("d", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "and after they have compared again", messagesOf(laptop.drain()))
	})
}

// And where the session has heard of the chat meanwhile, by a message that came after those that were lost.
func TestR_EPOCH_a_session_gets_what_was_lost_before_the_first_message_it_heard_of(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat, busy := a.chat("ab", "alice", "bob"), a.chat("abc", "alice", "bob", "carol")
		a.send("alice", busy)
		a.ack("bob", busy, 1, 0)
		time.Sleep(time.Minute)
		phone, laptop := a.open("bob"), b.open("bob")
		a.send("alice", busy)
		want(t, "both", slices.Concat(messagesOf(phone.drain()), messagesOf(laptop.drain())),
			"message abc 2", "message abc 2")
		time.Sleep(time.Hour)
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if to.ID == "b" && e.Notification != nil {
				return nil // lost, and nobody knows
			}
			return send()
		})
		a.send("alice", chat)
		a.send("alice", chat)
		want(t, "the phone", messagesOf(phone.drain()), "message ab 1", "message ab 2")
		phone.Ack(server.Ack{Chat: chat, Acked: 2})
		phone.Ack(server.Ack{Chat: busy, Acked: 2})
		settle()
		w.publish.clear()
		a.send("alice", chat)
		want(t, "the laptop, before b knows", messagesOf(laptop.drain()), "message ab 3")
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after all have compared", messagesOf(laptop.drain()), "message ab 1",
			"message ab 2", "message ab 3")
		w.ghost("d", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "and after they have compared again", messagesOf(laptop.drain()))
	})
}

// A node that could not ask the registry for a moment keeps its lease: nobody compares. Whoever has a device here, or wrote the message, may have one elsewhere.
func TestSend_unknown_leases_of_those_who_need_no_row_are_looked_up_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		phone, laptop, desk := a.open("bob"), b.open("bob"), b.open("alice")
		for _, c := range []*client{phone, laptop, desk} {
			c.drain()
		}
		time.Sleep(time.Minute)
		before := b.Counters()["epochs_total"]
		down.Store(true)
		a.send("alice", chat)
		want(t, "bob's phone, on the sender's node", messagesOf(phone.drain()), "message ab 1")
		time.Sleep(time.Second)
		down.Store(false)
		time.Sleep(5 * time.Second)
		want(t, "bob's laptop", messagesOf(laptop.drain()), "message ab 1")
		want(t, "alice's other device", messagesOf(desk.drain()), "message ab 1")
		if after := b.Counters()["epochs_total"]; after != before {
			t.Errorf("the epoch rose %d times: this shows nothing", after-before)
		}
	})
}

// Ticks that were lost with the rest come with the snapshot.
func TestR_EPOCH_ticks_are_sent_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice", withStatuses)
		a.send("alice", chat)
		alice.drain()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Status != nil {
				return nil // lost, and nobody knows
			}
			return send()
		})
		a.ack("bob", chat, 1, 1)
		settle()
		want(t, "alice", alice.drain())
		w.publish.clear()
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		if got := alice.drain(); !slices.Contains(got, "status ab bob 1 1") {
			t.Errorf("alice is told %v, want bob's ticks", got)
		}
	})
}
