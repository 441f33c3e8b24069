package server_test

import (
	"fmt"
	"slices"
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

// wiped is a group in which alice has sent the canary. Both nodes have it in memory. Bob's session
// at a is notified of it, and has not sent it yet. No member has a session at b any more.
type wiped struct {
	*cluster
	a, b *core
	chat tidemark.ChatID
	bob  *client
}

func newWiped(t *testing.T, onB ...func(*server.Config)) *wiped {
	t.Helper()
	w := newCluster(t)
	return newWipedOn(t, w, w.node("a"), w.node("b", onB...))
}

func newWipedOn(t *testing.T, w *cluster, a, b *core) *wiped {
	t.Helper()
	s := &wiped{cluster: w, a: a, b: b}
	tailsTrust()
	s.chat = s.a.chat("abc", "alice", "bob", "carol")
	s.bob = s.a.open("bob")
	s.bob.said()
	carol := s.b.open("carol")
	carol.said()
	s.a.secret("alice", s.chat)
	carol.said()
	s.a.remove(s.chat, "carol")
	settle()
	return s
}

// redaction is a draft that redacts the canary.
func (w *wiped) redaction() tidemark.Draft {
	return tidemark.Draft{
		ChatID: w.chat, SenderID: "alice", ClientMessageID: "r", MessageID: "r",
		Kind: tidemark.KindRedact, Relation: &tidemark.Relation{Sequence: 1},
		ContentType: tidemark.DefaultContentType, CreatedAt: time.Now().UTC(),
	}
}

// gone lets bob's session move to b and read. It gets the stub.
func (w *wiped) gone() {
	w.t.Helper()
	bob := w.b.open("bob", resuming(w.bob.Session(), w.bob.last))
	lines := bob.said()
	wantNo(w.t, "bob at b", lines)
	stub := fmt.Sprint("1:  (redact by alice in ", w.head(w.chat), ")")
	if !slices.Contains(lines, stub) {
		w.t.Errorf("bob at b gets %q, want the stub, too", lines)
	}
}

// redactsUntold redacts the canary at a, and a fails to tell b of it.
func (w *wiped) redactsUntold() {
	w.t.Helper()
	w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
		if unheard(to, e) {
			return errDown
		}
		return send()
	})
	w.a.relate("alice", w.chat, tidemark.KindRedact, 1, "")
}

// unheard drops what tells b of relations.
func unheard(to registry.Node, e bus.Event) bool {
	return to.ID == "b" && e.Notification != nil && e.Notification.Relation
}

func TestR_WIPE_no_node_has_what_was_redacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		w.a.relate("alice", w.chat, tidemark.KindRedact, 1, "")
		w.gone()
	})
}

// TestR_WIPE_a_slow_session_gets_the_stub: each node has a session that was notified of the message
// and has not sent it yet.
func TestR_WIPE_a_slow_session_gets_the_stub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		slow := map[string]*client{"bob at a": a.open("bob"), "carol at b": b.open("carol")}
		for _, c := range slow {
			c.said()
		}
		a.secret("alice", chat)
		b.send("bob", chat)
		settle()
		a.relate("alice", chat, tidemark.KindRedact, 1, "")
		for what, c := range slow {
			want(t, what, c.said(), "1:  (redact by alice in 3)", "2: message 1",
				"3 redact of 1:  (redact by alice in 3)")
		}
	})
}

// TestR_WIPE_a_resend_at_another_node: the node that stored the redaction died. The resend is a
// duplicate, which is not cached.
func TestR_WIPE_a_resend_at_another_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		w.appendDraft(w.redaction())
		w.dropping(func(to registry.Node, e bus.Event) bool { // a is not told by the bus
			return to.ID == "a" && e.Notification != nil && e.Notification.Relation
		})
		d := w.redaction()
		d.MessageID, d.SenderID = "", ""
		if again, err := w.a.Send(w.a.ctx, "alice", d); err != nil || !again.Duplicate {
			t.Fatalf("resend: got %+v, %v", again, err)
		}
		lines := w.bob.said()
		wantNo(t, "bob at a", lines)
		if !slices.Contains(lines, "1:  (redact by alice in 2)") {
			t.Errorf("bob at a gets %q, want the stub, too", lines)
		}
	})
}

