package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/local"
	"github.com/tidemark-im/tidemark/server/registry"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
)

// failing makes every method of storage unavailable, except those named.
func (w *cluster) failing(except ...string) {
	w.before.set(func(method string) error {
		if slices.Contains(except, method) {
			return nil
		}
		return errDown
	})
}

// TestBus_late_doubled_and_reordered_fan_out_keeps_session_in_order: publications that are late,
// sent twice or reordered only cost time.
func TestBus_late_doubled_and_reordered_fan_out_keeps_session_in_order(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			a, b := w.node("a"), w.node("b")
			chat := a.chat("ab", "alice", "bob")
			bob := b.open("bob")
			bob.drain()
			dice := rand.New(rand.NewPCG(seed, 2))
			var kept []func() error
			w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Notification == nil {
					return send()
				}
				kept = append(kept, send)
				if dice.IntN(2) == 0 {
					kept = append(kept, send)
				}
				return nil
			})
			for range 30 {
				a.send("alice", chat)
			}
			dice.Shuffle(len(kept), func(i, j int) { kept[i], kept[j] = kept[j], kept[i] })
			next := tidemark.Sequence(1)
			for _, send := range kept {
				if err := send(); err != nil {
					t.Fatal(err)
				}
				for _, l := range messagesOf(bob.drain()) {
					if want := fmt.Sprintf("message ab %d", next); l != want {
						t.Fatalf("seed %d: got %q, want %q: no message comes twice before "+
							"an acknowledgement", seed, l, want)
					}
					next++
				}
			}
			if next != 31 {
				t.Errorf("seed %d: sent up to %d, want 30", seed, next-1)
			}
			w.publish.clear()
		})
	}
}

// TestBus_a_lost_publication_is_repaired_by_the_next: a lost notification's message is sent with
// the next notification.
func TestBus_a_lost_publication_is_repaired_by_the_next(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob")
		bob.drain()
		a.send("alice", chat)
		bob.drain()
		w.dropping(notificationTo("b"))
		a.send("alice", chat)
		want(t, "lost", messagesOf(bob.drain()))
		w.publish.clear()
		a.send("alice", chat)
		want(t, "repaired", messagesOf(bob.drain()), "message ab 2", "message ab 3")
	})
}

// TestSync_of_a_session_elsewhere_while_the_registry_is_silent: a node that cannot ask where a
// session is does not say that it has gone.
func TestSync_of_a_session_elsewhere_while_the_registry_is_silent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		down := new(atomic.Bool)
		a, b := w.node("a"), w.node("b", w.cutOffBy(down))
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		bob := a.open("bob")
		bob.drain()
		request := server.SyncRequest{
			Session: bob.Session(),
			Cursors: []server.Cursor{{Chat: chat, Acked: 0}},
			Limit:   10,
		}
		down.Store(true)
		_, err := b.Sync(b.ctx, "bob", request)
		wantCode(t, "while the registry is silent", err, tidemark.Unavailable)
		down.Store(false)
		if _, err := b.Sync(b.ctx, "bob", request); err != nil {
			t.Errorf("when it answers again: %v", err)
		}
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

// TestAck_while_rosters_cannot_be_read_is_not_written: an acknowledgement of somebody who may be no
// member is not stored. The client repeats it.
func TestAck_while_rosters_cannot_be_read_is_not_written(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.HotChats = 1 })
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		eve := a.open("eve")
		eve.drain()
		a.chat("other", "alice", "carol") // takes the only place in the cache
		a.send("alice", "other")
		settle()
		w.failing("Advance")
		eve.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		w.before.clear()
		w.wantState("eve, who is no member", "eve", chat, 0, 0)
	})
}

// unreachable is a registry that cannot be reached while down is true.
type unreachable struct {
	*registrymemory.Registry
	down *atomic.Bool
}

// cutOffBy gives a node a registry that it cannot reach while down is true.
func (w *cluster) cutOffBy(down *atomic.Bool) func(*server.Config) {
	return func(cfg *server.Config) {
		u := unreachable{w.reg, down}
		cfg.Registry, cfg.Nodes = u, u
	}
}

func (u unreachable) Epoch(ctx context.Context) (registry.Epoch, error) {
	if u.down.Load() {
		return registry.Epoch{}, errDown
	}
	return u.Registry.Epoch(ctx)
}

func (u unreachable) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	if u.down.Load() {
		return registry.Opened{}, errDown
	}
	return u.Registry.Open(ctx, q)
}

func (u unreachable) Close(ctx context.Context, l registry.Lease, proof *registry.Epoch) error {
	if u.down.Load() {
		return errDown
	}
	return u.Registry.Close(ctx, l, proof)
}

func (u unreachable) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	if u.down.Load() {
		return nil, errDown
	}
	return u.Registry.Lookup(ctx, users)
}

