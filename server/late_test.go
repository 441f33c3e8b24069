package server_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Rules whose breaking nothing else notices.

// group_delivered_requires_all_members: who has not received a message has not read it, its author included.
func TestStatus_all_read_is_not_said_before_all_delivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("abc", "alice", "bob", "carol")
		for range 3 {
			c.send("alice", chat)
		}
		last := c.send("bob", chat) // who acknowledged nothing
		c.ack("alice", chat, last, last)
		c.ack("carol", chat, last, last)
		settle()
		settle()
		status, err := c.DeliveryStatus(c.ctx, "alice",
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if got := status.Summary; got.Delivered != 2 || got.Read != 2 {
			t.Errorf("delivered to %d, read by %d of %d, want 2 and 2",
				got.Delivered, got.Read, got.Members)
		}
		c.ack("bob", chat, last, 0)
		settle()
		if status, err = c.DeliveryStatus(c.ctx, "alice", server.DeliveryStatusRequest{Chat: chat, Limit: 10}); err != nil {
			t.Fatal(err)
		}
		if got := status.Summary; got.Delivered != 3 || got.Read != 3 {
			t.Errorf("when bob has it: delivered to %d, read by %d, want 3 and 3, for he wrote it",
				got.Delivered, got.Read)
		}
	})
}

func TestSend_seen_beyond_the_head_is_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("abc", "alice", "bob", "carol")
		c.send("alice", chat)
		send := func(user tidemark.UserID, seen tidemark.Sequence) error {
			_, err := c.Send(c.ctx, user, tidemark.Draft{Seen: seen,
				ChatID: chat, ClientMessageID: fmt.Sprint(user, seen), Content: "reply",
			})
			return err
		}
		wantCode(t, "beyond the head", send("bob", 2), tidemark.InvalidSequence)
		wantCode(t, "of one who may not know where the chat ends",
			send("eve", 2), tidemark.NotMember)
		if err := send("bob", 1); err != nil {
			t.Errorf("the head: %v", err)
		}
	})
}

// "Trimmed by acknowledgements" (delivery.md §3): what a client has stored from the stream is not remembered for sending again.
func TestSession_acknowledgement_trims_the_resume_memory(t *testing.T) {
	test := func(t *testing.T, from uint64) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		bob := c.open("bob")
		bob.drain()
		begin := bob.last
		for range 5 {
			c.send("alice", chat)
		}
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 3})
		if from == 3 {
			at := c.open("bob", resuming(bob.Session(), begin+3))
			at.last = bob.last
			want(t, "from what he acknowledged", messagesOf(at.drain()), "message ab 4",
				"message ab 5")
			return
		}
		early := c.open("bob", resuming(bob.Session(), begin+from))
		early.last = bob.last
		want(t, "from before what he acknowledged", early.drain()[:2], "open resumed=false",
			"reset unknown_position")
	}
	for from := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { test(t, from) })
	}
}

// A node with an old roster reads it again before it says no.
func TestAck_of_a_member_whom_this_node_does_not_know_yet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		b.ack("bob", chat, 1, 0) // b remembers who is a member
		a.add(chat, "dave")
		b.ack("dave", chat, 1, 0)
		w.wantState("dave", "dave", chat, 1, 0)
	})
}

// An author who was to be covered by his own raise gets his row when the node stops before the raise could be written.
func TestAuthor_covered_run_that_was_never_written_is_marked_at_Stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("alice")
		w.before.set(func(method string) error {
			if method == "Advance" {
				return errDown
			}
			return nil
		})
		a.send("alice", chat)
		synctest.Wait()
		w.wantRows("she is covered", "alice")
		if err := a.Stop(w.ctx); err != nil {
			t.Error(err)
		}
		w.wantRows("she is not", "alice", row("alice", chat, 1))
	})
}

// What the node cannot remember any more it does not pretend to know: all proofs are void.
func TestDebts_beyond_the_bound_raise_the_epoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInMemory(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		before, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.before.set(func(method string) error {
			if method == "Append" {
				return errDown
			}
			return nil
		})
		content := strings.Repeat("x", tidemark.MaxContent)
		var senders sync.WaitGroup
		for n := range 1_100 {
			senders.Go(func() {
				_, err := a.Send(context.Background(), "alice", tidemark.Draft{
					ChatID: chat, ClientMessageID: fmt.Sprint(n), Content: content,
				})
				if tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("send %d: %v, want %s", n, err, tidemark.Unavailable)
				}
			})
		}
		senders.Wait()
		settle()
		settle()
		after, err := w.reg.Epoch(w.ctx)
		if err != nil || after.Crashes == before.Crashes {
			t.Errorf("the epoch is %+v, %v, as before: %+v", after, err, before)
		}
		w.before.clear()
		settle()
		settle()
	})
}

// tick_monotone: an update that was on its way while a newer snapshot was sent is not sent as a step back.
func TestStatus_tick_monotone_when_an_update_comes_after_a_newer_snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		settle()
		first := a.open("alice")
		first.drain()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Status != nil {
				return nil // it is on its way
			}
			return send()
		})
		a.ack("bob", chat, 1, 0)
		settle()
		a.ack("bob", chat, 2, 0)
		first.Detach()
		again := a.open("alice", withStatuses)
		if got := again.drain(); !slices.Contains(got, "status ab bob 2 0") {
			t.Fatalf("the snapshot is %v", got)
		}
		w.publish.clear()
		w.say("alice", tidemark.StatusUpdate{
			ChatID:   chat,
			UserID:   "bob",
			Boundary: tidemark.Boundary{Acked: 1},
		})
		want(t, "what the late update becomes", again.drain(), "status ab bob 2 0")
	})
}