func TestR_WIPE_a_late_message_is_not_cached(t *testing.T) {
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			a := w.node("a")
			b := w.node("b", func(cfg *server.Config) { cfg.HotChats = 8 })
			tailsTrust()
			chat := a.chat("ab", "alice", "bob")
			phone, tablet := a.open("bob", onDevice("phone")), b.open("bob", onDevice("tablet"))
			phone.said()
			tablet.said()
			a.send("alice", chat) // so that the sessions know the chat, and read from memory
			phone.said()
			tablet.said()
			late := w.holdNotifications("b", 2)
			a.secret("alice", chat)
			phone.said()
			phone.Ack(server.Ack{Chat: chat, Acked: 2})
			settle()
			a.relate("alice", chat, tidemark.KindRedact, 2, "")
			settle()
			if busy { // so that the node forgets chats
				for n := range 300 {
					b.send("carol", b.chat(tidemark.ChatID(fmt.Sprint("other", n)), "carol"))
				}
			}
			late.release(t)
			want(t, "tablet, from the late message on", tablet.said(),
				"2:  (redact by alice in 3)", "3 redact of 2:  (redact by alice in 3)")
		})
	}
}

// TestR_WIPE_a_node_that_was_not_told_drops_its_caches: the publication fails, so the epoch rises.
func TestR_WIPE_a_node_that_was_not_told_drops_its_caches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		w.redactsUntold()
		w.publish.clear()
		time.Sleep(6 * time.Second)
		w.gone()
	})
}

// TestR_WIPE_a_node_that_nobody_knows_caches_nothing: for the life of its first lease, others may
// not tell a node.
func TestR_WIPE_a_node_that_nobody_knows_caches_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		tailsTrust()
		chat := a.chat("ab", "alice", "bob")
		b := w.node("b")
		live, slow := b.open("bob", onDevice("live")), b.open("bob", onDevice("slow"))
		a.send("alice", chat) // so that the sessions know the chat, and read from memory
		live.said()
		slow.said()
		a.secret("alice", chat)
		live.said() // b reads it from storage
		// No heartbeat of a has met b yet, so a does not tell it.
		w.dropping(unheard)
		a.relate("alice", chat, tidemark.KindRedact, 2, "")
		w.publish.clear()
		lines := slow.said()
		wantNo(t, "slow", lines)
		if !slices.Contains(lines, "2:  (redact by alice in 3)") {
			t.Errorf("slow gets %q, want the stub, too", lines)
		}
	})
}

// TestR_WIPE_an_unknown_outcome_is_told_later: the store keeps the redaction, and does not answer.
func TestR_WIPE_an_unknown_outcome_is_told_later(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		w.after.set(every("Append", errDown))
		_, err := w.a.tryRelate(server.Caller{User: "alice"}, w.chat, tidemark.KindRedact, 1, "")
		wantCode(t, "without an answer", err, tidemark.Unavailable)
		w.after.clear()
		time.Sleep(5 * time.Second)
		w.gone()
		if n := w.head(w.chat); n != 2 {
			t.Errorf("got head %d, want 2", n)
		}
	})
}

// TestR_WIPE_a_node_that_is_cut_off_serves_from_storage: nobody can tell the node, and it knows
// that when its lease has run out.
func TestR_WIPE_a_node_that_is_cut_off_serves_from_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a, b := w.node("a"), w.node("b", w.cutOffBy(&down))
		tailsTrust()
		chat := a.chat("ab", "alice", "bob")
		slow := b.open("bob")
		slow.said()
		a.secret("alice", chat)
		settle()
		down.Store(true)
		w.dropping(notificationTo("b"))
		a.relate("alice", chat, tidemark.KindRedact, 1, "")
		time.Sleep(10 * time.Second)
		wantNo(t, "a session of the node that is cut off", slow.said())
		down.Store(false)
	})
}