func (u unreachable) Refresh(
	ctx context.Context, n registry.Node, nodeTTL time.Duration, l []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	if u.down.Load() {
		return registry.Refreshed{}, errDown
	}
	return u.Registry.Refresh(ctx, n, nodeTTL, l, ttl)
}

func (u unreachable) Join(ctx context.Context, n registry.Node, ttl time.Duration) error {
	if u.down.Load() {
		return errDown
	}
	return u.Registry.Join(ctx, n, ttl)
}

// TestRegistry_down_messages_are_stored_marked_and_confirmed: if the registry cannot be asked,
// users without a session on this node count as offline. The message is stored, marked and
// confirmed.
func TestRegistry_down_messages_are_stored_marked_and_confirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		chat := a.chat("abcd", "alice", "bob", "carol", "dave")
		bob, carol := a.open("bob"), b.open("carol")
		bob.drain()
		carol.drain()
		synctest.Wait()
		down.Store(true)
		a.send("alice", chat)
		want(t, "bob, on the sender's node", messagesOf(bob.drain()), "message abcd 1")
		w.wantRows("carol, on another node", "carol", row("carol", chat, 1))
		dave := a.open("dave") // without a lease
		want(t, "dave, who reconciles", messagesOf(dave.drain()), "message abcd 1")
		a.send("alice", chat)
		want(t, "dave, on the sender's node", messagesOf(dave.drain()), "message abcd 2")
		if err := bob.Close(a.ctx); err != nil {
			t.Errorf("Close without a registry: %v", err)
		}
		synctest.Wait()
		time.Sleep(30 * time.Second) // a refresh fails
		down.Store(false)
		// The node rejoins and raises the epoch: carol's session reconciles.
		time.Sleep(90 * time.Second)
		want(t, "carol", messagesOf(carol.drain()), "message abcd 1", "message abcd 2")
		want(t, "bob", messagesOf(a.open("bob").drain()), "message abcd 1", "message abcd 2")
	})
}

// TestR_RELOOK_who_could_not_be_looked_up_is_looked_up_again: only a look-up failed, and no
// heartbeat. The recipients are looked up again, and no session has to reconcile.
func TestR_RELOOK_who_could_not_be_looked_up_is_looked_up_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob")
		bob.drain()
		down.Store(true)
		a.send("alice", chat)
		down.Store(false)
		w.wantRows("where bob is cannot be asked", "bob", row("bob", chat, 1))
		time.Sleep(2 * time.Second)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
		if n := b.Counters()["epochs_total"]; n != 0 {
			t.Errorf("the epoch rose %d times, want 0", n)
		}
	})
}

// TestR_EPOCH_a_node_that_regains_the_registry_raises_it: a node whose lease has expired may have
// stored messages without notifying their recipients. It raises the epoch when it rejoins, even if
// other nodes have noticed its absence before.
func TestR_EPOCH_a_node_that_regains_the_registry_raises_it(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		down.Store(true)
		time.Sleep(time.Minute)
		if a.Degraded() == nil || b.Degraded() != nil {
			t.Errorf("Degraded: a %v, b %v, want only a degraded", a.Degraded(), b.Degraded())
		}
		noticed := b.Counters()["epochs_total"]
		if noticed == 0 {
			t.Error("no node noticed that a is gone")
		}
		bob := b.open("bob")
		bob.drain()
		w.appendDead("alice", chat, "k")
		down.Store(false)
		time.Sleep(15 * time.Second)
		if a.Degraded() != nil {
			t.Errorf("a is degraded after its return: %v", a.Degraded())
		}
		if b.Counters()["epochs_total"] == noticed {
			t.Error("a rejoined, but b's sessions do not reconcile")
		}
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

// wantPendingOrDelivered checks that each user who is behind the head has a pending row. It may be
// called when no session is open and every proof is valid.
func (w *cluster) wantPendingOrDelivered(chat tidemark.ChatID, users ...tidemark.UserID) {
	w.t.Helper()
	head := w.head(chat)
	for _, user := range users {
		acked := w.state(user, chat).Acked
		if head == acked {
			continue
		}
		ok := false
		for _, r := range w.rows(user) {
			ok = ok || r.ChatID == chat && r.FirstUndelivered <= acked+1
		}
		if !ok {
			w.t.Errorf("pending_or_delivered: %s has acknowledged %d of %d in %s; rows: %v",
				user, acked, head, chat, w.rows(user))
		}
	}
}

func TestStop_pending_or_delivered_afterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abcde", "alice", "bob", "carol", "dave", "erin")
		sent, notified := a.open("bob"), a.open("carol")
		acked := a.open("dave")
		for _, c := range []*client{sent, notified, acked} {
			c.drain()
		}
		a.send("alice", chat)
		a.send("alice", chat)
		sent.drain()
		acked.drain()
		acked.Ack(server.Ack{Chat: chat, Acked: 2}) // not written yet
		erin := a.open("erin")                      // has not reconciled yet
		if err := a.Stop(a.ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		w.wantPendingOrDelivered(chat, "alice", "bob", "carol", "dave")
		w.wantState("a waiting acknowledgement is written", "dave", chat, 2, 0)
		w.wantState("so is the author's", "alice", chat, 2, 2)
		_, err := erin.Next(a.ctx, nil, true)
		wantCode(t, "Next", err, tidemark.Unavailable)
		_, err = a.sendKey("alice", chat, "late", "late")
		wantCode(t, "Send", err, tidemark.Unavailable)
		_, err = a.Open(a.ctx, openRequest{User: "bob"})
		wantCode(t, "Open", err, tidemark.Unavailable)
		b := w.node("b")
		for _, user := range []tidemark.UserID{"bob", "carol", "erin"} {
			want(t, string(user), messagesOf(b.open(user).drain()),
				"message abcde 1", "message abcde 2")
		}
		before := b.store.Snapshot()
		want(t, "dave", messagesOf(b.open("dave").drain()))
		if calls := b.since(before).Calls; calls["Behind"] != 0 {
			t.Errorf("a clean stop leaves proofs, but the open reconciled: %v", calls)
		}
	})
}

