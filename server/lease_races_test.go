package server_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A session that has moved with all it knew, and whose lease is lost without a new epoch, has missed what another device has acknowledged, as any other session.
func TestLease_of_a_session_that_has_moved_is_lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		session, last := m.bob.Session(), m.bob.last
		m.bob.Detach()
		phone := m.b.open("bob", resuming(session, last))
		phone.drain()
		if err := m.reg.Close(m.ctx, m.leases("bob")[0], nil); err != nil { // a claim of a third node that was given up
			t.Fatal(err)
		}
		m.a.send("alice", m.chat)
		m.a.ack("bob", m.chat, 2, 0) // by another device
		time.Sleep(20 * time.Second)
		want(t, "the phone, which has its lease again", messagesOf(phone.drain()), "message ab 2")
	})
}
