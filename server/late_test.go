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
	"github.com/tidemark-im/tidemark/storage"
)

// Rules that no other test covers.

// TestStatus_all_read_is_not_said_before_all_delivered: a member who has not received a message has
// not read it either, even if they wrote it (group_delivered_requires_all_members).
func TestStatus_all_read_is_not_said_before_all_delivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("abc", "alice", "bob", "carol")
		for range 3 {
			c.send("alice", chat)
		}
		// Bob has acknowledged none of the messages before the last one.
		last := c.send("bob", chat)
		c.ack("alice", chat, last, last)
		c.ack("carol", chat, last, last)
		settle()
		settle()
		summary := func() storage.Summary {
			t.Helper()
			status, err := c.DeliveryStatus(c.ctx, server.Caller{User: "alice"},
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return status.Summary
		}
		if got := summary(); got.Delivered != 2 || got.Read != 2 {
			t.Errorf("got delivered to %d and read by %d of %d, want 2 and 2",
				got.Delivered, got.Read, got.Members)
		}
		c.ack("bob", chat, last, 0)
		settle()
		if got := summary(); got.Delivered != 3 || got.Read != 3 {
			t.Errorf("after bob's acknowledgement: got delivered to %d, read by %d, want 3 and 3",
				got.Delivered, got.Read)
		}
	})
}

// TestStatus_author_is_one_reader_while_their_read_is_written: it is written just before or just
// after storage counts the readers.
func TestStatus_author_is_one_reader_while_their_read_is_written(t *testing.T) {
	for _, counted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			c := w.node("a")
			chat := c.chat("abc", "alice", "bob", "carol")
			c.send("alice", chat)
			c.ack("alice", chat, 1, 0)
			c.ack("bob", chat, 1, 1)
			c.ack("carol", chat, 1, 0)
			settle()
			settle()
			writes := func(method string) error {
				if method != "Summary" {
					return nil
				}
				_, err := w.raw.Advance(c.ctx, []storage.Advance{
					{User: "alice", Chat: chat, Raise: tidemark.Raise{Acked: 1, Read: 1}},
				})
				return err
			}
			if counted {
				w.before.set(writes)
			} else {
				w.after.set(writes)
			}
			status, err := c.DeliveryStatus(c.ctx, server.Caller{User: "alice"},
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if got := status.Summary; got.Delivered != 3 || got.Read != 2 {
				t.Errorf("counted %v: got delivered to %d and read by %d of %d, want 3 and 2",
					counted, got.Delivered, got.Read, got.Members)
			}
		})
	}
}

// TestStatus_snapshots_have_exposed_boundaries: bob's read watermark is above their
// acknowledged one.
func TestStatus_snapshots_have_exposed_boundaries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("ab", "alice", "bob")
		for range 2 {
			c.send("alice", chat)
		}
		c.ack("bob", chat, 1, 2)
		settle()
		want(t, "alice", statusesOf(c.open("alice", withStatuses).drain()),
			"status ab alice 2 2", "status ab bob 2 2")
		got, err := c.Sync(c.ctx, "alice", server.SyncRequest{
			Cursors: []server.Cursor{{Chat: chat, Acked: 2}}, Limit: 1, Statuses: true,
		})
		states, failed := c.store.States(c.ctx, []storage.StateKey{{User: "bob", Chat: chat}})
		if failed != nil {
			t.Fatal(failed)
		}
		exposed := tidemark.StatusUpdate{
			ChatID: chat, UserID: "bob",
			Boundary: states[0].Exposed(),
		}
		if b := exposed.Boundary; b.Acked != 2 || b.Read != 2 || b.AckedAt == 0 || b.ReadAt == 0 {
			t.Errorf("bob's boundary is %+v, want 2 and 2, with their times", b)
		}
		if err != nil || !slices.Contains(got.Statuses, exposed) {
			t.Errorf("Sync returns the statuses %+v, %v, want %+v", got.Statuses, err, exposed)
		}
	})
}

