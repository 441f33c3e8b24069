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

// A session has moved, and then loses its lease without a new epoch. It reads what another device
// has acknowledged in the meantime, as any session does.
func TestLease_of_a_session_that_has_moved_is_lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		phone := m.b.open("bob", resuming(session, last))
		phone.drain()
		// As after an arrival that was given up.
		if err := m.reg.Close(m.ctx, m.leases("bob")[0], nil); err != nil {
			t.Fatal(err)
		}
		m.a.send("alice", m.chat)
		m.a.ack("bob", m.chat, 2, 0) // by another device
		time.Sleep(20 * time.Second)
		want(t, "the phone, which has its lease again", messagesOf(phone.drain()), "message ab 2")
	})
}

// lateRegistry executes the next Open later, and returns at once that its outcome is unknown.
type lateRegistry struct {
	*registrymemory.Registry
	by *atomic.Int64
}

func (r lateRegistry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	by := time.Duration(r.by.Swap(-1))
	if by < 0 {
		return r.Registry.Open(ctx, q)
	}
	time.AfterFunc(by, func() { _, _ = r.Registry.Open(ctx, q) })
	return registry.Opened{}, errDown
}

func TestLease_that_was_taken_late_lets_the_session_look_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var by atomic.Int64
		by.Store(-1)
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = lateRegistry{w.reg, &by} })
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		time.Sleep(31 * time.Second) // between two heartbeats
		by.Store(int64(800 * time.Millisecond))
		bob := a.open("bob")
		want(t, "bob, without a lease", bob.drain(), "open resumed=false", "caught_up")
		time.Sleep(400 * time.Millisecond)
		b.send("alice", chat)
		if n := len(w.leases("bob")); n != 0 {
			t.Fatalf("%d leases, want none yet", n)
		}
		time.Sleep(20 * time.Second)
		want(t, "bob, whose lease was taken after the message",
			messagesOf(bob.drain()), "message ab 1")
	})
}

func TestLease_of_unknown_outcome_is_released(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var by atomic.Int64
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = lateRegistry{w.reg, &by} })
		bob := a.open("bob")
		bob.drain()
		bob.goodbye()
		synctest.Wait()
		if leases := w.leases("bob"); len(leases) != 0 {
			t.Errorf("leases %v of a session that has ended", leases)
		}
	})
}

// gatedRegistry holds the next Open until its gate is closed, if it has a gate.
type gatedRegistry struct {
	*registrymemory.Registry
	gate *atomic.Pointer[chan struct{}]
}

func (r gatedRegistry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	if gate := r.gate.Swap(nil); gate != nil {
		<-*gate
	}
	return r.Registry.Open(ctx, q)
}

// The lease of a device's older session is granted after the newer session has its own.
func TestLease_that_is_taken_after_the_end_of_its_session_is_given_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		gate := make(chan struct{})
		var next atomic.Pointer[chan struct{}]
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = gatedRegistry{w.reg, &next} })
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		time.Sleep(30 * time.Second)
		next.Store(&gate)
		var opening sync.WaitGroup
		opening.Go(func() { a.open("bob", onDevice("phone")) })
		synctest.Wait()
		bob := a.open("bob", onDevice("phone"))
		bob.drain()
		close(gate)
		opening.Wait()
		time.Sleep(3 * time.Second)
		if leases := w.leases("bob"); len(leases) != 1 || leases[0].Session != bob.Session() {
			t.Errorf("leases %v, want that of the newer session", leases)
		}
		b.send("alice", chat)
		time.Sleep(time.Minute)
		want(t, "bob", messagesOf(bob.drain()), "message ab 1")
	})
}

// While a session's lost lease is acquired again, the session moves to another node.
func TestLease_of_a_session_that_moves_while_it_is_taken_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		gate := make(chan struct{})
		var next atomic.Pointer[chan struct{}]
		a := w.node("a", func(cfg *server.Config) { cfg.Registry = gatedRegistry{w.reg, &next} })
		b := w.node("b")
		chat := a.chat("ab", "alice", "bob")
		time.Sleep(30 * time.Second)
		bob := a.open("bob", onDevice("phone"))
		bob.drain()
		lease := w.leases("bob")[0]
		if err := w.reg.Close(w.ctx, lease, nil); err != nil {
			t.Fatal(err)
		}
		next.Store(&gate)
		// The lease is granted, but the answer comes late or not at all.
		time.Sleep(25 * time.Second)
		if _, err := w.reg.Open(
			w.ctx, registry.LeaseRequest{Lease: lease, TTL: time.Minute},
		); err != nil {
			t.Fatal(err)
		}
		bob.Detach()
		bob = b.open("bob", resuming(bob.Session(), bob.last))
		bob.drain()
		close(gate)
		settle()
		if leases := w.leases("bob"); slices.ContainsFunc(leases, func(l registry.Lease) bool {
			return l.Node == "a"
		}) {
			t.Errorf("leases %v, of which a has no session", leases)
		}
		a.send("alice", chat)
		time.Sleep(20 * time.Second)
		want(t, "bob on b", messagesOf(bob.drain()), "message ab 1")
	})
}

