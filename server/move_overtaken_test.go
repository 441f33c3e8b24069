package server_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// resume asks a node for bob's session, as his phone.
func (m *moving) resume(at *core) (*server.Connection, error) {
	return at.Open(m.ctx, openRequest{User: "bob", Device: "phone", Session: m.bob.Session(), After: m.bob.last})
}

// Two connections come to one node, and a third one overtakes the first while the second waits for the same session: the second does not end the third one's session
// by a new one of its own.
func TestMove_of_three_claims_who_waits_is_overtaken_too(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		var bob *client
		var others sync.WaitGroup
		m.onFirst(func(e bus.Event) bool { return e.Claim != nil }, func() {
			others.Go(func() {
				_, err := m.resume(m.b)
				wantCode(t, "the second connection, on b", err, tidemark.Unavailable)
			})
			others.Go(func() { bob = c.open("bob", resuming(m.bob.Session(), m.bob.last), onDevice("phone")) })
			time.Sleep(100 * time.Millisecond)
		})
		_, err := m.resume(m.b)
		wantCode(t, "the first connection, on b", err, tidemark.Unavailable)
		others.Wait()
		want(t, "bob on c", bob.drain()[:1], "open resumed=true")
		m.wantHeld(c, bob, "message ab 2")
	})
}

// A third claim comes to the node of the first one, which was overtaken by the second: the two that are on their way do not wait for each other, whether the third has its
// lease already or not.
func TestMove_of_three_claims_that_go_round(t *testing.T) {
	for _, leased := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			gate := make(chan struct{})
			var next atomic.Pointer[chan struct{}]
			m := &moving{world: w, a: w.node("a"), b: w.node("b", func(cfg *server.Config) { cfg.Registry = gatedRegistry{w.reg, &next} })}
			c := m.node("c")
			m.chat = m.a.chat("ab", "alice", "bob")
			m.bob = m.a.open("bob", onDevice("phone"))
			m.bob.drain()
			time.Sleep(30 * time.Second)
			m.bob.Detach()
			var second sync.WaitGroup
			var claims atomic.Int64
			m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
				switch {
				case e.Claim == nil:
				case claims.Add(1) == 1: // the first, of b, to a
					second.Go(func() {
						_, err := m.resume(c)
						wantCode(t, "the second connection, on c", err, tidemark.Unavailable)
					})
					time.Sleep(100 * time.Millisecond)
				case to.ID == "b": // the second, of c
					time.Sleep(300 * time.Millisecond)
					if !leased {
						time.AfterFunc(100*time.Millisecond, func() { close(gate) })
					}
				}
				return send()
			})
			_, err := m.resume(m.b)
			wantCode(t, "the first connection, on b", err, tidemark.Unavailable)
			if !leased {
				next.Store(&gate)
			}
			bob := m.b.open("bob", resuming(m.bob.Session(), m.bob.last), onDevice("phone"))
			second.Wait()
			want(t, "bob on b", bob.drain()[:1], "open resumed=true")
			m.wantHeld(m.b, bob, "message ab 1")
		})
	}
}

// The lease of a session is lost before the first claim takes it, and something is sent meanwhile. The second claim takes the lease of the first, and gets the session from
// a node that knows of nothing: it looks.
func TestMove_of_two_claims_after_the_lease_was_lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		gate := make(chan struct{})
		var next atomic.Pointer[chan struct{}]
		m := &moving{world: w, a: w.node("a"), b: w.node("b", func(cfg *server.Config) { cfg.Registry = gatedRegistry{w.reg, &next} })}
		c := m.node("c")
		time.Sleep(30 * time.Second)
		m.chat = m.a.chat("ab", "alice", "bob")
		m.bob = m.a.open("bob", onDevice("phone"))
		m.bob.drain()
		m.bob.Detach()
		next.Store(&gate)
		var bob *client
		var all sync.WaitGroup
		m.onFirst(func(e bus.Event) bool { return e.Claim != nil }, func() {
			all.Go(func() { bob = c.open("bob", resuming(m.bob.Session(), m.bob.last), onDevice("phone")) })
			time.Sleep(100 * time.Millisecond)
		})
		all.Go(func() {
			_, err := m.resume(m.b)
			wantCode(t, "the older connection, on b", err, tidemark.Unavailable)
		})
		synctest.Wait()
		if err := m.reg.Close(m.ctx, m.leases("bob")[0], nil); err != nil { // a claim of another node that was given up
			t.Fatal(err)
		}
		m.a.send("alice", m.chat)
		close(gate)
		all.Wait()
		want(t, "bob on c", messagesOf(bob.drain()), "message ab 1")
	})
}

// Nobody gets a session whose owner does not answer. The connection that came first may be the one that its client still has: it is not told to stay away.
func TestMove_of_two_claims_that_nobody_answers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		var second sync.WaitGroup
		var claims atomic.Int64
		m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if e.Claim != nil && claims.Add(1) == 1 {
				time.Sleep(100 * time.Millisecond)
				second.Go(func() { _, _ = m.resume(c) })
				time.Sleep(100 * time.Millisecond)
			}
			if e.Claim != nil && to.ID == "a" {
				return nil
			}
			return send()
		})
		_, err := m.resume(m.b)
		wantCode(t, "the connection on b", err, tidemark.Unavailable)
		second.Wait()
		m.publish.clear()
	})
}
