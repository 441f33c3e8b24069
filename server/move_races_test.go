package server_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
)

// A notification with a row arrives at a node that has given the session away since the look-up.
func TestMove_R_FOLLOW_a_notification_follows_the_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.bob.Ack(server.Ack{Chat: m.chat, Acked: 1})
		settle()
		m.bob.drain()
		old := m.leases("bob")
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		bob := m.b.open("bob", resuming(session, last))
		bob.drain()
		bob.Detach()
		moved := false
		m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil && e.Notification.Marked && to.ID == "b" && !moved {
				moved = true
				bob = m.a.open("bob", resuming(session, bob.last))
			}
			return send()
		})
		m.appendDead("alice", m.chat, "k")
		err := bus.PublishOne(m.ctx, m.bus, registry.Node{ID: old[0].Node, Boot: old[0].Boot},
			bus.Event{
				To: old, Notification: &bus.Notification{Chat: m.chat, Sequence: 2},
			})
		if err != nil {
			t.Fatal(err)
		}
		settle()
		if got := messagesOf(bob.drain()); !moved || !slices.Contains(got, "message ab 2") {
			t.Errorf("moved back: %v; bob has got %v, want the second message", moved, got)
		}
	})
}

// Two nodes request a session, the second while it is on its way to the first. The first learns of
// that too late, keeps the session, and soon has its lease again.
func TestMove_of_a_session_that_is_asked_for_on_its_way(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		var second sync.WaitGroup
		claimed := false
		m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if e.Transfer != nil && !claimed {
				claimed = true
				second.Go(func() {
					_, err := c.Open(m.ctx, openRequest{
						User:    "bob",
						Session: session,
						After:   last,
						Poll:    true,
					})
					wantCode(t, "a poll on c", err, tidemark.Gone)
				})
				time.Sleep(100 * time.Millisecond)
			}
			if e.Request != nil && to.ID == "b" {
				second.Go(func() { time.Sleep(2 * time.Second); _ = send() })
				return nil
			}
			return send()
		})
		bob := m.b.open("bob", resuming(session, last))
		want(t, "bob on b", bob.drain()[:1], "open resumed=true")
		second.Wait()
		m.a.send("alice", m.chat)
		m.a.ack("bob", m.chat, 2, 0) // by another device
		time.Sleep(3 * time.Second)
		want(t, "bob, whose lease was lost for a moment", messagesOf(bob.drain()), "message ab 2")
	})
}

// A late Request is not served: its node has given up, and the client is back at the first node.
func TestMove_R_HOLDS_a_late_request_takes_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		var late sync.WaitGroup
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Request != nil {
				late.Go(func() { time.Sleep(30 * time.Second); _ = send() })
				return nil
			}
			return send()
		})
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		_, err := m.b.Open(m.ctx, openRequest{
			User:    "bob",
			Session: session,
			After:   last,
			Poll:    true,
		})
		wantCode(t, "a poll on b", err, tidemark.Gone)
		bob := m.a.open("bob", resuming(session, last))
		bob.drain()
		late.Wait()
		settle()
		m.a.send("alice", m.chat)
		want(t, "bob on a, after the claim has come", messagesOf(bob.drain()), "message ab 2")
		m.publish.clear()
	})
}

// While the registry does not answer, a poll at another node does not get Gone. Otherwise each poll
// would open a session, and nobody would read the one that exists.
func TestMove_a_poll_waits_for_the_registry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		w := newCluster(t)
		m := &moving{cluster: w, a: w.node("a"), b: w.node("b", w.cutOffBy(&down))}
		m.chat = m.a.chat("ab", "alice", "bob")
		m.bob = m.a.open("bob")
		m.bob.drain()
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		down.Store(true)
		m.publish.set(func(registry.Node, bus.Event, func() error) error { return errDown })
		poll := openRequest{User: "bob", Session: session, After: last, Poll: true}
		_, err := m.b.Open(m.ctx, poll)
		wantCode(t, "a poll on b", err, tidemark.Unavailable)
		down.Store(false)
		m.publish.clear()
		m.a.send("alice", m.chat)
		bob := m.b.open("bob", func(r *openRequest) { *r = poll })
		want(t, "bob on b, later", messagesOf(bob.drain()), "message ab 1")
	})
}

// While the session is moving, a node dies and all other sessions reconcile.
func TestMove_R_EPOCH_an_epoch_that_is_noticed_on_the_way_counts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		m := &moving{cluster: w, a: w.node("a")}
		time.Sleep(1500 * time.Millisecond) // b's heartbeats fall between those of a
		m.b = w.node("b")
		time.Sleep(30 * time.Second)
		m.chat = m.a.chat("ab", "alice", "bob")
		m.bob = m.a.open("bob", onDevice("phone"))
		m.bob.drain()
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Request != nil {
				m.ghost("c", time.Millisecond)
				m.appendDead("alice", m.chat, "k")
				time.Sleep(900 * time.Millisecond)
			}
			return send()
		})
		time.Sleep(2500 * time.Millisecond) // a heartbeat of b falls into the move, and none of a
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		bob := m.b.open("bob", resuming(session, last))
		m.publish.clear()
		time.Sleep(15 * time.Second)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