// TestR_WIPE_a_worker_tells_all_nodes: the node that stored the redaction died before it told them.
func TestR_WIPE_a_worker_tells_all_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		relation := w.appendDraft(w.redaction())
		for _, err := range w.a.HandOver(w.a.ctx, []tidemark.Message{relation}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.gone()
	})
}

// TestR_WIPE_a_late_message_after_an_epoch_is_not_cached: the node that stored the redaction died
// before it told anybody. All nodes dropped their caches. Only then the message arrives.
func TestR_WIPE_a_late_message_after_an_epoch_is_not_cached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		s := &wiped{cluster: w, a: a, b: b, chat: a.chat("ab", "alice", "bob")}
		live := b.open("bob")
		live.said()
		late := w.holdNotifications("b", 1)
		a.secret("alice", s.chat)
		w.ghost("c", 3*time.Second)
		w.appendDraft(s.redaction())
		time.Sleep(9 * time.Second)
		late.release(t)
		lines := live.said()
		wantNo(t, "live", lines)
		if !slices.Contains(lines, "1:  (redact by alice in 2)") {
			t.Errorf("got %q, want the stub, too", lines)
		}
	})
}

// TestR_WIPE_relations_are_read_from_storage: other nodes get no copy of what may change.
func TestR_WIPE_relations_are_read_from_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		tailsTrust()
		chat := a.chat("ab", "alice", "bob")
		live := b.open("bob")
		if _, err := a.sendKey("alice", chat, "k", "first"); err != nil {
			t.Fatal(err)
		}
		live.said()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && e.Notification.Message != nil {
				t.Errorf("a node gets a copy of message %d", e.Notification.Sequence)
			}
			return send()
		})
		a.relate("alice", chat, tidemark.KindEdit, 1, "second")
		want(t, "edited", live.said(), "2 edit of 1: second (edit by alice in 2)")
		if _, err := a.sendKey("alice", chat, "k", "first"); err != nil {
			t.Fatal(err)
		}
		live.said()
		a.relate("alice", chat, tidemark.KindEdit, 1, "third")
		want(t, "edited again", live.said(), "3 edit of 1: third (edit by alice in 3)")
	})
}

// appendDraft stores a draft as if its node had died before the hand-over.
func (w *cluster) appendDraft(d tidemark.Draft) tidemark.Message {
	w.t.Helper()
	appended, err := storage.AppendOne(w.ctx, w.raw, d)
	if err != nil {
		w.t.Fatal(err)
	}
	return appended.Message
}

// TestR_WIPE_a_node_that_was_never_told_learns_from_storage: it reads the relation for one session,
// and then has no message from before it for the others.
func TestR_WIPE_a_node_that_was_never_told_learns_from_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		// So the relation does not follow what b has.
		w.appendDead("alice", w.chat, "between")
		w.appendDraft(w.redaction())
		wantNo(t, "alice at b", w.b.open("alice").said())
		w.gone()
	})
}

// TestR_WIPE_a_node_that_is_cut_off_changes_nothing: it could tell nobody. Messages go on.
func TestR_WIPE_a_node_that_is_cut_off_changes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		w.node("b")
		tailsTrust()
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		down.Store(true)
		time.Sleep(10 * time.Second)
		a.send("alice", chat)
		for _, by := range []server.Caller{{User: "alice"}, {User: "alice", Backend: true}} {
			_, err := a.tryRelate(by, chat, tidemark.KindRedact, 1, "")
			wantCode(t, "cut off", err, tidemark.Unavailable)
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		a.relate("alice", chat, tidemark.KindRedact, 1, "")
	})
}

// TestR_WIPE_a_node_that_stops_raises_the_epoch: it could not tell another node, and stops at once.
// So the epoch rises before it leaves.
func TestR_WIPE_a_node_that_stops_raises_the_epoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWiped(t)
		w.redactsUntold()
		before, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.a.Stop(w.ctx); err != nil {
			t.Fatal(err)
		}
		if after, err := w.reg.Epoch(w.ctx); err != nil || after == before {
			t.Errorf("the epoch is %v, %v, as before the stop", after, err)
		}
		w.publish.clear()
		time.Sleep(6 * time.Second)
		w.gone()
	})
}
