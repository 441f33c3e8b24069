package server_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/server"
)

// TestR_EPOCH_a_live_session_gets_what_another_device_acknowledged: a message was never handed
// over. Another device of the user finds it when it opens, and acknowledges it. The watermark then
// says nothing about this session, which needs the message as well.
func TestR_EPOCH_a_live_session_gets_what_another_device_acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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

// TestR_EPOCH_a_session_gets_what_another_device_acknowledged_in_a_quiet_chat: the same, in a chat
// of which the session has not been notified since it opened.
func TestR_EPOCH_a_session_gets_what_another_device_acknowledged_in_a_quiet_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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
		w.dropping(notificationTo("b"))
		a.send("alice", quiet)
		a.send("alice", quiet)
		want(t, "the phone", messagesOf(phone.drain()), "message quiet 4", "message quiet 5")
		phone.Ack(server.Ack{Chat: quiet, Acked: 5})
		settle()
		want(t, "the laptop, before b notices", messagesOf(laptop.drain()))
		w.publish.clear()
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after its session reconciled",
			messagesOf(laptop.drain()), "message quiet 4", "message quiet 5")
		w.ghost("d", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after it reconciled again", messagesOf(laptop.drain()))
	})
}

// TestR_EPOCH_a_session_gets_what_was_lost_before_its_first_notification: the same, if the
// session's first notification of the chat came after those that were lost.
func TestR_EPOCH_a_session_gets_what_was_lost_before_its_first_notification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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
		w.dropping(notificationTo("b"))
		a.send("alice", chat)
		a.send("alice", chat)
		want(t, "the phone", messagesOf(phone.drain()), "message ab 1", "message ab 2")
		phone.Ack(server.Ack{Chat: chat, Acked: 2})
		phone.Ack(server.Ack{Chat: busy, Acked: 2})
		settle()
		w.publish.clear()
		a.send("alice", chat)
		want(t, "the laptop, before b notices", messagesOf(laptop.drain()), "message ab 3")
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after its session reconciled", messagesOf(laptop.drain()),
			"message ab 1", "message ab 2", "message ab 3")
		w.ghost("d", time.Second)
		time.Sleep(15 * time.Second)
		want(t, "the laptop, after it reconciled again", messagesOf(laptop.drain()))
	})
}

// TestSend_unknown_leases_of_those_who_need_no_row_are_looked_up_again: a node that cannot ask the
// registry for a moment keeps its lease, so no session reconciles. The author, and a user with a
// device here, may have a device elsewhere.
func TestSend_unknown_leases_of_those_who_need_no_row_are_looked_up_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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
			t.Errorf("the epoch rose %d times: the test shows nothing", after-before)
		}
	})
}

// TestR_EPOCH_ticks_are_sent_again: lost status updates are sent again when the session reconciles.
func TestR_EPOCH_ticks_are_sent_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice", withStatuses)
		a.send("alice", chat)
		alice.drain()
		w.dropping(isStatus)
		a.ack("bob", chat, 1, 1)
		settle()
		want(t, "alice", alice.drain())
		w.publish.clear()
		w.ghost("c", time.Second)
		time.Sleep(15 * time.Second)
		if got := alice.drain(); !slices.Contains(got, "status ab bob 1 1") {
			t.Errorf("alice got %v, want bob's status", got)
		}
	})
}
