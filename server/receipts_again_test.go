package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// A message of their own is the first that bob reads after he shows it again. It shows all that he
// has read, so it is told, although it crosses only his own message.
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