// A user resumes late and at another node. Their new session reads the rows: the proof is not
// consumed by the session that has ended.
func TestMove_R_PROOF_of_an_ended_session_is_kept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		session, last := m.bob.Session(), m.bob.last
		m.bob.goodbye()
		before := m.b.Counters()["comparisons_total"]
		lines := m.b.open("bob", resuming(session, last), onDevice("phone")).drain()
		want(t, "what the client gets", lines[:2], "open resumed=false", "reset unknown_session")
		if n := m.b.Counters()["comparisons_total"] - before; n != 0 {
			t.Errorf("%d comparisons, want none", n)
		}
	})
}

// slowRegistry delays Open and Close.
type slowRegistry struct {
	*registrymemory.Registry
	by *atomic.Int64
}

func (r slowRegistry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	time.Sleep(time.Duration(r.by.Load()))
	return r.Registry.Open(ctx, q)
}

func (r slowRegistry) Close(ctx context.Context, l registry.Lease, proof *registry.Epoch) error {
	time.Sleep(time.Duration(r.by.Load()))
	return r.Registry.Close(ctx, l, proof)
}

// A node continues its heartbeats while it acquires thousands of lost leases again, and a stop
// releases them in time.
func TestLease_thousands_are_taken_again_beside_the_heartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		var by atomic.Int64
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = slowRegistry{w.reg, &by} })
		w.node("b")
		const users = 2000
		for i := range users {
			a.open(tidemark.UserID(fmt.Sprint("u", i)))
		}
		time.Sleep(30 * time.Second)
		by.Store(int64(10 * time.Millisecond))
		w.reg.Forget()
		time.Sleep(2 * time.Second)
		before, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // half of what they take one after the other
		held := 0
		for i := range users {
			held += len(w.leases(tidemark.UserID(fmt.Sprint("u", i))))
		}
		time.Sleep(50 * time.Second)
		if after, err := w.reg.Epoch(w.ctx); err != nil || after != before || held != users {
			t.Errorf("epoch %v, %v, want %v; %d leases, want %d", after, err, before, held, users)
		}
		if err := a.Stop(w.ctx); err != nil {
			t.Error(err)
		}
		if after, err := w.reg.Epoch(w.ctx); err != nil || after != before {
			t.Errorf("after a stop: epoch %v, %v, want %v", after, err, before)
		}
	})
}

// A session is in the table before its lease is granted. A heartbeat at that moment must not count
// it as replaced.
func TestLease_of_a_session_that_opens_is_not_missed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var by atomic.Int64
		a := w.node("a")
		b := w.node("b", func(cfg *server.Config) { cfg.Registry = slowRegistry{w.reg, &by} })
		a.open("bob", onDevice("phone")).Detach()
		by.Store(int64(40 * time.Second))
		bob := b.open("bob", onDevice("phone"))
		by.Store(0)
		want(t, "bob on b", bob.drain(), "open resumed=false", "caught_up")
	})
}

// After the registry has lost its data, a device's older session does not take the newer one's
// lease.
func TestLease_of_a_newer_session_is_not_taken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		older := a.open("bob", onDevice("phone"))
		older.drain()
		w.reg.Forget()
		newer := b.open("bob", onDevice("phone"))
		time.Sleep(30 * time.Second)
		newer.drain()
		if leases := w.leases("bob"); len(leases) != 1 || leases[0].Session != newer.Session() {
			t.Errorf("leases %v, want that of the newer session", leases)
		}
		_, err := older.Next(w.ctx, nil, false)
		wantCode(t, "the older session", err, tidemark.Replaced)
	})
}

// A stale replica says that a session is where it was before it moved. That node does not have it,
// so nobody would be notified until the lease expires. The node that has the session therefore
// takes the lease back.
func TestLease_that_a_stale_registry_gives_to_another_node_is_taken_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		stale := m.leases("bob")[0]
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		bob := m.b.open("bob", resuming(session, last))
		bob.drain()
		if _, err := m.reg.Open(
			m.ctx, registry.LeaseRequest{Lease: stale, TTL: time.Hour},
		); err != nil {
			t.Fatal(err)
		}
		m.ghost("dead", time.Millisecond) // a replica is a new incarnation
		m.a.send("alice", m.chat)
		time.Sleep(15 * time.Second)
		want(t, "bob on b, after the failover", messagesOf(bob.drain()), "message ab 2")
		m.a.send("alice", m.chat)
		settle()
		want(t, "bob on b, later", messagesOf(bob.drain()), "message ab 3")
	})
}