func TestSend_seen_beyond_the_head_is_refused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		chat := c.chat("abc", "alice", "bob", "carol")
		c.send("alice", chat)
		send := func(user tidemark.UserID, seen tidemark.Sequence) error {
			_, err := c.Send(c.ctx, user, tidemark.Draft{Seen: tidemark.SeenThrough(seen),
				ChatID: chat, ClientMessageID: fmt.Sprint(user, seen), Content: "reply",
			})
			return err
		}
		wantCode(t, "beyond the head", send("bob", 2), tidemark.InvalidSequence)
		wantCode(t, "beyond the head, by a user who may not know it",
			send("eve", 2), tidemark.NotMember)
		if err := send("bob", 1); err != nil {
			t.Errorf("at the head: %v", err)
		}
	})
}

// A node that has got a message knows that it exists. It reads the head only to refuse a reply, or
// if it never had the message.
func TestSend_seen_that_passed_by_is_bounded_without_a_read(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		b.open("bob").drain()
		var heads atomic.Int64
		w.before.set(func(method string) error {
			if method == "Heads" {
				heads.Add(1)
			}
			return nil
		})
		send := func(n *core, user tidemark.UserID, seen tidemark.Sequence) error {
			_, err := n.Send(n.ctx, user, tidemark.Draft{Seen: tidemark.SeenThrough(seen),
				ChatID: chat, ClientMessageID: fmt.Sprint(user, seen), Content: "reply",
			})
			return err
		}
		a.send("alice", chat)
		settle()
		for _, tt := range []struct {
			name  string
			on    *core
			seen  tidemark.Sequence
			code  tidemark.Code
			reads int64
		}{
			{"a message that the node has stored", a, 1, "", 0},
			{"a message of another node", b, 2, "", 0},
			{"beyond the head", b, 4, tidemark.InvalidSequence, 1},
			{"on a node without a session of the chat", w.node("c"), 3, "", 1},
		} {
			heads.Store(0)
			err := send(tt.on, "bob", tt.seen)
			settle()
			got := heads.Load()
			if (err != nil || tt.code != "") && tidemark.CodeOf(err) != tt.code || got != tt.reads {
				t.Errorf("%s: %v after %d reads of heads, want %q and %d", tt.name, err, got,
					tt.code, tt.reads)
			}
		}
	})
}

// TestSession_acknowledgement_trims_the_resume_memory: a resume does not send again what the client
// has acknowledged on the stream (delivery.md §3, "trimmed by acknowledgements").
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
			want(t, "after what was acknowledged", messagesOf(at.drain()),
				"message ab 4", "message ab 5")
			return
		}
		early := c.open("bob", resuming(bob.Session(), begin+from))
		early.last = bob.last
		want(t, "from before what was acknowledged", early.drain()[:2],
			"open resumed=false", "reset unknown_position")
	}
	for from := range uint64(4) {
		synctest.Test(t, func(t *testing.T) { test(t, from) })
	}
}

// TestAck_of_a_member_whom_this_node_does_not_know_yet: a node with an old roster reads it again
// before it refuses.
func TestAck_of_a_member_whom_this_node_does_not_know_yet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		b.ack("bob", chat, 1, 0) // b caches the roster
		w.dropping(isMembership)
		a.add(chat, "dave")
		b.ack("dave", chat, 1, 0)
		w.wantState("dave", "dave", chat, 1, 0)
	})
}

// TestAuthor_covered_run_that_was_never_written_is_marked_at_Stop: an author whose own raise waits
// needs no row. If the node stops before it can write the raise, it marks the row.
func TestAuthor_covered_run_that_was_never_written_is_marked_at_Stop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("alice")
		w.before.set(every("Advance", errDown))
		a.send("alice", chat)
		synctest.Wait()
		w.wantRows("while the raise waits", "alice")
		if err := a.Stop(w.ctx); err != nil {
			t.Error(err)
		}
		w.wantRows("when the raise is given up", "alice", row("alice", chat, 1))
	})
}

// TestRetry_beyond_the_bound_raise_the_epoch: if the retry queue overflows, the epoch rises, which
// makes all proofs void.
func TestRetry_beyond_the_bound_raise_the_epoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		before, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.before.set(every("Append", errDown))
		content := strings.Repeat("x", tidemark.MaxContent)
		var senders sync.WaitGroup
		for n := range 1_100 {
			senders.Go(func() {
				_, err := a.Send(context.Background(), "alice", tidemark.Draft{
					ChatID: chat, ClientMessageID: fmt.Sprint(n), Content: content,
				})
				if tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("send %d: got %v, want %s", n, err, tidemark.Unavailable)
				}
			})
		}
		senders.Wait()
		settle()
		settle()
		after, err := w.reg.Epoch(w.ctx)
		if err != nil || after.Crashes == before.Crashes {
			t.Errorf("the epoch is %+v, %v, want more crashes than before: %+v",
				after, err, before)
		}
		w.before.clear()
		settle()
		settle()
	})
}

