package server_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestR_STANDS_a_row_that_stands_is_not_asked_for_again: members who are away cost one Mark in all.
// A member who leaves the stream later costs one more, for them alone.
func TestR_STANDS_a_row_that_stands_is_not_asked_for_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a")
		chat := a.chat("group", "alice", "bob", "carol", "dave")
		dave := a.open("dave")
		// Openings and statuses read the roster too, unless the node trusts the one that it has. If
		// they do so later, they replace the one with the bits.
		nodesTrust()
		if _, err := a.Chat(a.ctx, server.Caller{User: "alice"}, chat); err != nil {
			t.Fatal(err)
		}
		settle()
		before := a.store.Snapshot()
		for range 5 {
			a.send("alice", chat)
		}
		wantMarks(t, "while two are away", a.since(before), 1)
		dave.drain()
		dave.Ack(server.Ack{Chat: chat, Acked: 5})
		settle()
		dave.goodbye()
		before = a.store.Snapshot()
		for range 5 {
			a.send("alice", chat)
		}
		wantMarks(t, "while three are away", a.since(before), 1)
		// Two rows of nine messages stood, and one of four.
		if n := a.Counters()["pending_rows_known_total"]; n != 2*9+4 {
			t.Errorf("%d rows were known to stand, want %d", n, 2*9+4)
		}
		w.wantRows("bob", "bob", row("bob", chat, 1))
		w.wantRows("carol", "carol", row("carol", chat, 1))
		w.wantRows("dave", "dave", row("dave", chat, 6))
	})
}

func wantMarks(t *testing.T, when string, got storagetest.Counts, want int) {
	t.Helper()
	if n := got.Calls["Mark"]; n != want {
		t.Errorf("%s: %d calls of Mark, want %d", when, n, want)
	}
}

// TestR_STANDS_a_row_that_another_node_removed_is_marked_again: the node that remembers the row is
// not notified.
func TestR_STANDS_a_row_that_another_node_removed_is_marked_again(t *testing.T) {
	for name, acknowledge := range map[string]func(*core, tidemark.ChatID){
		"by PATCH": func(b *core, chat tidemark.ChatID) { b.ack("bob", chat, 2, 0) },
		"by a session": func(b *core, chat tidemark.ChatID) {
			bob := b.open("bob")
			bob.drain()
			bob.Ack(server.Ack{Chat: chat, Acked: 2})
			settle()
			bob.goodbye()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				a, b := w.node("a"), w.node("b")
				chat := a.chat("ab", "alice", "bob")
				a.send("alice", chat)
				a.send("alice", chat)
				w.wantRows("bob is away", "bob", row("bob", chat, 1))
				acknowledge(b, chat)
				w.wantRows("bob has acknowledged all", "bob")
				a.send("alice", chat)
				w.wantRows("another message", "bob", row("bob", chat, 3))
				want(t, "bob", messagesOf(b.open("bob").drain()), "message ab 3")
			})
		})
	}
}

// TestR_STANDS_a_row_that_was_removed_meanwhile_is_not_remembered: while the node waits for the
// answer of a Mark, the row is removed, and a later message shows that.
func TestR_STANDS_a_row_that_was_removed_meanwhile_is_not_remembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		w.after.set(once("Mark", nil, func() {
			bob := b.open("bob")
			bob.drain()
			b.ack("bob", chat, 1, 0)
			a.send("alice", chat)
			bob.drain()
			b.ack("bob", chat, 2, 0)
			bob.goodbye()
		}))
		a.send("alice", chat)
		w.after.clear()
		w.wantRows("bob has acknowledged both", "bob")
		a.send("alice", chat)
		w.wantRows("bob is away", "bob", row("bob", chat, 3))
	})
}

// TestR_STANDS_a_later_row_does_not_cover_an_earlier_message: the later message of two is marked
// first.
func TestR_STANDS_a_later_row_does_not_cover_an_earlier_message(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		w.after.set(once("Append", nil, func() { a.send("alice", chat) }))
		a.send("alice", chat)
		w.wantRows("bob is away", "bob", row("bob", chat, 1))
	})
}

// TestR_STANDS_a_member_who_returned_is_marked_again: their row went with the membership.
func TestR_STANDS_a_member_who_returned_is_marked_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("group", "alice", "bob", "carol")
		a.send("alice", chat)
		a.ack("carol", chat, 1, 0)
		a.ack("bob", chat, 1, 0)
		a.send("alice", chat)
		owner := server.Caller{User: "alice"}
		if err := b.RemoveMember(b.ctx, owner, chat, "bob"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.AddMembers(b.ctx, owner, chat, []tidemark.UserID{"bob"}, ""); err != nil {
			t.Fatal(err)
		}
		settle()
		b.ack("bob", chat, w.head(chat), 0)
		w.wantRows("bob has acknowledged all", "bob")
		n := a.send("alice", chat)
		w.wantRows("bob is away", "bob", row("bob", chat, n))
	})
}

// TestR_STANDS_at_random lets two nodes send to users who come, acknowledge and go at the other
// node, or acknowledge by PATCH. Storage takes random times. At rest, each user who has not
// acknowledged all has a row that covers what is missing.
func TestR_STANDS_at_random(t *testing.T) {
	for seed := range randomRuns(t) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newStandingRun(t, seed).run() })
		})
	}
}

type standingRun struct {
	*cluster
	nodes []*core
	chat  tidemark.ChatID
	users []tidemark.UserID

	mu   sync.Mutex
	dice *rand.Rand
}

func newStandingRun(t *testing.T, seed uint64) *standingRun {
	r := &standingRun{
		cluster: newCluster(t), users: []tidemark.UserID{"bob", "carol", "dave"},
		dice: rand.New(rand.NewPCG(seed, 11)), //nolint:gosec // The seed decides.
	}
	r.nodes = []*core{r.node("a"), r.node("b")}
	r.chat = r.nodes[0].chat("group", append([]tidemark.UserID{"alice"}, r.users...)...)
	for _, user := range r.users {
		r.nodes[0].leaveProof(user)
	}
	r.nodes[0].send("alice", r.chat)
	wait := func(string) error {
		time.Sleep(time.Duration(r.roll(20)) * time.Millisecond)
		return nil
	}
	r.before.set(wait)
	r.after.set(wait)
	return r
}

func (r *standingRun) roll(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dice.IntN(n)
}

func (r *standingRun) run() {
	var running sync.WaitGroup
	for i, n := range r.nodes {
		running.Go(func() {
			for m := range 12 {
				_, err := n.sendKey("alice", r.chat, fmt.Sprint(i, "-", m), "hello")
				if err != nil {
					r.t.Error(err)
				}
				time.Sleep(time.Duration(r.roll(40)) * time.Millisecond)
			}
		})
	}
	for _, user := range r.users {
		running.Go(func() {
			for range 4 {
				time.Sleep(time.Duration(r.roll(150)) * time.Millisecond)
				r.visit(user)
			}
		})
	}
	running.Wait()
	settle()
	r.wantPendingOrDelivered(r.chat, r.users...)
}

// visit lets a user come, acknowledge what they got, and go. Or it acknowledges by PATCH.
func (r *standingRun) visit(user tidemark.UserID) {
	n := r.nodes[r.roll(2)]
	if r.roll(3) == 0 {
		n.ack(user, r.chat, r.head(r.chat), 0)
		return
	}
	conn := n.open(user)
	for {
		events, err := conn.Next(r.ctx, nil, false)
		if err != nil {
			r.t.Error(err)
		}
		if len(events) == 0 {
			break
		}
	}
	n.ack(user, r.chat, r.head(r.chat), 0)
	conn.goodbye()
}