// tick_monotone: two nodes say something of one member, in the other order; or one has said what the other's snapshot overtakes.
func TestStatus_tick_monotone_when_nodes_say_it_in_the_other_order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		alice := b.open("alice")
		alice.drain()
		say := func(acked tidemark.Sequence) {
			t.Helper()
			w.say("alice", tidemark.StatusUpdate{
				ChatID:   chat,
				UserID:   "bob",
				Boundary: tidemark.Boundary{Acked: acked},
			})
		}
		say(2)
		want(t, "the later one", alice.drain(), "status ab bob 2 0")
		say(1)
		want(t, "what the earlier one becomes", alice.drain(), "status ab bob 2 0")

		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Status != nil {
				return nil // it is on its way
			}
			return send()
		})
		a.ack("bob", chat, 3, 0)
		alice.Detach()
		again := b.open("alice", withStatuses)
		if got := again.drain(); !slices.Contains(got, "status ab bob 3 0") {
			t.Fatalf("the snapshot is %v", got)
		}
		w.publish.clear()
		say(2)
		want(t, "what is overtaken by a snapshot becomes", again.drain(), "status ab bob 3 0")
	})
}

// tick_monotone: an update waits while a newer snapshot is read, and becomes it. What comes later is not below that, though no node has said it to this one.
func TestStatus_tick_monotone_when_an_update_waits_for_a_newer_snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Status != nil {
				return nil // it is lost
			}
			return send()
		})
		a.ack("bob", chat, 3, 0)
		settle()
		w.publish.clear()
		if _, err := b.Chat(w.ctx, server.Caller{User: "alice"}, chat); err != nil { // b knows who its members are
			t.Fatal(err)
		}
		alice := b.open("alice", withStatuses)
		say := func(acked tidemark.Sequence) {
			t.Helper()
			w.say("alice", tidemark.StatusUpdate{
				ChatID:   chat,
				UserID:   "bob",
				Boundary: tidemark.Boundary{Acked: acked},
			})
		}
		say(1)
		if got := alice.drain(); !slices.Contains(got, "status ab bob 3 0") || slices.Contains(got, "status ab bob 1 0") {
			t.Fatalf("alice was told %v, want that bob has three", got)
		}
		say(2)
		want(t, "what comes later becomes", alice.drain(), "status ab bob 3 0")
	})
}

// The node of the one who is told does not know the watermarks itself.
func TestStatus_read_implies_delivered_on_another_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice")
		alice.drain()
		a.send("alice", chat)
		settle()
		alice.drain()
		a.ack("bob", chat, 0, 1)
		settle()
		want(t, "alice", alice.drain(), "status ab bob 1 1")
	})
}

// One device is far ahead; the other ones are behind, and acknowledge more often than the node keeps apart.
func TestAck_multi_device_highest_wins_of_many_that_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 9 {
			a.send("alice", chat)
		}
		ahead, behind := a.open("bob", onDevice("phone")), a.open("bob", onDevice("tablet"))
		settle()
		ahead.Ack(server.Ack{Chat: chat, Acked: 9})
		for n := range tidemark.Sequence(8) {
			behind.Ack(server.Ack{Chat: chat, Acked: n + 1})
		}
		settle()
		w.wantState("the one ahead", "bob", chat, 9, 0)
	})
}

func TestSession_in_order_from_the_first_of_several_messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		bob := c.open("bob")
		bob.drain()
		begin := bob.last
		for range 3 {
			c.send("alice", chat)
		}
		bob.drain()
		again := c.open("bob", resuming(bob.Session(), begin+1))
		again.last = bob.last
		want(t, "after message 1", messagesOf(again.drain()), "message ab 2", "message ab 3")
	})
}

// A connection that was replaced has nothing to say about the session any more: neither that it has gone, nor what has arrived.
func TestSession_of_a_newer_connection_does_not_end_with_the_older(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		older := c.open("bob")
		older.drain()
		newer := c.open("bob", resuming(older.Session(), older.last))
		newer.drain()
		older.Detach()
		time.Sleep(5 * time.Minute)
		c.send("alice", chat)
		want(t, "after the older connection has gone", messagesOf(newer.drain()), "message ab 1")
	})
}

func TestSession_acknowledgement_of_a_replaced_connection_trims_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		first, second := c.chat("ab", "alice", "bob"), c.chat("abc", "alice", "bob", "carol")
		older := c.open("bob")
		older.drain()
		begin := older.last
		c.send("alice", first)
		c.send("alice", second)
		older.drain()
		newer := c.open("bob", resuming(older.Session(), begin))
		at := older.last
		newer.drain()
		older.Ack(server.Ack{Chat: second, Acked: 1})
		again := c.open("bob", resuming(older.Session(), at))
		want(t, "from before what the newer connection was sent",
			again.drain()[:1], "open resumed=true")
	})
}

// A look-up fails for a moment: what is to be told of others is told afterwards.
func TestStatus_that_could_not_be_told_is_told_later(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		time.Sleep(30 * time.Second)
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice")
		b.send("alice", chat)
		settle()
		alice.drain()
		down.Store(true)
		a.ack("bob", chat, 1, 1)
		time.Sleep(100 * time.Millisecond)
		down.Store(false)
		time.Sleep(30 * time.Second)
		want(t, "alice", alice.drain(), "status ab bob 1 1")
	})
}
