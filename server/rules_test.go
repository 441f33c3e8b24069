package server_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// The rules R_… of delivery.md §3 and §4. Each test is a race that loses a message without the
// rule.

// delayed holds publications back until release publishes them.
type delayed struct {
	mu    sync.Mutex
	sends []func() error
}

func (d *delayed) keep(send func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sends = append(d.sends, send)
}

func (d *delayed) release(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.sends) == 0 {
		t.Error("no publication was held back: the test shows nothing")
	}
	for _, send := range d.sends {
		if err := send(); err != nil {
			t.Errorf("a publication that was held back: %v", err)
		}
	}
	d.sends = nil
}

// holdNotifications holds back the notifications of one sequence to one node.
func (w *cluster) holdNotifications(node tidemark.NodeID, sequence tidemark.Sequence) *delayed {
	d := &delayed{}
	w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
		if e.Notification != nil && to.ID == node && e.Notification.Sequence == sequence {
			d.keep(send)
			return nil
		}
		return send()
	})
	return d
}

func TestR_MIN_start_is_the_sequence_notified_even_if_acknowledged_elsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		phone, tablet := a.open("bob", onDevice("phone")), b.open("bob", onDevice("tablet"))
		phone.drain()
		tablet.drain()
		late := w.holdNotifications("b", 1)
		a.send("alice", chat)
		want(t, "phone", messagesOf(phone.drain()), "message ab 1")
		phone.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		w.wantState("acknowledged on the phone", "bob", chat, 1, 0)
		late.release(t)
		want(t, "tablet", messagesOf(tablet.drain()), "message ab 1")
	})
}

func TestR_MIN_a_late_lower_notification_rewinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		phone, tablet := a.open("bob", onDevice("phone")), b.open("bob", onDevice("tablet"))
		phone.drain()
		tablet.drain()
		late := w.holdNotifications("b", 1)
		a.send("alice", chat)
		phone.drain()
		phone.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		a.send("alice", chat)
		want(t, "tablet, before", messagesOf(tablet.drain()), "message ab 2")
		late.release(t)
		want(t, "tablet, after", messagesOf(tablet.drain()), "message ab 1", "message ab 2")
	})
}

func TestR_WAKESET_close_marks_what_was_sent_or_only_notified(t *testing.T) {
	for _, read := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			a := w.node("a")
			chat := a.chat("ab", "alice", "bob")
			bob := a.open("bob")
			bob.drain()
			a.send("alice", chat)
			a.send("alice", chat)
			if read {
				bob.drain()
			}
			bob.goodbye()
			w.wantRows("closed without acknowledgement", "bob", row("bob", chat, 1))
			want(t, "back", messagesOf(a.open("bob").drain()), "message ab 1", "message ab 2")
		})
	}
}

func TestR_ADDR_a_later_session_of_the_device_is_not_the_one_addressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.open("bob", onDevice("phone")).drain()
		var newer *client
		first := true
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && first {
				first = false
				newer = a.open("bob", onDevice("phone"))
				newer.drain()
			}
			return send()
		})
		a.send("alice", chat)
		settle()
		w.wantRows("addressed to the older session", "bob", row("bob", chat, 1))
		want(t, "newer session", messagesOf(newer.drain()), "message ab 1")
		newer.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		w.wantRows("the notification said that a row may stand", "bob")
	})
}

func TestR_RELOOK_who_came_online_before_the_mark_is_notified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		var bob *client
		w.before.set(once("Mark", nil, func() {
			bob = a.open("bob")
			want(t, "before the row is written", messagesOf(bob.drain()))
		}))
		a.send("alice", chat)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		w.wantRows("the notification said that a row may stand", "bob")
	})
}

// TestR_RELOOK_a_notification_that_fails_is_tried_again: the bus fails for a while. The user has a
// row and a session that nothing else notifies.
func TestR_RELOOK_a_notification_that_fails_is_tried_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		bob := b.open("bob")
		bob.drain()
		w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && to.ID == "b" {
				return errDown
			}
			return send()
		})
		a.send("alice", chat)
		time.Sleep(3 * time.Second)
		w.wantRows("the bus is down", "bob", row("bob", chat, 1))
		w.publish.clear()
		time.Sleep(5 * time.Second)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

func TestR_NOBODY_a_publication_that_reached_no_node_marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		dead := w.ghost("dead", time.Minute)
		lease := registry.Lease{
			User:    "bob",
			Device:  "phone",
			Node:    dead.ID,
			Boot:    dead.Boot,
			Session: "s",
		}
		if _, err := w.reg.Open(
			w.ctx, registry.LeaseRequest{Lease: lease, TTL: time.Minute},
		); err != nil {
			t.Fatal(err)
		}
		a.send("alice", chat)
		w.wantRows("bob's node is dead", "bob", row("bob", chat, 1))
	})
}

