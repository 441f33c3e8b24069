package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

func TestZZ(t *testing.T) {
	for _, wait := range []time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := newMoving(t)
			c := m.node("c")
			m.bob.Detach()
			m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
				if e.Request != nil && to.ID == "a" {
					return nil
				}
				return send()
			})
			began := time.Now()
			for n := 0; time.Since(began) < 5*time.Minute; n++ {
				at := m.b
				if n%2 == 1 {
					at = c
				}
				t0 := time.Now()
				conn, err := m.resume(at)
				t.Log(wait, time.Since(began), at.node, time.Since(t0), err)
				if err == nil {
					conn.Close(m.ctx)
					break
				}
				if tidemark.CodeOf(err) == tidemark.Gone {
					break
				}
				time.Sleep(wait)
			}
			t.Log("took", time.Since(began))
			m.publish.clear()
		})
	}
}
