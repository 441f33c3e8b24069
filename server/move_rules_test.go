package server_test

import (
	"context"
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

// steppedRegistry calls a function once, before or after the next call of a method.
type steppedRegistry struct {
	*registrymemory.Registry
	*steps
}

// steps has the functions of a steppedRegistry.
type steps struct {
	beforeClose, beforeLookup, afterLookup, afterOpen atomic.Pointer[func()]
}

func step(at *atomic.Pointer[func()]) {
	if f := at.Swap(nil); f != nil {
		(*f)()
	}
}

func (r steppedRegistry) Open(
	ctx context.Context, q registry.LeaseRequest,
) (registry.Opened, error) {
	opened, err := r.Registry.Open(ctx, q)
	step(&r.afterOpen)
	return opened, err
}

func (r steppedRegistry) Close(ctx context.Context, l registry.Lease, proof *registry.Epoch) error {
	step(&r.beforeClose)
	return r.Registry.Close(ctx, l, proof)
}

func (r steppedRegistry) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	step(&r.beforeLookup)
	leases, err := r.Registry.Lookup(ctx, users)
	step(&r.afterLookup)
	return leases, err
}

// newStepped is newMoving with steps for node b.
func newStepped(t *testing.T) (m *moving, b *steps) {
	t.Helper()
	w, b := newCluster(t), &steps{}
	m = &moving{cluster: w, a: w.node("a"), b: w.node("b", func(cfg *server.Config) {
		cfg.Registry = steppedRegistry{w.reg, b}
	})}
	time.Sleep(30 * time.Second)
	m.chat = m.a.chat("ab", "alice", "bob")
	m.bob = m.a.open("bob", onDevice("phone"))
	m.bob.drain()
	return m, b
}

// notifyMarked publishes to a node a notification with a row.
func (m *moving) notifyMarked(lease registry.Lease, sequence tidemark.Sequence) {
	m.t.Helper()
	err := bus.PublishOne(m.ctx, m.bus, lease.Holder(), bus.Event{
		To:           []registry.Lease{lease},
		Notification: &bus.Notification{Chat: m.chat, Sequence: sequence, Marked: true},
	})
	if err != nil {
		m.t.Error(err)
	}
}

// move resumes bob's session at a node. The test reads what it sends.
func (m *moving) move(bob *client, to *core) *client {
	m.t.Helper()
	bob.Detach()
	back := to.open("bob", resuming(bob.Session(), bob.last), onDevice("phone"))
	if back.Session() != bob.Session() {
		m.t.Errorf("bob on %s has a new session", to.node)
	}
	back.last = bob.last
	return back
}

// b has taken the lease, but does not know yet from which node. Then c takes it from b and sends b
// a Request. The Request waits for the registry's answer, and is passed on to a.
func TestMove_R_PASS_a_request_that_comes_before_the_registry_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newStepped(t)
		c := m.node("c")
		m.bob.Detach()
		begin, opened := m.overtake(c)
		b.afterOpen.Store(&begin)
		m.wantOvertaken(m.b)
		bob := opened()
		want(t, "bob on c", bob.drain()[:1], "open resumed=true")
		m.wantHeld(c, bob, "message ab 1")
	})
}

// Two nodes where the session is arriving have sent each other Requests. A Request that both pass
// on ends after bus.MaxHops.
func TestMove_R_PASS_a_request_does_not_go_round_for_ever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c, d := m.node("c"), m.node("d")
		m.bob.Detach()
		var sent atomic.Int64
		m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			switch {
			case e.Request == nil:
				return send()
			case e.Request.To.ID == "d" && sent.Add(1) > 20, to.ID == "a":
				return nil
			}
			return send()
		})
		var all sync.WaitGroup
		resume := func(at *core) { all.Go(func() { _, _ = m.resume(at) }) }
		resume(m.b) // requests from a
		time.Sleep(500 * time.Millisecond)
		resume(c) // requests from b
		time.Sleep(600 * time.Millisecond)
		resume(m.b) // requests from c
		time.Sleep(100 * time.Millisecond)
		resume(d) // requests from b
		all.Wait()
		if n := sent.Load(); n != 4 {
			t.Errorf("the Request was published %d times, want 4", n)
		}
		m.publish.clear()
	})
}

// A node where the session is arriving gets a notification with a row. When its arrival ends, the
// session is elsewhere and is notified there.
func TestMove_R_FOLLOW_what_an_arrival_took_reaches_the_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		begin, opened := m.overtake(c)
		m.onFirst(isRequest, func() {
			m.appendDead("alice", m.chat, "k")
			m.notifyMarked(m.leases("bob")[0], 2)
			begin()
		})
		m.wantOvertaken(m.b)
		bob := opened()
		time.Sleep(2 * time.Second)
		want(t, "bob on c", messagesOf(bob.drain()), "message ab 2")
	})
}