func TestR_NOBODY_a_publication_of_unknown_outcome_marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		failed := false
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && !failed &&
				slices.ContainsFunc(e.To, func(l registry.Lease) bool { return l.User == "bob" }) {
				failed = true
				return errDown
			}
			return send()
		})
		a.send("alice", chat)
		w.wantRows("the publication may have arrived or not", "bob", row("bob", chat, 1))
		want(t, "the second look-up notifies bob", messagesOf(bob.drain()), "message ab 1")
	})
}

func TestR_NOBODY_a_hand_over_for_a_session_that_is_gone_marks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil {
				bob.goodbye()
			}
			return send()
		})
		a.send("alice", chat)
		settle()
		w.wantRows("gone before the hand-over", "bob", row("bob", chat, 1))
		want(t, "back", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

func TestR_PROOF_without_proof_an_open_reconciles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		w.appendDead("alice", chat, "k")
		want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

func TestR_PROOF_is_consumed_by_the_open(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		dead := w.ghost("dead", time.Hour)
		a.leaveProof("bob")
		lease := registry.Lease{
			User:    "bob",
			Device:  "phone",
			Node:    dead.ID,
			Boot:    dead.Boot,
			Session: "s",
		}
		if opened, err := w.reg.Open(
			w.ctx, registry.LeaseRequest{Lease: lease, TTL: time.Minute},
		); err != nil || opened.Proof == nil {
			t.Fatalf("the dead node's open found %v, %v: the test shows nothing", opened, err)
		}
		time.Sleep(2 * time.Minute) // the dead node's lease expires, and leaves no proof
		w.appendDead("alice", chat, "k")
		want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

func TestR_LAST_a_device_that_closes_beside_another_leaves_no_proof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		phone, tablet := a.open("bob", onDevice("phone")), a.open("bob", onDevice("tablet"))
		phone.drain()
		tablet.drain()
		phone.goodbye()
		a.send("alice", chat)
		want(t, "tablet", messagesOf(tablet.drain()), "message ab 1")
		want(t, "phone, while the tablet has not acknowledged",
			messagesOf(a.open("bob", onDevice("phone")).drain()), "message ab 1")
	})
}

// generous is a registry that gives every open a proof of the current epoch.
type generous struct{ registry.Registry }

func (g generous) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	opened, err := g.Registry.Open(ctx, q)
	if err == nil {
		var epoch registry.Epoch
		epoch, err = g.Epoch(ctx)
		opened.Proof = &epoch
	}
	return opened, err
}

func TestR_LAST_an_open_beside_another_lease_reconciles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = generous{cfg.Registry} })
		chat := a.chat("ab", "alice", "bob")
		tablet := a.open("bob", onDevice("tablet"))
		tablet.drain()
		a.send("alice", chat)
		tablet.drain()
		want(t, "phone", messagesOf(a.open("bob", onDevice("phone")).drain()), "message ab 1")
	})
}

func TestR_ORDER_close_detaches_then_marks_then_releases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		ab, bc := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", ab)
		bob.drain()
		w.before.set(once("Mark", nil, func() {
			if n := len(w.leases("bob")); n != 1 {
				t.Errorf("got %d leases while rows are marked, want 1, which is released later", n)
			}
			a.send("carol", bc) // bob's session is detached, and takes no notification
		}))
		bob.goodbye()
		settle()
		if n := len(w.leases("bob")); n != 0 {
			t.Errorf("got %d leases after the close, want 0", n)
		}
		w.wantRows("marked", "bob", row("bob", ab, 1), row("bob", bc, 1))
		want(t, "back", messagesOf(a.open("bob").drain()), "message ab 1", "message bc 1")
	})
}

func TestR_COMPLETE_no_proof_from_a_session_that_had_not_finished_looking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		w.appendDead("alice", chat, "k")
		a.open("bob").goodbye()
		want(t, "the next open", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

func TestR_COMPLETE_no_proof_from_a_session_whose_rows_could_not_be_marked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		w.before.set(every("Mark", errDown))
		wantCode(t, "Close", bob.Close(a.ctx), tidemark.Unavailable)
		w.wantRows("no row could be marked", "bob")
		want(t, "the next open", messagesOf(a.open("bob").drain()), "message ab 1")
		time.Sleep(3 * time.Second) // the node tries again, and fails again
		w.before.clear()
		time.Sleep(3 * time.Second)
		w.wantRows("the row is marked later", "bob", row("bob", chat, 1))
	})
}

func TestR_EPOCH_live_sessions_reconcile_after_a_node_died(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "k")
		time.Sleep(time.Minute)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

func TestR_EPOCH_a_node_that_died_voids_proofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "k")
		time.Sleep(2 * time.Second)
		want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

