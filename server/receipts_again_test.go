package server_test

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// A message of bob is the first that they read after they show it again. It shows all that they
// have read, so it is told, although it crosses only their own message.
func TestReceipts_shown_within_real_again_by_an_own_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		alice := b.open("alice", func(r *openRequest) { r.Statuses = true })
		for range 5 {
			a.send("alice", chat)
		}
		a.ack("bob", chat, 5, 2)
		a.setReceipts("bob", "", tidemark.ReceiptsOff)
		a.ack("bob", chat, 5, 5)
		a.setReceipts("bob", "", tidemark.ReceiptsOn)
		settle()
		alice.drain()
		_, err := a.Send(a.ctx, "bob", tidemark.Draft{
			ChatID: chat, ClientMessageID: "reply", Content: "x", Seen: tidemark.SeenThrough(5),
		})
		if err != nil {
			t.Fatal(err)
		}
		settle()
		want(t, "to alice", statusesOf(alice.drain(), "bob"), "status ab bob 6 6")
		view, err := b.Chat(b.ctx, server.Caller{User: "alice"}, chat)
		if err != nil {
			t.Fatal(err)
		}
		if view.Peer.Read != 6 {
			t.Errorf("alice sees that bob has read %d, want 6", view.Peer.Read)
		}
	})
}

// What bob read before the setting is written under the setting before it, also if the node has not
// written it yet.
func TestReceipts_shown_within_real_before_the_setting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		bob.drain()
		bob.Ack(server.Ack{Chat: chat, Acked: 3, Read: 3})
		a.setReceipts("bob", "", tidemark.ReceiptsOff)
		settle()
		if state := w.state("bob", chat); state.Read != 3 || state.ShownRead() != 3 {
			t.Errorf("bob read %d and shows %d, want 3 and 3", state.Read, state.ShownRead())
		}
	})
}

// Who hides what they read gets the statuses that they ask for without the reads of others, and
// with their own.
func TestReceipts_shown_within_real_to_who_asks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		for range 3 {
			a.send("alice", chat)
		}
		a.ack("alice", chat, 3, 3)
		a.setReceipts("bob", "", tidemark.ReceiptsOff)
		a.ack("bob", chat, 3, 2)
		updates, err := a.Statuses(a.ctx, "bob", []tidemark.ChatID{chat})
		if err != nil {
			t.Fatal(err)
		}
		got := map[tidemark.UserID]tidemark.Sequence{}
		for _, u := range updates[0].Updates {
			got[u.UserID] = u.Read
		}
		wanted := map[tidemark.UserID]tidemark.Sequence{"alice": 0, "bob": 2}
		if !maps.Equal(got, wanted) {
			t.Errorf("bob gets the reads %v, want %v", got, wanted)
		}
	})
}
