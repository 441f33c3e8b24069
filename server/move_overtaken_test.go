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
)

// Two connections resume at one node, and a third one at another node overtakes the first. The
// second, which waits for the same session, must not replace the third one's session by a new one.
func TestMove_of_three_requests_who_waits_is_overtaken_too(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		var second sync.WaitGroup
		begin, opened := m.overtake(c)
		m.onFirst(isRequest, func() {
			second.Go(func() { m.wantOvertaken(m.b) })
			begin()
		})
		m.wantOvertaken(m.b)
		second.Wait()
		bob := opened()
		want(t, "bob on c", bob.drain()[:1], "open resumed=true")
		m.wantHeld(c, bob, "message ab 2")
	})
}

// A third connection resumes at the node of the first one, which the second has overtaken. It gets
// an error at once, and the second gets the session. When the client connects again, the session
// moves.
func TestMove_of_three_requests_that_go_round(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		begin, opened := m.overtake(c)
		m.onFirst(isRequest, func() {
			begin()
			began := time.Now()
			ctx, cancel := context.WithTimeout(m.ctx, 3*time.Second)
			defer cancel()
			_, err := m.b.Open(ctx, openRequest{
				User: "bob", Device: "phone", Session: m.bob.Session(), After: m.bob.last,
			})
			wantCode(t, "the third connection, on b", err, tidemark.Unavailable)
			if took := time.Since(began); took > 0 {
				t.Errorf("it is told so after %v, want at once", took)
			}
		})
		m.wantOvertaken(m.b)
		bob := opened()
		want(t, "bob on c", bob.drain()[:1], "open resumed=true")
		m.wantHeld(c, bob, "message ab 2")
		time.Sleep(2 * time.Second) // the arrival on b has ended
		back := m.b.open("bob", resuming(bob.Session(), bob.last), onDevice("phone"))
		want(t, "bob, back on b", back.drain()[:1], "open resumed=true")
		m.wantHeld(m.b, back, "message ab 3")
	})
}

// A session's lease is lost before the first resume takes it. A lease that does not exist is not
// taken over, because that would hide the gap. The device gets a new session, which reconciles.
func TestMove_of_two_requests_take_nothing_without_a_lease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		gate := make(chan struct{})
		var next atomic.Pointer[chan struct{}]
		m := &moving{
			cluster: w,
			a:       w.node("a"),
			b: w.node("b", func(cfg *server.Config) {
				cfg.Registry = gatedRegistry{w.reg, &next}
			}),
		}
		c := m.node("c")
		time.Sleep(30 * time.Second)
		m.chat = m.a.chat("ab", "alice", "bob")
		m.bob = m.a.open("bob", onDevice("phone"))
		m.bob.drain()
		m.bob.Detach()
		next.Store(&gate)
		resume := func(at *core) {
			_, err := at.Open(m.ctx, openRequest{
				User:    "bob",
				Device:  "phone",
				Session: m.bob.Session(),
				After:   m.bob.last,
				Poll:    true,
			})
			wantCode(t, "a resume without a lease", err, tidemark.Gone)
		}
		var first sync.WaitGroup
		first.Go(func() { resume(m.b) })
		synctest.Wait()
		// As after an arrival that has ended.
		if err := m.reg.Close(m.ctx, m.leases("bob")[0], nil); err != nil {
			t.Fatal(err)
		}
		m.a.send("alice", m.chat)
		close(gate)
		first.Wait()
		resume(c)
		if leases := m.leases("bob"); len(leases) != 0 {
			t.Errorf("leases %v, want none", leases)
		}
		want(t, "a new session",
			messagesOf(c.open("bob", onDevice("phone")).drain()), "message ab 1")
	})
}

// Nobody gets a session whose node does not answer. The first connection may be the one that the
// client still has, so the client may connect again.
func TestMove_of_two_requests_that_nobody_serves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		var second sync.WaitGroup
		var claims atomic.Int64
		m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if e.Request != nil && claims.Add(1) == 1 {
				time.Sleep(100 * time.Millisecond)
				second.Go(func() { _, _ = m.resume(c) })
				time.Sleep(100 * time.Millisecond)
			}
			if e.Request != nil && to.ID == "a" {
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