// TestStatus_tick_monotone_when_an_update_comes_after_a_newer_snapshot: a snapshot overtakes an
// update on its way. The update does not move the client's boundary back.
func TestStatus_tick_monotone_when_an_update_comes_after_a_newer_snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		a.send("alice", chat)
		settle()
		first := a.open("alice")
		first.drain()
		w.dropping(isStatus) // the updates arrive later, by say
		a.ack("bob", chat, 1, 0)
		settle()
		a.ack("bob", chat, 2, 0)
		first.Detach()
		again := a.open("alice", withStatuses)
		if got := again.drain(); !slices.Contains(got, "status ab bob 2 0") {
			t.Fatalf("got the snapshot %v", got)
		}
		w.publish.clear()
		w.say("alice", tidemark.StatusUpdate{
			ChatID:   chat,
			UserID:   "bob",
			Boundary: tidemark.Boundary{Acked: 1},
		})
		want(t, "the late update", again.drain(), "status ab bob 2 0")
	})
}

// TestStatus_tick_monotone_when_nodes_say_it_in_the_other_order: two nodes' updates about one
// member arrive in the other order, or a snapshot overtakes an update.
func TestStatus_tick_monotone_when_nodes_say_it_in_the_other_order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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
		want(t, "the later update", alice.drain(), "status ab bob 2 0")
		say(1)
		want(t, "the earlier update", alice.drain(), "status ab bob 2 0")

		w.dropping(isStatus)
		a.ack("bob", chat, 3, 0)
		alice.Detach()
		again := b.open("alice", withStatuses)
		if got := again.drain(); !slices.Contains(got, "status ab bob 3 0") {
			t.Fatalf("got the snapshot %v", got)
		}
		w.publish.clear()
		say(2)
		want(t, "the overtaken update", again.drain(), "status ab bob 3 0")
	})
}

// TestStatus_tick_monotone_when_an_update_waits_for_a_newer_snapshot: an update arrives while a
// newer snapshot is read. The client gets the snapshot's boundary, and no later update moves it
// back.
func TestStatus_tick_monotone_when_an_update_waits_for_a_newer_snapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		w.dropping(isStatus)
		a.ack("bob", chat, 3, 0)
		settle()
		w.publish.clear()
		// b caches the roster.
		if _, err := b.Chat(w.ctx, server.Caller{User: "alice"}, chat); err != nil {
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
		got := alice.drain()
		if !slices.Contains(got, "status ab bob 3 0") || slices.Contains(got, "status ab bob 1 0") {
			t.Fatalf("alice got %v, want bob at 3", got)
		}
		say(2)
		want(t, "the later update", alice.drain(), "status ab bob 3 0")
	})
}

// TestStatus_read_implies_delivered_on_another_node: the recipient's node does not know the
// watermarks. Before the first update it reads them.
func TestStatus_read_implies_delivered_on_another_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice")
		for n := range tidemark.Sequence(2) {
			a.send("alice", chat)
			settle()
			alice.drain()
			a.ack("bob", chat, 0, n+1)
			settle()
			want(t, "alice", alice.drain(), fmt.Sprintf("status ab bob %d %d", n+1, n+1))
		}
	})
}

// TestAck_multi_device_highest_wins_of_many_that_wait: one device is far ahead. The other is
// behind, and has more acknowledgements waiting than the node keeps apart.
func TestAck_multi_device_highest_wins_of_many_that_wait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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
		w.wantState("the highest", "bob", chat, 9, 0)
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

// TestSession_of_a_newer_connection_does_not_end_with_the_older: when a replaced connection ends,
// the session stays.
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
		want(t, "after the older connection has ended", messagesOf(newer.drain()), "message ab 1")
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
		want(t, "from before the newer connection's events",
			again.drain()[:1], "open resumed=true")
	})
}

// TestStatus_that_could_not_be_sent_is_sent_later: a status update whose recipients could not be
// looked up is published later.
func TestStatus_that_could_not_be_sent_is_sent_later(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
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