// A device opens a newer session while its older one is moving.
func TestMove_of_a_session_whose_device_opens_a_newer_one(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		gate := make(chan struct{})
		var next atomic.Pointer[chan struct{}]
		c := m.node("c", func(cfg *server.Config) { cfg.Registry = gatedRegistry{m.reg, &next} })
		next.Store(&gate)
		m.bob.Detach()
		var moving sync.WaitGroup
		moving.Go(func() {
			_, err := c.Open(m.ctx, openRequest{
				User:    "bob",
				Session: m.bob.Session(),
				After:   m.bob.last,
				Poll:    true,
			})
			wantCode(t, "the older session", err, tidemark.Gone)
		})
		synctest.Wait()
		bob := c.open("bob", onDevice("phone"))
		bob.drain()
		close(gate)
		moving.Wait()
		for range 30 {
			if leases := m.leases("bob"); len(leases) != 1 || leases[0].Session != bob.Session() {
				t.Fatalf("leases %v, want that of the newer session all the time", leases)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		bob.drain()
	})
}

// A session with too many chats does not move, and its client can resume it where it is.
func TestLease_of_a_session_that_is_too_large_to_move_is_taken_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a, b := w.node("a"), w.node("b")
		bob := a.open("bob")
		for i := range 4097 {
			a.send("alice", a.chat(tidemark.ChatID(fmt.Sprint("c", i)), "alice", "bob", "carol"))
		}
		bob.drain()
		bob.Detach()
		time.Sleep(time.Second)
		_, err := b.Open(w.ctx, openRequest{
			User:    "bob",
			Session: bob.Session(),
			After:   bob.last,
			Poll:    true,
		})
		wantCode(t, "a poll on b", err, tidemark.Gone)
		bob = a.open("bob", resuming(bob.Session(), bob.last))
		bob.drain()
		time.Sleep(3 * time.Second)
		b.send("alice", "c7")
		settle()
		want(t, "bob on a", messagesOf(bob.drain()), "message c7 2")
	})
}

// A lost lease is acquired again at once, even while another node has time to request a session.
func TestLease_that_is_lost_does_not_wait_for_one_that_may_move(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a") // heartbeats every three seconds from now on
		bob, eve := a.open("bob"), a.open("eve")
		bob.drain()
		eve.drain()
		time.Sleep(30500 * time.Millisecond)
		elsewhere := w.ghost("elsewhere", time.Hour)
		w.ghost("dead", time.Millisecond)
		// 33.5 s: a heartbeat has seen the death; all leases are refreshed at 34 s.
		time.Sleep(3 * time.Second)
		lease := w.leases("bob")[0]
		lease.Node, lease.Boot = elsewhere.ID, elsewhere.Boot
		if _, err := w.reg.Open(
			w.ctx, registry.LeaseRequest{Lease: lease, TTL: time.Hour},
		); err != nil {
			t.Fatal(err)
		}
		time.Sleep(600 * time.Millisecond)
		own := w.leases("eve")[0]
		if err := w.reg.Close(w.ctx, own, nil); err != nil {
			t.Fatal(err)
		}
		late := bus.Event{
			Request: &bus.Request{ID: "late", Session: eve.Session(), User: "eve", To: elsewhere},
		}
		if err := bus.PublishOne(w.ctx, w.bus, own.Holder(), late); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		if leases := w.leases("bob"); len(leases) != 1 || leases[0].Node != "elsewhere" {
			t.Errorf("leases %v of bob, want that of the other node", leases)
		}
		if leases := w.leases("eve"); len(leases) != 1 {
			t.Errorf("leases %v of eve, want hers", leases)
		}
		time.Sleep(time.Second)
		if leases := w.leases("bob"); len(leases) != 1 || leases[0].Node != "a" {
			t.Errorf("leases %v of bob, want the one that a has taken back", leases)
		}
	})
}