// TestR_EPOCH_a_proof_names_the_epoch_read_before_the_open: a session opened before a node died. If
// it closes before it has reconciled, it leaves no valid proof.
func TestR_EPOCH_a_proof_names_the_epoch_read_before_the_open(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "k")
		time.Sleep(2 * time.Second)
		bob.goodbye()
		want(t, "the next open", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

// TestR_EPOCH_a_death_during_the_open_is_noticed: a node dies between the open's read of the epoch
// and its atomic step.
func TestR_EPOCH_a_death_during_the_open_is_noticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		chatMade := false
		var chat tidemark.ChatID
		a := w.node("a", func(cfg *server.Config) {
			cfg.Registry = dying{cfg.Registry, func() {
				if chatMade {
					chatMade = false
					w.ghost("dead", time.Second)
					time.Sleep(2 * time.Second)
				}
			}}
		})
		chat = a.chat("ab", "alice", "bob")
		a.leaveProof("bob")
		chatMade = true
		bob := a.open("bob")
		bob.drain()
		bob.goodbye()
		w.appendDead("alice", chat, "k") // the dead node's last message, visible late
		want(t, "the next open", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

// dying is a registry that calls before at each Open, ahead of the atomic step.
type dying struct {
	registry.Registry
	before func()
}

func (d dying) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	d.before()
	return d.Registry.Open(ctx, q)
}

func TestR_EPOCH_a_registry_that_forgot_voids_proofs_and_makes_sessions_reconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("abc", "alice", "bob", "carol")
		a.leaveProof("bob")
		carol := a.open("carol")
		carol.drain()
		w.reg.Forget()
		w.appendDead("alice", chat, "k")
		want(t, "bob, whose proof was forgotten",
			messagesOf(a.open("bob").drain()), "message abc 1")
		time.Sleep(time.Minute)
		want(t, "carol, whose lease was forgotten", messagesOf(carol.drain()), "message abc 1")
	})
}

// TestR_EPOCH_a_proof_of_another_incarnation_is_not_believed: a registry that was reset may still
// hold an old proof.
func TestR_EPOCH_a_proof_of_another_incarnation_is_not_believed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		old, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		w.reg.Forget()
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = restored{cfg.Registry, old} })
		chat := a.chat("ab", "alice", "bob")
		w.appendDead("alice", chat, "k")
		want(t, "bob", messagesOf(a.open("bob").drain()), "message ab 1")
	})
}

// restored is a registry whose proofs are from an earlier incarnation.
type restored struct {
	registry.Registry
	old registry.Epoch
}

func (r restored) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	opened, err := r.Registry.Open(ctx, q)
	opened.Proof = &r.old
	return opened, err
}

func TestLease_a_refresh_that_finds_it_gone_is_an_open(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		bob := a.open("bob")
		bob.drain()
		leases := w.leases("bob")
		if err := w.reg.Close(w.ctx, leases[0], nil); err != nil {
			t.Fatal(err)
		}
		a.send("alice", chat)
		w.wantRows("the sender found no lease", "bob", row("bob", chat, 1))
		time.Sleep(30 * time.Second)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
		if diff := cmp.Diff(leases, w.leases("bob")); diff != "" {
			t.Errorf("leases (-want +got):\n%s", diff)
		}
		bob.Ack(server.Ack{Chat: chat, Acked: 1})
		settle()
		w.wantRows("the session knows that a row may stand", "bob")
	})
}

func TestR_CLEAR_an_acknowledgement_trims_the_row_to_what_it_leaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		a.send("alice", chat)
		// The row of the first message stands, so the second send marks none.
		w.before.set(once("Clear", nil, func() { a.send("alice", chat) }))
		a.ack("bob", chat, 1, 0)
		w.wantRows("acknowledged while a second message was stored", "bob", row("bob", chat, 2))
		a.ack("bob", chat, 2, 0)
		w.wantRows("all acknowledged", "bob")
	})
}

// TestR_WAKESET_a_session_that_never_read_marks_no_more_than_it_was_notified_of: a session was
// notified, but never read its user's watermark. It marks from the notified sequence on. A row at
// the beginning of the chat would send everything again.
func TestR_WAKESET_a_session_that_never_read_marks_no_more_than_it_was_notified_of(t *testing.T) {
	ends := map[string]func(*client){
		"closed":                func(c *client) { c.goodbye() },
		"not read within grace": func(c *client) { c.Detach(); time.Sleep(30 * time.Second) },
		"expired":               func(c *client) { c.Detach(); time.Sleep(2 * time.Minute) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newCluster(t)
				first := w.node("first")
				chat := first.chat("ab", "alice", "bob")
				for range 50 {
					first.send("alice", chat)
				}
				first.ack("bob", chat, 50, 0)
				a := w.node("a") // knows no watermark
				bob := a.open("bob")
				bob.drain()
				if _, err := a.sendKey("alice", chat, "news", "news"); err != nil {
					t.Fatal(err)
				}
				end(bob)
				w.wantRows(name, "bob", row("bob", chat, 51))
				want(t, "the next open", messagesOf(a.open("bob").drain()), "message ab 51")
			})
		})
	}
}