// A node without a connection to the registry removes a member, and cannot publish that.
func TestMembership_what_is_remembered_ends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var down atomic.Bool
		a := w.node("a", w.cutOffBy(&down))
		b := w.node("b")
		time.Sleep(30 * time.Second)
		chat := a.chat("abc", "alice", "bob", "carol")
		down.Store(true)
		w.publish.set(func(to registry.Node, _ bus.Event, send func() error) error {
			if to.ID == "b" {
				return errDown
			}
			return send()
		})
		time.Sleep(30 * time.Second)
		if _, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat); err != nil {
			t.Fatal(err)
		}
		a.remove(chat, "carol")
		time.Sleep(time.Minute)
		_, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat)
		wantCode(t, "carol on b", err, tidemark.NotMember)
		down.Store(false) // so that the node leaves
	})
}

// If a node is not subscribed, it has died, and its sessions reconcile elsewhere. Its notifications
// are not retried every second.
func TestRetry_sends_nothing_to_dead_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		n := w.ghost("dead", time.Hour)
		lease := registry.Lease{
			User:    "bob",
			Device:  "phone",
			Node:    n.ID,
			Boot:    n.Boot,
			Session: "s",
		}
		if _, err := w.reg.Open(
			w.ctx, registry.LeaseRequest{Lease: lease, TTL: time.Hour},
		); err != nil {
			t.Fatal(err)
		}
		var publications atomic.Int64
		w.publish.set(func(to registry.Node, _ bus.Event, send func() error) error {
			if to.ID == "dead" {
				publications.Add(1)
			}
			return send()
		})
		a.send("alice", chat)
		time.Sleep(time.Minute)
		w.wantRows("bob's node is dead", "bob", row("bob", chat, 1))
		if n := publications.Load(); n > 4 {
			t.Errorf("%d publications for a message and its tick, want at most 4", n)
		}
	})
}

// Cursors that are given while the session is moving reach it.
func TestMove_sync_reaches_a_session_on_its_way(t *testing.T) {
	for _, at := range []tidemark.NodeID{"a", "b", "c"} {
		t.Run("asked at "+string(at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMoving(t)
				node := map[tidemark.NodeID]*core{"a": m.a, "b": m.b, "c": m.node("c")}[at]
				var syncing sync.WaitGroup
				begun := false
				m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
					if e.Transfer != nil && !begun { // given, and not yet here
						begun = true
						syncing.Go(func() {
							_, err := node.Sync(m.ctx, "bob", server.SyncRequest{
								Session: m.bob.Session(),
								Cursors: []server.Cursor{{Chat: m.chat, Acked: 0}},
								Limit:   10,
							})
							if err != nil {
								t.Errorf("a sync of a session on its way: %v", err)
							}
						})
						time.Sleep(200 * time.Millisecond)
					}
					return send()
				})
				m.bob.Detach()
				bob := m.b.open("bob", resuming(m.bob.Session(), m.bob.last))
				syncing.Wait()
				want(t, "behind the cursor, on b", messagesOf(bob.drain()), "message ab 1")
			})
		})
	}
}

// Status updates that arrive while the session is moving are not sent before the baseline is read.
func TestStatus_tick_monotone_while_a_session_moves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.a.send("alice", m.chat)
		settle()
		want(t, "on a", m.bob.drain(), "message ab 2")
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Request != nil {
				late := tidemark.StatusUpdate{
					ChatID:   m.chat,
					UserID:   "alice",
					Boundary: tidemark.Boundary{Acked: 1},
				}
				lease := m.leases("bob")[0]
				err := bus.PublishOne(m.ctx, m.bus, lease.Holder(),
					bus.Event{To: []registry.Lease{lease}, Status: &bus.Status{
						Updates: []tidemark.StatusUpdate{late}, Version: 1,
					}})
				if err != nil {
					t.Error(err)
				}
			}
			return send()
		})
		m.bob.Detach()
		bob := m.b.open("bob", resuming(m.bob.Session(), m.bob.last))
		if got := bob.drain(); slices.Contains(got, "status ab alice 1 0") ||
			got[0] != "open resumed=true" {
			t.Errorf("on b bob is told %v, after 2 2", got)
		}
	})
}

// narrowRegistry takes too long to look up many users at once.
type narrowRegistry struct {
	*registrymemory.Registry
	most *atomic.Int64
}

func (r narrowRegistry) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	if int64(len(users)) > r.most.Load() {
		return nil, errDown
	}
	return r.Registry.Lookup(ctx, users)
}

// After an outage of the registry, many notifications are retried. No look-up has more users than
// that of a send.
func TestRetry_notifications_are_looked_up_in_parts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		var most atomic.Int64
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = narrowRegistry{w.reg, &most} })
		b := w.node("b")
		bob := b.open("bob")
		bob.drain()
		users := []tidemark.UserID{"alice"}
		for i := range 300 {
			users = append(users, tidemark.UserID(fmt.Sprint("u", i)))
		}
		for i := range 20 {
			a.send("alice", a.chat(tidemark.ChatID(fmt.Sprint("c", i)), users...))
		}
		a.send("alice", a.chat("d", "alice", "bob"))
		most.Store(4096)
		time.Sleep(20 * time.Second)
		want(t, "bob", messagesOf(bob.drain()), "message d 1")
	})
}