// A notification with a row arrives at b, which the session has left. Before b looks it up, the
// session comes back. In the second case, it has left again when the registry answers.
func TestMove_R_FOLLOW_of_a_session_that_comes_back(t *testing.T) {
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, b := newStepped(t)
			bob := m.move(m.bob, m.b)
			lease := m.leases("bob")[0]
			bob = m.move(bob, m.a)
			m.appendDead("alice", m.chat, "k")
			back := func() { bob = m.move(bob, m.b) }
			away := func() { bob = m.move(bob, m.a) }
			b.beforeLookup.Store(&back)
			if gone {
				goes := func() { b.afterLookup.Store(&away) }
				both := func() { back(); goes() }
				b.beforeLookup.Store(&both)
			}
			m.notifyMarked(lease, 1)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			want(t, "bob", messagesOf(bob.drain()), "message ab 1")
		})
	}
}

// Sessions of the user's other devices were notified of the row or have read it. They are not
// notified again because one device's session is gone.
func TestMove_R_FOLLOW_other_sessions_are_not_notified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		tablet := m.b.open("bob", onDevice("tablet"))
		tablet.drain()
		lease := m.leases("bob")[0]
		m.bob.goodbye()
		var told atomic.Int64
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Notification != nil {
				told.Add(1)
			}
			return send()
		})
		m.notifyMarked(lease, 1)
		time.Sleep(5 * time.Second)
		if n := told.Load(); n != 0 {
			t.Errorf("%d notifications, want none", n)
		}
	})
}

// An arrival on b was overtaken, and ends while the client resumes at b again. b has not released
// its lease yet, and that of the next arrival is equal.
func TestMove_R_LEASEFIRST_an_arrival_leaves_after_its_lease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newStepped(t)
		c := m.node("c")
		m.bob.Detach()
		begin, opened := m.overtake(c)
		m.onFirst(isRequest, begin)
		m.wantOvertaken(m.b)
		bob := opened()
		var back *server.Connection
		var err error
		comes := func() { back, err = m.resume(m.b) }
		b.beforeClose.Store(&comes)
		time.Sleep(2 * time.Second) // the arrival on b ends
		synctest.Wait()
		if back != nil {
			t.Error("the session came to b while an earlier arrival had still to release its lease")
		}
		wantCode(t, "the client, back on b too early", err, tidemark.Unavailable)
		bob = m.move(bob, m.b)
		time.Sleep(time.Second)
		m.wantHeld(m.b, bob, "message ab 1")
	})
}

// A session is frozen after its lost lease was granted again, and before the session knows. There
// was a gap, so the session reconciles.
func TestMove_R_CONTINUITY_of_a_lease_that_is_taken_again(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newStepped(t)
		bob := m.move(m.bob, m.b)
		if err := m.reg.Close(m.ctx, m.leases("bob")[0], nil); err != nil {
			t.Fatal(err)
		}
		m.a.send("alice", m.chat)
		m.a.ack("bob", m.chat, 1, 0) // by another device
		moves := func() { bob = m.move(bob, m.a) }
		b.afterOpen.Store(&moves)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if leases := m.leases("bob"); len(leases) != 1 || leases[0].Node != "a" {
			t.Fatalf("leases %v, want one on a: the test shows nothing", leases)
		}
		want(t, "bob on a", messagesOf(bob.drain()), "message ab 1")
	})
}

// The client of an arrival that was overtaken does not return. The session ends with its resume
// window.
func TestMove_of_a_session_to_which_nobody_comes_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.bob.Detach()
		m.onFirst(isTransfer, func() {
			late := bus.Request{
				ID:      "late",
				Session: m.bob.Session(),
				User:    "bob",
				To:      m.ghost("elsewhere", time.Hour),
			}
			if err := bus.PublishOne(
				m.ctx, m.bus, m.leases("bob")[0].Holder(), bus.Event{Request: &late},
			); err != nil {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
		})
		_, err := m.resume(m.b)
		wantCode(t, "the connection on b", err, tidemark.Unavailable)
		settle()
		if n := m.b.Counters()["sessions"]; n != 1 {
			t.Errorf("%d sessions on b, want the one that has landed", n)
		}
		time.Sleep(2 * time.Minute)
		if n, leases := m.b.Counters()["sessions"], m.leases("bob"); n != 0 || len(leases) != 0 {
			t.Errorf("%d sessions on b and the leases %v after the resume window, want none",
				n, leases)
		}
		m.wantRows("nothing was acknowledged", "bob", row("bob", m.chat, 1))
	})
}

// A lease is lost, and the device opens a newer session before it is acquired again.
func TestLease_of_a_newer_session_that_opens_meanwhile_is_not_taken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, b := newStepped(t)
		older := m.move(m.bob, m.b)
		older.drain()
		if err := m.reg.Close(m.ctx, m.leases("bob")[0], nil); err != nil {
			t.Fatal(err)
		}
		var newer *client
		opens := func() { newer = m.a.open("bob", onDevice("phone")) }
		b.beforeLookup.Store(&opens)
		time.Sleep(30 * time.Second)
		synctest.Wait()
		newer.drain()
		if leases := m.leases("bob"); len(leases) != 1 || leases[0].Session != newer.Session() {
			t.Errorf("leases %v, want that of the newer session", leases)
		}
		_, err := older.Next(m.ctx, nil, false)
		wantCode(t, "the older session", err, tidemark.Replaced)
	})
}
