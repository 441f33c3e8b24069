package server_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// TestControl_is_delivered_and_shown_nowhere: a control message reaches each session of every node,
// and its sender sees that. It counts as unread nowhere, reads nothing, and is no last message.
func TestControl_is_delivered_and_shown_nowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("bob", chat)
		a.ack("alice", chat, 1, 0)
		near, far := a.open("bob", onDevice("phone")), b.open("carol", onDevice("phone"))
		near.said()
		far.said()
		d := tidemark.Draft{
			ChatID: chat, ClientMessageID: "call", Kind: tidemark.KindControl, Content: "offer",
		}
		sent, err := a.Send(a.ctx, "alice", d)
		if err != nil || sent.Message.Sequence != 2 {
			t.Fatalf("got %+v, %v, want message 2", sent, err)
		}
		want(t, "bob", near.said(), "2: offer")
		want(t, "carol", far.said(), "2: offer")
		a.ack("bob", chat, 2, 0)
		b.ack("carol", chat, 2, 0)
		settle()
		status, err := a.DeliveryStatus(a.ctx, server.Caller{User: "alice"},
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil || status.Summary.Delivered < 2 {
			t.Errorf("got %+v, %v, want it delivered to both", status, err)
		}
		if st := w.state("alice", chat); st.Read != 0 {
			t.Errorf("after a control message alice has read %d, want 0", st.Read)
		}
		for _, user := range []tidemark.UserID{"alice", "carol"} {
			view, err := b.Chat(b.ctx, server.Caller{User: user}, chat)
			if err != nil || view.Unread.Messages != 1 || view.Head != 2 {
				t.Errorf("%s: got %+v, %v, want one unread message", user, view, err)
			}
			if view.Last == nil || view.Last.Sequence != 1 {
				t.Errorf("%s: the last message is %+v, want 1", user, view.Last)
			}
		}
		again, err := a.Send(a.ctx, "alice", d)
		if err != nil || !again.Duplicate || again.Message.Sequence != 2 {
			t.Errorf("got %+v, %v, want message 2 again", again, err)
		}
	})
}

// TestControl_many_hide_no_last_message: behind hundreds of control messages, the last message of a
// chat is found in few reads.
func TestControl_many_hide_no_last_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		for range 500 {
			a.sent++
			d := tidemark.Draft{
				ChatID: chat, ClientMessageID: fmt.Sprint("call-", a.sent),
				Kind:    tidemark.KindControl,
				Content: "a candidate of a connection, which is longer than a word",
			}
			if _, err := a.Send(a.ctx, "alice", d); err != nil {
				t.Fatal(err)
			}
		}
		reads := 0
		w.before.set(func(method string) error {
			if method == "Ranges" {
				reads++
			}
			return nil
		})
		last := a.lastOf("bob", chat)
		w.before.clear()
		if last.Sequence != 1 || reads > 15 {
			t.Errorf("got message %d after %d reads, want 1 after at most 15", last.Sequence, reads)
		}
	})
}

// TestControl_is_read_once_by_each_node: other nodes get control messages without their content.
// The first session that needs one reads it for all.
func TestControl_is_read_once_by_each_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		var far []*client
		for n := range 10 {
			c := b.open("bob", onDevice(tidemark.DeviceID(fmt.Sprint("device-", n))))
			c.said()
			far = append(far, c)
		}
		a.send("alice", chat) // so that the sessions know the chat
		for _, c := range far {
			c.said()
		}
		reads := 0
		w.before.set(func(method string) error {
			if method == "Ranges" {
				reads++
			}
			return nil
		})
		for n := range 3 {
			d := tidemark.Draft{
				ChatID: chat, ClientMessageID: fmt.Sprint("call-", n), Kind: tidemark.KindControl,
				Content: "offer",
			}
			if _, err := a.Send(a.ctx, "alice", d); err != nil {
				t.Fatal(err)
			}
			for _, c := range far {
				want(t, "bob", c.said(), fmt.Sprint(n+2, ": offer"))
			}
		}
		w.before.clear()
		if reads > 3 {
			t.Errorf("ten sessions read storage %d times for three messages, want 3", reads)
		}
	})
}
