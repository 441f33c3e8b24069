package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// A restoration is a server with a restored backup. Bob's device has what the backup lacks: the
// backup ends at 5, bob has stored and acknowledged 10, and then 12 messages are in the chat again.
type restoration struct {
	w      *cluster
	a      *core
	chat   tidemark.ChatID
	before tidemark.Incarnation
}

func restore(t *testing.T) restoration {
	store := memory.New()
	first := newClusterOn(t, store).node("a")
	r := restoration{before: store.Incarnation(), chat: first.chat("ab", "alice", "bob")}
	for range 5 {
		first.send("alice", r.chat)
	}
	first.ack("bob", r.chat, 5, 0)
	settle()
	backup := store.Copy()
	for range 5 {
		first.send("alice", r.chat)
	}
	first.ack("bob", r.chat, 10, 0)
	r.w = newClusterOn(t, backup)
	r.a = r.w.node("b")
	for range 7 {
		r.a.send("alice", r.chat)
	}
	return r
}

// sync sends a cursor of bob's device.
func (r *restoration) sync(
	t *testing.T, acked tidemark.Sequence, of tidemark.Incarnation, session tidemark.SessionID,
) []string {
	t.Helper()
	got, err := r.a.Sync(r.a.ctx, "bob", server.SyncRequest{
		Limit:   10,
		Session: session,
		Cursors: []server.Cursor{{Chat: r.chat, Acked: acked, Incarnation: of}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return linesOf(got)
}

func TestSync_restore_is_noticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := restore(t)
		want(t, "what bob has is not what the chat has",
			r.sync(t, 10, r.before, ""), "ab: reset restored 5")
		want(t, "nor is what is above the head",
			r.sync(t, 40, r.before, ""), "ab: reset restored 5")
		r.w.wantState("a foreign cursor acknowledges nothing", "bob", r.chat, 5, 0)
		settle()
		ten := tidemark.Sequence(10)
		status, err := r.a.DeliveryStatus(r.a.ctx, server.Caller{User: "alice"},
			server.DeliveryStatusRequest{Chat: r.chat, ForSequence: &ten, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if status.Summary.Delivered != 1 {
			t.Errorf("10 counts as delivered to %d members, and only its author has it",
				status.Summary.Delivered)
		}
		want(t, "an unknown incarnation has nothing in common",
			r.sync(t, 3, "unheard-of", ""), "ab: reset restored 0")
		want(t, "what the backup has stays", r.sync(t, 4, r.before, ""), "ab: 5 6 7 8 9 10 11 12")
		want(t, "after the reset", r.sync(t, 5, r.a.Incarnation(), ""), "ab: 6 7 8 9 10 11 12")
		r.w.wantState("what the backup has", "bob", r.chat, 5, 0)
		want(t, "the present incarnation", r.sync(t, 11, r.a.Incarnation(), ""), "ab: 12")
		r.w.wantState("a cursor of the present incarnation acknowledges", "bob", r.chat, 11, 0)
		settle()
	})
}

func TestSync_restore_is_noticed_on_the_stream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := restore(t)
		bob := r.a.open("bob")
		messages := []string{
			"message ab 6", "message ab 7", "message ab 8", "message ab 9", "message ab 10",
			"message ab 11", "message ab 12",
		}
		want(t, "a new session starts at the watermark", messagesOf(bob.drain()), messages...)
		want(t, "answer", r.sync(t, 10, r.before, bob.Session()), "ab: reset restored 5")
		stream := bob.drain()
		want(t, "the reset comes first", stream[:1], "reset restored ab 5")
		want(t, "what follows the reset", messagesOf(stream), messages...)
		want(t, "answer", r.sync(t, 5, r.a.Incarnation(), bob.Session()))
		want(t, "after the second sync", messagesOf(bob.drain()), messages...)
		settle()
	})
}

// TestSync_restore_is_noticed_by_former_members: what bob keeps of a chat that they left is where
// the stream goes on when they return, so it must not be foreign.
func TestSync_restore_is_noticed_by_former_members(t *testing.T) {
	for _, tc := range []struct {
		cursor tidemark.Sequence
		lines  []string
	}{
		{4, []string{"message ab 5", "message ab 6", "gap ab 7-7", "message ab 8"}},
		{6, []string{"gap ab 7-7", "message ab 8"}}, // foreign: it counts for nothing
	} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			first := newClusterOn(t, store).node("a")
			r := restoration{before: store.Incarnation()}
			r.chat = first.chat("ab", "alice", "bob", "carol")
			for range 5 {
				first.send("alice", r.chat)
			}
			r.w = newClusterOn(t, store.Copy())
			r.a = r.w.node("b")
			r.a.send("alice", r.chat)
			r.a.ack("bob", r.chat, 6, 0)
			r.a.remove(r.chat, "bob")
			r.a.send("alice", r.chat)
			bob := r.a.open("bob")
			bob.drain()
			want(t, "answer", r.sync(t, tc.cursor, r.before, bob.Session()), "ab: NOT_A_MEMBER")
			bob.drain()
			r.a.add(r.chat, "bob")
			returned := bob.drain()
			r.a.send("alice", r.chat)
			want(t, "stream after the return", messagesOf(append(returned, bob.drain()...)),
				tc.lines...)
			settle()
		})
	}
}

func TestAcknowledge_restore_is_noticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := restore(t)
		acks := []server.Ack{
			{Chat: r.chat, Acked: 10, Incarnation: r.before},
			{Chat: r.chat, Acked: 6, Incarnation: r.a.Incarnation()},
		}
		results, err := r.a.Acknowledge(r.a.ctx, "bob", acks)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, "of another incarnation", results[0].Err, tidemark.InvalidSequence)
		if results[1].Err != nil || results[1].State.Acked != 6 {
			t.Errorf("of the present one: got %+v", results[1])
		}
		bob := r.a.open("bob")
		bob.drain()
		bob.Ack(acks[0])
		settle()
		r.w.wantState("on the stream", "bob", r.chat, 6, 0)
	})
}
