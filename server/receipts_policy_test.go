package server_test

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// setPolicy sets who sees what the members of a chat read, as a backend.
func (c *core) setPolicy(chat tidemark.ChatID, policy tidemark.ReceiptsPolicy) {
	c.t.Helper()
	view, err := c.UpdateChat(c.ctx, server.Caller{Backend: true}, chat,
		server.ChatChange{Receipts: &policy})
	if err != nil {
		c.t.Fatalf("UpdateChat(%s, %q): %v", chat, policy, err)
	}
	if view.Policy.Receipts != policy {
		c.t.Errorf("the policy is %q, want %q", view.Policy.Receipts, policy)
	}
}

// The policy of a chat comes before the settings of its members, on every node, and decides about
// what is read after it. What was hidden is shown by the next read that is shown.
func TestReceipts_shown_within_real_policy_on_every_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 9 {
			a.send("alice", chat)
		}
		nodesTrust()
		a.setReceipts("bob", "", tidemark.ReceiptsOff)
		for i, tt := range []struct {
			on     *core
			policy tidemark.ReceiptsPolicy
			hidden bool
			shown  tidemark.Sequence
			carol  tidemark.Sequence
		}{
			{a, tidemark.ReceiptsOptional, true, 0, 1},
			{b, tidemark.ReceiptsRequired, false, 2, 2},
			{a, tidemark.ReceiptsNever, true, 2, 2},
			{b, tidemark.ReceiptsOptional, true, 2, 4},
			{a, tidemark.ReceiptsNever, true, 2, 4},
			{a, tidemark.ReceiptsRequired, false, 6, 6},
		} {
			tt.on.setPolicy(chat, tt.policy)
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
			if state := other.ack("carol", chat, 0, n); state.ShownRead() != tt.carol {
				t.Errorf("step %d: carol shows %d, want %d", i, state.ShownRead(), tt.carol)
			}
			got, err := other.Receipts(other.ctx, "bob", chat)
			if err != nil {
				t.Fatal(err)
			}
			want := server.ReceiptsSettings{
				Chat: chat, Setting: tidemark.ReceiptsDefault, Policy: tt.policy,
				Hidden: tt.hidden,
			}
			if got != want {
				t.Errorf("step %d: the setting is %+v, want %+v", i, got, want)
			}
		}
	})
}

// Only a backend sets the policy, also in a direct chat.
func TestReceipts_shown_within_real_policy_by_backends_only(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		group, pair := c.chat("abc", "alice", "bob", "carol"), c.chat("ab", "alice", "bob")
		required, unknown := tidemark.ReceiptsRequired, tidemark.ReceiptsPolicy("some")
		for _, chat := range []tidemark.ChatID{group, pair} {
			change := server.ChatChange{Receipts: &required}
			_, err := c.UpdateChat(c.ctx, server.Caller{User: "alice"}, chat, change)
			wantCode(t, "the owner of "+string(chat), err, tidemark.Denied)
			_, err = c.UpdateChat(c.ctx, server.Caller{User: "eve"}, chat, change)
			wantCode(t, "a stranger to "+string(chat), err, tidemark.NotMember)
			c.setPolicy(chat, required)
			change.Receipts = &unknown
			_, err = c.UpdateChat(c.ctx, server.Caller{Backend: true}, chat, change)
			wantCode(t, "an unknown policy", err, tidemark.Invalid)
		}
	})
}