func TestStop_while_sends_are_under_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.open("bob").drain()
		w.before.set(func(method string) error {
			if method == "Append" || method == "Mark" {
				time.Sleep(time.Millisecond) // so that Stop begins in the middle
			}
			return nil
		})
		var mu sync.Mutex
		confirmed := map[tidemark.Sequence]bool{}
		refused := 0
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				for j := range 20 {
					sent, err := a.sendKey("alice", chat, fmt.Sprintf("k%d-%d", i, j), "x")
					mu.Lock()
					if err == nil {
						confirmed[sent.Message.Sequence] = true
					} else {
						refused++
						wantCode(t, "a refused send", err, tidemark.Unavailable)
					}
					mu.Unlock()
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
		if err := a.Stop(a.ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		atStop := a.store.Snapshot().Calls
		all.Wait()
		w.before.clear()
		if diff := cmp.Diff(atStop, a.store.Snapshot().Calls); diff != "" {
			t.Errorf("storage was called after Stop returned (-at return +now):\n%s", diff)
		}
		if len(confirmed) == 0 || refused == 0 {
			t.Errorf("%d sends confirmed, %d refused: want both more than 0",
				len(confirmed), refused)
		}
		if head := w.head(chat); int(head) != len(confirmed) {
			t.Errorf("head %d, but %d sends confirmed: every send under way must be answered",
				head, len(confirmed))
		}
		w.wantPendingOrDelivered(chat, "bob", "carol")
	})
}

func TestStop_waits_for_a_send_under_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		w.before.set(once("Append", nil, func() { time.Sleep(5 * time.Second) }))
		var sending sync.WaitGroup
		var done atomic.Bool
		sending.Go(func() {
			a.send("alice", chat)
			done.Store(true)
		})
		synctest.Wait()
		if err := a.Stop(a.ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		synctest.Wait() // the send has ended, but its goroutine may not have said so
		if !done.Load() {
			t.Error("Stop returned while a send was under way")
		}
		sending.Wait()
		w.wantPendingOrDelivered(chat, "bob")
	})
}

// TestStop_with_storage_down_leaves_no_proof: if rows cannot be marked at the stop, the node leaves
// no proof. The next open reconciles.
func TestStop_with_storage_down_leaves_no_proof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		reg, b := w.reg, local.New()
		w.bus = b
		a, err := server.New(server.Config{
			Storage:  &markless{w.raw},
			Registry: reg,
			Nodes:    reg,
			Bus:      b,
			Logger:   quiet(),
			Node:     "a",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		c := &core{Server: a, t: t, ctx: w.ctx}
		chat := c.chat("ab", "alice", "bob")
		bob := c.open("bob")
		bob.drain()
		c.send("alice", chat)
		wantCode(t, "Stop", a.Stop(w.ctx), tidemark.Unavailable)
		w.wantRows("no row could be marked", "bob")
		want(t, "the next open", messagesOf(w.node("b").open("bob").drain()), "message ab 1")
	})
}

// TestR_EPOCH_a_node_that_stops_with_work_left_does_not_leave_cleanly: a node that could not write
// a row must not leave the registry cleanly. Otherwise the proof that the user left at another node
// would be trusted.
func TestR_EPOCH_a_node_that_stops_with_work_left_does_not_leave_cleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		b.leaveProof("bob")
		w.before.set(every("Mark", errDown))
		_, err := a.sendKey("alice", chat, "k", "hello")
		wantCode(t, "Send", err, tidemark.Unavailable)
		if err := a.Stop(w.ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
		w.before.clear()
		w.wantRows("no row could be marked", "bob")
		time.Sleep(2 * time.Minute)
		want(t, "bob", messagesOf(b.open("bob").drain()), "message ab 1")
	})
}
