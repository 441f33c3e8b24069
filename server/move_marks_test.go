package server_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// A session was given away but does not arrive, because its device has a newer one. The newer
// session ends before it has reconciled.
func TestMove_R_UNLANDED_what_was_given_is_marked_if_the_device_has_a_newer_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.bob.Detach()
		m.onFirst(isTransfer,
			func() { m.b.open("bob", onDevice("phone")).goodbye() })
		conn, err := m.resume(m.b)
		if err == nil {
			err = conn.Close(m.ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		settle()
		m.wantRows("nothing was acknowledged", "bob", row("bob", m.chat, 1))
	})
}

// The Transfer comes after the arrival has ended, or not at all.
func TestMove_R_UNLANDED_what_was_given_is_marked_if_it_comes_too_late(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t)
			m.bob.Detach()
			m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Transfer != nil && lost {
					return errDown
				}
				if e.Transfer != nil {
					time.Sleep(1500 * time.Millisecond)
				}
				return send()
			})
			conn, err := m.resume(m.b)
			if err == nil {
				err = conn.Close(m.ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			m.wantRows("nothing was acknowledged", "bob", row("bob", m.chat, 1))
		})
	}
}

// The Transfer comes twice. At the second time the session is here, and everything is acknowledged.
func TestMove_what_was_given_is_not_marked_if_it_has_arrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.bob.Detach()
		var again sync.WaitGroup
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Transfer != nil {
				again.Go(func() { time.Sleep(5 * time.Second); _ = send() })
			}
			return send()
		})
		bob := m.b.open("bob", resuming(m.bob.Session(), m.bob.last))
		bob.drain()
		bob.Ack(server.Ack{Chat: m.chat, Acked: 1})
		again.Wait()
		time.Sleep(3 * time.Second)
		m.wantRows("everything is acknowledged", "bob")
	})
}
