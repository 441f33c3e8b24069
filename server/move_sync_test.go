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

// A client keeps its device id and its last position. Its cursors reach the session from any node.
func TestMove_sync_reaches_the_session_on_its_node(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.a.send("alice", m.chat)
		want(t, "bob", messagesOf(m.bob.drain()), "message ab 2")
		_, err := m.b.Sync(m.ctx, "bob", server.SyncRequest{
			Session: m.bob.Session(),
			Cursors: []server.Cursor{{Chat: m.chat, Acked: 1}, {Chat: m.chat + "x", Acked: 1}},
			Limit:   10,
		})
		if err != nil {
			t.Fatal(err)
		}
		want(t, "behind the cursor, on a", messagesOf(m.bob.drain()), "message ab 2")
		m.wantState("the cursor counts", "bob", m.chat, 1, 0)
	})
}

// A node repeats a Seek until the answer arrives. The positions are set once, so the client
// receives nothing twice.
func TestMove_sync_that_is_repeated_between_nodes_rewinds_once(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		m.a.send("alice", m.chat)
		want(t, "bob", messagesOf(m.bob.drain()), "message ab 2")
		const lost = 3
		answers := 0
		m.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
			if e.Done != nil {
				if answers++; answers <= lost {
					return nil
				}
			}
			return send()
		})
		var err error
		var syncing sync.WaitGroup
		syncing.Go(func() {
			_, err = m.b.Sync(m.ctx, "bob", server.SyncRequest{
				Session: m.bob.Session(), Cursors: []server.Cursor{{Chat: m.chat, Acked: 1}},
			})
		})
		var got []string
		for range 20 {
			time.Sleep(20 * time.Millisecond)
			got = append(got, messagesOf(m.bob.drain())...)
		}
		syncing.Wait()
		if err != nil || answers != lost+1 {
			t.Errorf("%d answers, %v; want %d", answers, err, lost+1)
		}
		want(t, "behind the cursor", got, "message ab 2")
	})
}
