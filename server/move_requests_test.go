package server_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// onFirst calls do before the first event of a kind is sent.
func (m *moving) onFirst(kind func(bus.Event) bool, do func()) {
	var done atomic.Bool
	m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
		if kind(e) && !done.Swap(true) {
			do()
		}
		return send()
	})
}

func isRequest(e bus.Event) bool  { return e.Request != nil }
func isTransfer(e bus.Event) bool { return e.Transfer != nil }

// resume resumes bob's session at a node, on the device "phone".
func (m *moving) resume(at *core) (*server.Connection, error) {
	return at.Open(m.ctx, openRequest{
		User:    "bob",
		Device:  "phone",
		Session: m.bob.Session(),
		After:   m.bob.last,
	})
}

// overtake returns two functions for a later connection, which gets bob's session. begin opens it
// at a node, and returns when that node has requested the session. opened waits for its client.
func (m *moving) overtake(at *core) (begin func(), opened func() *client) {
	clients := make(chan *client, 1)
	begin = func() {
		go func() {
			defer close(clients)
			clients <- at.open("bob", resuming(m.bob.Session(), m.bob.last), onDevice("phone"))
		}()
		time.Sleep(100 * time.Millisecond)
	}
	return begin, func() *client {
		c, ok := <-clients
		if !ok {
			m.t.FailNow()
		}
		return c
	}
}

// wantOvertaken resumes bob's session at a node, and fails the test unless a later connection gets
// the session.
func (m *moving) wantOvertaken(at *core) {
	m.t.Helper()
	_, err := m.resume(at)
	wantCode(m.t, "the earlier connection, on "+string(at.node), err, tidemark.Unavailable)
}

// wantHeld fails the test unless the session's lease is at a node, and what is sent arrives there
// at once.
func (m *moving) wantHeld(by *core, bob *client, next string) {
	m.t.Helper()
	leases := m.leases("bob")
	if len(leases) != 1 || leases[0].Node != by.node || leases[0].Session != bob.Session() {
		m.t.Errorf("leases %v, want that of %s on %s", leases, bob.Session(), by.node)
	}
	m.a.send("alice", m.chat)
	want(m.t, "what is sent later", messagesOf(bob.drain()), next)
}

// Two nodes request a session at the same time. The one that took the lease last gets the session,
// with the notifications that reached the other. The other one's client gets an error and connects
// again. It must not open a new session, which would end this one.
func TestMove_of_two_requests_the_last_gets_the_session(t *testing.T) {
	for _, poll := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t)
			c := m.node("c")
			m.bob.Detach()
			begin, opened := m.overtake(c)
			m.onFirst(isRequest, func() {
				m.a.send("alice", m.chat)
				begin()
			})
			_, err := m.b.Open(m.ctx, openRequest{
				User:    "bob",
				Device:  "phone",
				Session: m.bob.Session(),
				After:   m.bob.last,
				Poll:    poll,
			})
			wantCode(t, "the older connection, on b", err, tidemark.Unavailable)
			bob := opened()
			time.Sleep(time.Second) // until the arrival on b ends
			lines := bob.drain()
			want(t, "bob on c", lines[:1], "open resumed=true")
			want(t, "what b had of it", messagesOf(lines), "message ab 2")
			m.wantHeld(c, bob, "message ab 3")
		})
	}
}

// A session that is requested while it is moving continues from the node where it lands.
func TestMove_of_a_session_that_is_about_to_arrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		c := m.node("c")
		m.bob.Detach()
		begin, opened := m.overtake(c)
		m.onFirst(isTransfer, begin)
		m.wantOvertaken(m.b)
		bob := opened()
		want(t, "bob on c", bob.drain()[:1], "open resumed=true")
		m.wantHeld(c, bob, "message ab 2")
	})
}

// A node that does not give a session away has its lease again before the client gets the error.
func TestMove_of_a_session_that_stays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tooMany = 4_097
		w := newClusterInMemory(t)
		m := &moving{cluster: w, a: w.node("a"), b: w.node("b")}
		time.Sleep(30 * time.Second)
		m.chat = m.a.chat("ab", "alice", "bob")
		w.manyChats(tooMany)
		m.bob = m.a.open("bob")
		if n := len(messagesOf(m.bob.drain())); n != tooMany {
			t.Fatalf("%d messages, want %d", n, tooMany)
		}
		_, err := m.b.Open(m.ctx, openRequest{
			User:    "bob",
			Session: m.bob.Session(),
			After:   m.bob.last,
			Poll:    true,
		})
		wantCode(t, "a poll on b", err, tidemark.Gone)
		m.wantHeld(m.a, m.bob, "message ab 1")
	})
}

// A connection whose client has gone does not move the session from the connection by which the
// client has returned at another node.
func TestMove_of_a_client_that_has_left_fetches_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		for _, poll := range []bool{false, true} {
			_, err := m.b.Open(m.ctx, openRequest{
				User:    "bob",
				Session: m.bob.Session(),
				After:   m.bob.last,
				Poll:    poll,
				Left:    func() bool { return true },
			})
			wantCode(t, "an attempt on b that was given up", err, tidemark.Unavailable)
		}
		_, err := m.a.Open(m.ctx, openRequest{
			User:    "bob",
			Session: m.bob.Session(),
			After:   m.bob.last,
			Left:    func() bool { return true },
		})
		wantCode(t, "one on a", err, tidemark.Unavailable)
		m.wantHeld(m.a, m.bob, "message ab 2")
	})
}
