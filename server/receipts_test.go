package server_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// setReceipts sets who sees what a user reads, in a chat or, if it is "", in all.
func (c *core) setReceipts(
	user tidemark.UserID, chat tidemark.ChatID, setting tidemark.ReceiptsSetting,
) server.ReceiptsSettings {
	c.t.Helper()
	stored, err := c.SetReceipts(c.ctx, user, chat, setting)
	if err != nil {
		c.t.Fatalf("SetReceipts(%s, %q, %s): %v", user, chat, setting, err)
	}
	return stored
}

// seen returns all that a user can ask about what others have read of a chat.
func (c *core) seen(user tidemark.UserID, chat tidemark.ChatID) string {
	c.t.Helper()
	var answers []any
	note := func(answer any, err error) {
		if err != nil {
			c.t.Fatal(err)
		}
		answers = append(answers, answer)
	}
	as := server.Caller{User: user}
	for _, limit := range []int{1, 100} {
		note(c.DeliveryStatus(c.ctx, as, server.DeliveryStatusRequest{Chat: chat, Limit: limit}))
		note(c.DeliveryStatus(c.ctx, server.Caller{Backend: true},
			server.DeliveryStatusRequest{Chat: chat, Limit: limit}))
	}
	note(c.Statuses(c.ctx, user, []tidemark.ChatID{chat}))
	view, err := c.Chat(c.ctx, as, chat)
	view.Last = nil // Its id is random.
	note(view, err)
	page, err := c.Chats(c.ctx, user, 10, "")
	for i := range page.Chats {
		page.Chats[i].Last = nil
	}
	note(page, err)
	note(c.Unread(c.ctx, user))
	text, err := json.Marshal(answers)
	if err != nil {
		c.t.Fatal(err)
	}
	return times.ReplaceAllString(string(text), "")
}

// times are the times of watermarks. Those of authors depend on how many messages were written
// together.
var times = regexp.MustCompile(`,"(AckedAt|ReadAt)":("[^"]*"|\d+)`)

// TestReceipts_shown_within_real_nothing_leaves runs two worlds. They differ only in whether bob
// reads, which they hide. Others get the same events and answers, at the same times.
func TestReceipts_shown_within_real_nothing_leaves(t *testing.T) {
	for _, members := range []int{2, 3, 60} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			var logs [2][]string
			for world, reads := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					logs[world] = hiddenReads(t, members, reads)
				})
			}
			want(t, "what others get while bob reads", logs[1], logs[0]...)
		})
	}
}

// hiddenReads returns all that others get while bob hides what they read, if they do.
func hiddenReads(t *testing.T, members int, reads bool) (log []string) {
	w := newCluster(t)
	a, b := w.node("a"), w.node("b")
	users := []tidemark.UserID{"alice", "bob"}
	for i := len(users); i < members; i++ {
		users = append(users, tidemark.UserID(fmt.Sprint("u", i)))
	}
	chat := a.chat("c", users...)
	statuses := func(r *openRequest) { r.Statuses = true }
	here, there := a.open("alice", statuses), b.open("alice", statuses)
	bob := b.open("bob", statuses)
	for range 5 {
		a.send("alice", chat)
		settle()
	}
	for _, user := range users {
		a.ack(user, chat, 2, 2)
	}
	settle()
	a.setReceipts("bob", "", tidemark.ReceiptsOff)
	before := w.state("bob", chat).Exposed()
	note := func(what string) {
		settle()
		settle()
		log = append(log, what)
		log = append(log, here.drain()...)
		log = append(log, there.drain()...)
		log = append(log, a.seen("alice", chat), b.seen("alice", chat))
		bob.drain()
	}
	read := func(n tidemark.Sequence, by func(server.Ack)) {
		ack := server.Ack{Chat: chat, Read: n}
		if reads {
			by(ack)
		}
		note(fmt.Sprint("after ", n))
	}
	note("before")
	bob.Ack(server.Ack{Chat: chat, Acked: 4})
	note("after an acknowledgement")
	read(3, func(ack server.Ack) { bob.Ack(ack) })
	read(4, func(ack server.Ack) { a.ack("bob", chat, 0, ack.Read) })
	bob.Ack(server.Ack{Chat: chat, Acked: 5})
	read(5, func(ack server.Ack) { bob.Ack(server.Ack{Chat: chat, Acked: 5, Read: 5}) })
	seen := tidemark.SeenThrough(0)
	if reads {
		seen = tidemark.SeenThrough(5)
	}
	_, err := a.Send(a.ctx, "bob", tidemark.Draft{
		ChatID: chat, ClientMessageID: "reply", Content: "x", Seen: seen,
	})
	if err != nil {
		t.Fatal(err)
	}
	note("after a reply")
	state := w.state("bob", chat)
	after := state.Exposed()
	if reads && state.Read < 5 || after.Read != before.Read || after.ReadAt != before.ReadAt {
		t.Errorf("bob reads: %v; his state is %+v", reads, state)
	}
	return log
}