// Members of a chat whose policy is off see nothing of what others read, and sessions learn of the
// change at once. The other chats of a member stay as they are.
func TestReceipts_shown_within_real_policy_is_mutual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat, other := a.chat("ab", "alice", "bob"), a.chat("other", "alice", "bob", "carol")
		for range 5 {
			a.send("bob", chat)
			a.send("bob", other)
		}
		bob := b.open("bob", func(r *openRequest) { r.Statuses = true })
		a.ack("alice", chat, 3, 2)
		a.ack("alice", other, 3, 2)
		settle()
		bob.drain()
		seen := func(what string, want map[tidemark.UserID]tidemark.Sequence) {
			t.Helper()
			updates, err := b.Statuses(b.ctx, "bob", []tidemark.ChatID{chat})
			if err != nil {
				t.Fatal(err)
			}
			got := map[tidemark.UserID]tidemark.Sequence{}
			for _, u := range updates[0].Updates {
				got[u.UserID] = u.Read
			}
			delete(got, "bob")
			if !maps.Equal(got, want) {
				t.Errorf("%s: bob sees the reads %v, want %v", what, got, want)
			}
			view, err := b.Chat(b.ctx, server.Caller{User: "bob"}, chat)
			if err != nil {
				t.Fatal(err)
			}
			if view.Peer.Read != want["alice"] {
				t.Errorf("%s: the peer has read %d, want %d", what, view.Peer.Read, want["alice"])
			}
			status, err := a.DeliveryStatus(a.ctx, server.Caller{User: "bob"},
				server.DeliveryStatusRequest{Chat: chat, Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			if m := status.Members[0]; m.Read != want["alice"] {
				t.Errorf("%s: the status is %+v, want alice to have read %d", what, status,
					want["alice"])
			}
		}
		seen("at first", map[tidemark.UserID]tidemark.Sequence{"alice": 2})

		a.setPolicy(chat, tidemark.ReceiptsNever)
		settle()
		want(t, "off", statusesAbout(bob.drain(), "alice"), "status ab alice 3 0")
		seen("off", map[tidemark.UserID]tidemark.Sequence{"alice": 0})
		a.ack("alice", chat, 4, 4)
		a.ack("alice", other, 4, 4)
		settle()
		want(t, "a read and a delivery while off", statusesAbout(bob.drain(), "alice"),
			"status ab alice 4 0", "status other alice 4 4")
		// What bob has set does not matter.
		b.setReceipts("bob", chat, tidemark.ReceiptsOn)
		seen("off and on", map[tidemark.UserID]tidemark.Sequence{"alice": 0})

		b.setReceipts("bob", chat, tidemark.ReceiptsOff)
		settle()
		bob.drain()
		a.setPolicy(chat, tidemark.ReceiptsRequired)
		settle()
		// What alice read meanwhile stays hidden until she reads on.
		want(t, "required", statusesAbout(bob.drain(), "alice"), "status ab alice 4 2")
		seen("required", map[tidemark.UserID]tidemark.Sequence{"alice": 2})
		a.ack("alice", chat, 5, 5)
		settle()
		want(t, "a read while required", statusesAbout(bob.drain(), "alice"), "status ab alice 5 5")

		a.setPolicy(chat, tidemark.ReceiptsOptional)
		settle()
		want(t, "optional again", statusesAbout(bob.drain(), "alice"), "status ab alice 5 0")
	})
}

// A node that does not know of a join yet still tells the new member of a change of the policy.
func TestReceipts_shown_within_real_policy_told_to_newcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		for range 3 {
			a.send("carol", chat)
		}
		nodesTrust()
		a.setPolicy(chat, tidemark.ReceiptsOptional) // It reads who is a member.
		w.dropping(func(to registry.Node, e bus.Event) bool {
			return to.ID == "a" && isMembership(to, e)
		})
		b.add(chat, "dave")
		dave := b.open("dave", func(r *openRequest) { r.Statuses = true })
		b.ack("alice", chat, 3, 2)
		settle()
		want(t, "before", statusesAbout(dave.drain(), "alice"), "status abc alice 3 2")
		a.setPolicy(chat, tidemark.ReceiptsNever)
		settle()
		want(t, "off", statusesAbout(dave.drain(), "alice"), "status abc alice 3 0")
	})
}

// What a node has accepted before the policy, and not written yet, it writes first. Another node
// may still have something, which is written under the policy.
func TestReceipts_shown_within_real_before_the_policy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("abc", "alice", "bob", "carol")
		here, there := a.open("bob"), b.open("carol")
		for range 3 {
			a.send("alice", chat)
		}
		settle()
		here.drain()
		there.drain()
		here.Ack(server.Ack{Chat: chat, Acked: 3, Read: 3})
		there.Ack(server.Ack{Chat: chat, Acked: 3, Read: 3})
		a.setPolicy(chat, tidemark.ReceiptsNever)
		settle()
		if state := w.state("bob", chat); state.Read != 3 || state.ShownRead() != 3 {
			t.Errorf("bob read %d and shows %d, want 3 and 3", state.Read, state.ShownRead())
		}
		if state := w.state("carol", chat); state.Read != 3 {
			t.Errorf("carol read %d, want 3", state.Read)
		}
	})
}

// In a chat above the fan-out, the aggregate has no reads while the policy is off.
func TestReceipts_shown_within_real_policy_of_a_large_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		users := make([]tidemark.UserID, 60)
		for i := range users {
			users[i] = tidemark.UserID(rune('a'+i/26)) + tidemark.UserID(rune('a'+i%26))
		}
		chat := a.chat("c", users...)
		first := b.open(users[0], func(r *openRequest) { r.Statuses = true })
		for range 3 {
			a.send(users[0], chat)
		}
		a.setPolicy(chat, tidemark.ReceiptsNever)
		settle()
		first.drain()
		for _, user := range users {
			a.ack(user, chat, 3, 3)
		}
		settle()
		settle()
		want(t, "off", statusesOf(first.drain()), "status c all 3 0")
	})
}
