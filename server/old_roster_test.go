package server_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// TestMembership_nothing_outside_it_on_a_node_with_an_old_roster: the session's node does not learn
// that the user was removed. The user still gets nothing sent after that.
func TestMembership_nothing_outside_it_on_a_node_with_an_old_roster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		bob, carol := b.open("bob"), b.open("carol")
		bob.drain()
		carol.drain()
		a.send("alice", chat)
		want(t, "bob, as a member", messagesOf(bob.drain()), "message abc 1")
		carol.drain()
		w.dropping(isMembership)
		late := &delayed{}
		leases := w.leases("bob")
		a.remove(chat, "bob")
		a.send("alice", chat)
		want(t, "carol", messagesOf(carol.drain()), "message abc 2")
		// A sender that looked up before the removal notifies bob as well.
		late.keep(func() error {
			return bus.PublishOne(w.ctx, w.bus,
				registry.Node{ID: leases[0].Node, Boot: leases[0].Boot}, bus.Event{
					To: leases, Notification: &bus.Notification{Chat: chat, Sequence: 2},
				})
		})
		late.release(t)
		want(t, "bob", messagesOf(bob.drain()))
	})
}

// oldRoster returns a node, and another one that knows the roster of a chat of alice, bob and
// carol. It misses the changes from now on.
func (w *cluster) oldRoster() (current, old *core, chat tidemark.ChatID) {
	current, old = w.node("a"), w.node("b")
	nodesTrust()
	chat = current.chat("abc", "alice", "bob", "carol")
	old.send("bob", chat)
	w.dropping(isMembership)
	return current, old, chat
}

// TestMembership_one_who_was_added_elsewhere_is_sent_to: a node missed that a member was added. The
// membership version that Append returns makes it read the roster again.
func TestMembership_one_who_was_added_elsewhere_is_sent_to(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		chat := tidemark.ChatID("since")
		_, _, err := a.CreateChat(a.ctx, server.Caller{User: "alice"}, server.CreateChatRequest{
			ChatID:    chat,
			Type:      tidemark.Group,
			History:   tidemark.HistorySinceJoin,
			MemberIDs: []tidemark.UserID{"bob"},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.send("bob", chat)
		w.dropping(isMembership)
		a.add(chat, "dave")
		w.wantRows("dave may see no message yet", "dave")
		b.send("bob", chat)
		w.wantRows("sent by a node that did not know dave", "dave", row("dave", chat, 2))
	})
}

func TestMembership_of_one_who_was_added_elsewhere_is_read_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b, chat := w.oldRoster()
		a.add(chat, "dave")
		_, err := b.DeliveryState(b.ctx, "dave", chat)
		wantCode(t, "a member unknown to this node", err, "")
	})
}

// TestMembership_a_node_that_is_not_reached_asks_storage: with the heartbeat that finds it, a node
// ceases to trust what an earlier heartbeat allowed.
func TestMembership_a_node_that_is_not_reached_asks_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var deaf atomic.Bool
		a := w.node("a")
		b := w.node("b", func(cfg *server.Config) { cfg.Bus = deafBus{cfg.Bus, &deaf} })
		nodesTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		if _, err := b.Chat(b.ctx, server.Caller{User: "carol"}, chat); err != nil {
			t.Fatal(err)
		}
		deaf.Store(true)
		w.dropping(isMembership)
		a.remove(chat, "carol")
		time.Sleep(4 * time.Second)
		_, err := b.Chat(b.ctx, server.Caller{User: "carol"}, chat)
		wantCode(t, "carol on b", err, tidemark.NotMember)
	})
}

// TestStatus_snapshot_on_a_node_with_an_old_roster: it has the boundaries of a member whom the node
// does not know yet.
func TestStatus_snapshot_on_a_node_with_an_old_roster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b, chat := w.oldRoster()
		a.add(chat, "dave")
		a.ack("dave", chat, 1, 1)
		settle()
		want(t, "alice", statusesOf(b.open("alice", withStatuses).drain()),
			"status abc bob 1 1", "status abc dave 1 1")
	})
}

// TestStatus_group_that_becomes_small_on_nodes_with_old_rosters: the node that removes a member
// does not know that the chat had become large, and still publishes the boundaries. The node of
// alice's session does not know that it has become small, and still sends them.
func TestStatus_group_that_becomes_small_on_nodes_with_old_rosters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		nodesTrust()
		users := []tidemark.UserID{"alice"}
		for i := range tidemark.StatusFanoutLimit - 1 {
			users = append(users, tidemark.UserID(fmt.Sprintf("u%02d", i)))
		}
		chat := a.chat("big", users...)
		b.send("alice", chat)
		w.dropping(isMembership)
		a.add(chat, "zoe")
		alice := a.open("alice")
		alice.drain()
		a.ack("u00", chat, 1, 1)
		settle()
		want(t, "of a large chat", alice.drain())
		b.remove(chat, "zoe")
		settle()
		want(t, "of a chat that has become small", alice.drain(),
			"status big u00 1 1")
	})
}

func TestMembership_nothing_outside_it_in_the_history_on_a_node_with_an_old_roster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b, chat := w.oldRoster()
		a.remove(chat, "bob")
		if _, err := storage.AppendOne(w.ctx, w.raw, tidemark.Draft{
			ChatID:          chat,
			SenderID:        "alice",
			ClientMessageID: "k",
			Content:         "not for bob",
			ContentType:     tidemark.DefaultContentType,
			MessageID:       "m",
		}); err != nil {
			t.Fatal(err)
		}
		_, err := b.History(b.ctx, "bob", server.HistoryRequest{Chat: chat, Limit: 10})
		wantCode(t, "History", err, tidemark.NotMember)
	})
}
