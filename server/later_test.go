package server_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage"
)

// laterScene is a node a that leaves the hand-over to others, and a node b that does it when the
// test says so.
type laterScene struct {
	*cluster
	a, b *core
	// later is what a asks.
	later workers
}

// workers hand over what others store, or do not.
type workers struct{ atomic.Bool }

func (w *workers) HandOver() bool { return w.Load() }

func newLaterScene(t *testing.T) *laterScene {
	w := &laterScene{cluster: newCluster(t)}
	w.later.Store(true)
	w.a = w.node("a", func(cfg *server.Config) { cfg.Workers = &w.later })
	w.b = w.node("b")
	nodesTrust()
	return w
}

// stored returns the messages of a chat.
func (w *laterScene) stored(chat tidemark.ChatID) []tidemark.Message {
	w.t.Helper()
	pages, err := w.raw.Ranges(w.ctx, []storage.Range{{Chat: chat, Limit: 100}})
	if err != nil {
		w.t.Fatal(err)
	}
	return pages[0]
}

// handOver hands all messages of a chat over on node b.
func (w *laterScene) handOver(chat tidemark.ChatID) {
	w.t.Helper()
	for _, err := range w.b.HandOver(w.ctx, w.stored(chat)) {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	settle()
}

// TestR_LATER_another_node_hands_over: a send is confirmed when it is stored. The hand-over on
// another node notifies who is online, and marks who is away. The author is covered by their run.
func TestR_LATER_another_node_hands_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("abc", "alice", "bob", "carol")
		bob := w.a.open("bob")
		bob.drain()
		w.a.send("alice", chat)
		settle()
		want(t, "before the hand-over", messagesOf(bob.drain()))
		w.wantRows("before the hand-over", "carol")
		w.wantState("her own message", "alice", chat, 1, 1)
		for range 2 { // The second one changes nothing.
			w.handOver(chat)
			w.wantRows("carol is away", "carol", row("carol", chat, 1))
			w.wantRows("bob is online", "bob")
			w.wantRows("alice has written it", "alice")
		}
		want(t, "handed over twice", messagesOf(bob.drain()), "message abc 1")
	})
}

// TestR_LATER_an_author_who_is_behind_gets_a_row: only the node that took the send knows whether
// the author's own run covers it.
func TestR_LATER_an_author_who_is_behind_gets_a_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("ab", "alice", "bob")
		w.a.send("bob", chat)
		w.a.send("alice", chat)
		settle()
		w.wantRows("her message follows one that she lacks", "alice", row("alice", chat, 2))
		w.wantRows("nobody has handed it over", "bob")
		w.handOver(chat)
		w.wantRows("bob's message", "alice", row("alice", chat, 1))
		w.wantRows("alice's message", "bob", row("bob", chat, 2))
	})
}

// TestR_LATER_who_comes_in_between_is_notified: the proof of a clean close and the rows do not say
// that a message is there. The hand-over finds the session, or what it has left.
func TestR_LATER_who_comes_in_between_is_notified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("abc", "alice", "bob", "carol")
		w.a.leaveProof("bob")
		w.a.leaveProof("carol")
		w.a.send("alice", chat)
		bob := w.b.open("bob")
		want(t, "nothing says so", messagesOf(bob.drain()))
		w.a.leaveProof("carol") // She comes and goes.
		w.handOver(chat)
		want(t, "the session that opened in between", messagesOf(bob.drain()), "message abc 1")
		w.wantRows("she is away again", "carol", row("carol", chat, 1))
		want(t, "her next session", messagesOf(w.b.open("carol").drain()), "message abc 1")
	})
}

// TestR_LATER_who_has_it_meanwhile_gets_no_row: a message that is handed over late may have been
// found and acknowledged. The user's other devices may lack it.
func TestR_LATER_who_has_it_meanwhile_gets_no_row(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("abcd", "alice", "bob", "carol", "dave")
		tablet := w.b.open("dave", onDevice("tablet"))
		tablet.drain()
		w.a.send("alice", chat)
		w.a.ack("bob", chat, 1, 0)
		w.a.ack("dave", chat, 1, 0)
		time.Sleep(3 * time.Second)
		w.handOver(chat)
		w.wantRows("bob has it", "bob")
		w.wantRows("carol has it not", "carol", row("carol", chat, 1))
		want(t, "the device that did not acknowledge", messagesOf(tablet.drain()), "message abcd 1")
	})
}

// TestR_LATER_members_are_those_of_the_hand_over: who left gets nothing any more. Who joined gets
// what their history gives them.
func TestR_LATER_members_are_those_of_the_hand_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("abc", "alice", "bob", "carol")
		w.a.send("alice", chat)
		w.a.remove(chat, "carol")
		w.a.add(chat, "dave")
		w.a.send("alice", chat)
		w.handOver(chat)
		w.wantRows("bob is away", "bob", row("bob", chat, 1))
		w.wantRows("carol has left", "carol")
		if rows := w.rows("dave"); len(rows) != 1 {
			t.Errorf("dave joined before the second message, and has the rows %+v", rows)
		}
	})
}

// TestR_LATER_is_asked_before_and_after: what was stored while nobody else hands over, is handed
// over by the node itself.
func TestR_LATER_is_asked_before_and_after(t *testing.T) {
	for _, tc := range []struct {
		what          string
		before, after bool
	}{
		{"nobody else hands over", false, false},
		{"somebody has begun to", false, true},
		{"somebody has ceased to", true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newLaterScene(t)
			chat := w.a.chat("ab", "alice", "bob")
			w.later.Store(tc.before)
			w.before.set(once("Append", nil, func() { w.later.Store(tc.after) }))
			w.a.send("alice", chat)
			w.wantRows(tc.what, "bob", row("bob", chat, 1))
		})
	}
}

// TestR_LATER_a_hand_over_that_fails_is_the_callers: it is in no retry queue, and can be repeated.
func TestR_LATER_a_hand_over_that_fails_is_the_callers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("ab", "alice", "bob")
		w.a.send("alice", chat)
		w.before.set(every("Mark", errDown))
		errs := w.b.HandOver(w.ctx, w.stored(chat))
		wantCode(t, "a hand-over while rows cannot be written", errs[0], tidemark.Unavailable)
		if n := w.b.Counters()["retry_queue"]; n != 0 {
			t.Errorf("got %d in the retry queue, want 0", n)
		}
		w.before.clear()
		w.handOver(chat)
		w.wantRows("repeated", "bob", row("bob", chat, 1))
	})
}

// TestR_LATER_what_nobody_hands_over_is_found: sessions look for it, and proofs do not count.
func TestR_LATER_what_nobody_hands_over_is_found(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("abc", "alice", "bob", "carol")
		w.a.leaveProof("carol")
		bob := w.b.open("bob")
		bob.drain()
		w.a.send("alice", chat)
		w.b.Reconcile()
		time.Sleep(15 * time.Second)
		want(t, "the session", messagesOf(bob.drain()), "message abc 1")
		want(t, "the next one", messagesOf(w.a.open("carol").drain()), "message abc 1")
	})
}

// TestR_LATER_a_repeated_send_is_handed_over_at_once: the first one may be of a time when nobody
// else handed over.
func TestR_LATER_a_repeated_send_is_handed_over_at_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLaterScene(t)
		chat := w.a.chat("ab", "alice", "bob")
		for _, rows := range [][]tidemark.PendingDelivery{nil, {row("bob", chat, 1)}} {
			if _, err := w.a.sendKey("alice", chat, "k", "once"); err != nil {
				t.Fatal(err)
			}
			w.wantRows("a send and its repetition", "bob", rows...)
		}
	})
}