// A setting holds on every node for what is read after it, and what was hidden is shown by the next
// read only.
func TestReceipts_shown_within_real_on_every_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 9 {
			a.send("alice", chat)
		}
		nodesTrust()
		for i, tt := range []struct {
			on     *core
			chat   tidemark.ChatID
			set    tidemark.ReceiptsSetting
			hidden bool
			shown  tidemark.Sequence
		}{
			{a, "", tidemark.ReceiptsOn, false, 1},
			{a, "", tidemark.ReceiptsOff, true, 1},
			{b, chat, tidemark.ReceiptsOn, false, 3},
			{a, chat, tidemark.ReceiptsDefault, true, 3},
			{b, "", tidemark.ReceiptsOn, false, 5},
			{b, chat, tidemark.ReceiptsOff, true, 5},
			{a, chat, tidemark.ReceiptsOn, false, 7},
		} {
			got := tt.on.setReceipts("bob", tt.chat, tt.set)
			wanted := server.ReceiptsSettings{Chat: tt.chat, Setting: tt.set, Hidden: tt.hidden}
			if got != wanted {
				t.Errorf("step %d: the setting is %+v, want %+v", i, got, wanted)
			}
			other := a
			if tt.on == a {
				other = b
			}
			n := tidemark.Sequence(i + 1)
			if state := other.ack("bob", chat, 0, n); state.Read != n ||
				state.ShownRead() != tt.shown {
				t.Errorf("step %d: bob read %d and shows %d, want %d and %d",
					i, state.Read, state.ShownRead(), n, tt.shown)
			}
		}
		_, err := a.SetReceipts(a.ctx, "eve", chat, tidemark.ReceiptsOff)
		wantCode(t, "a stranger", err, tidemark.NotMember)
		_, err = a.SetReceipts(a.ctx, "bob", "", tidemark.ReceiptsDefault)
		wantCode(t, "the default of all chats", err, tidemark.Invalid)
		_, err = a.Receipts(a.ctx, "eve", chat)
		wantCode(t, "the setting of a stranger", err, tidemark.NotMember)
	})
}

// Who hides what they read sees nothing of what others read, but what was delivered.
func TestReceipts_shown_within_real_is_mutual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob", func(r *openRequest) { r.Statuses = true })
		for range 5 {
			a.send("bob", chat)
		}
		settle()
		bob.drain()
		a.ack("alice", chat, 3, 2)
		settle()
		want(t, "shown", statusesAbout(bob.drain(), "alice"), "status ab alice 3 2")
		a.setReceipts("bob", "", tidemark.ReceiptsOff)
		settle()
		want(t, "after the setting", statusesAbout(bob.drain(), "alice"), "status ab alice 3 0")
		a.ack("alice", chat, 0, 3)
		settle()
		want(t, "a read", statusesAbout(bob.drain(), "alice"))
		a.ack("alice", chat, 4, 4)
		settle()
		want(t, "a read and a delivery", statusesAbout(bob.drain(), "alice"), "status ab alice 4 0")
		peer := func(user tidemark.UserID) (acked, read tidemark.Sequence) {
			view, err := b.Chat(b.ctx, server.Caller{User: user}, chat)
			if err != nil {
				t.Fatal(err)
			}
			page, err := b.Chats(b.ctx, user, 1, "")
			if err != nil {
				t.Fatal(err)
			}
			if listed := page.Chats[0].Peer; *listed != *view.Peer {
				t.Errorf("the peer is %+v in the list, and %+v alone", listed, view.Peer)
			}
			return view.Peer.Acked, view.Peer.Read
		}
		if acked, read := peer("bob"); acked != 4 || read != 0 {
			t.Errorf("bob sees %d and %d of alice, want 4 and 0", acked, read)
		}
		status, err := a.DeliveryStatus(a.ctx, server.Caller{User: "bob"},
			server.DeliveryStatusRequest{Chat: chat, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		if m := status.Members[0]; status.Summary.Read != 0 || m.Read != 0 || m.Acked != 4 {
			t.Errorf("the status for bob is %+v", status)
		}
		a.setReceipts("bob", "", tidemark.ReceiptsOn)
		settle()
		want(t, "shown again", statusesAbout(bob.drain(), "alice"), "status ab alice 4 4")
		if acked, read := peer("bob"); acked != 4 || read != 4 {
			t.Errorf("bob sees %d and %d of alice, want 4 and 4", acked, read)
		}
	})
}

// statusesAbout returns the lines about a member among those of a drain.
func statusesAbout(lines []string, user tidemark.UserID) (about []string) {
	for _, l := range lines {
		var chat, who string
		var acked, read int
		if n, _ := fmt.Sscanf(l, "status %s %s %d %d", &chat, &who, &acked, &read); n == 4 &&
			who == string(user) {
			about = append(about, l)
		}
	}
	return about
}
