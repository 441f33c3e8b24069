package websocket

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registry "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// TestStop_during_the_upgrade_opens_no_session: a client that connects at that moment is asked to
// retry, and takes up no place.
func TestStop_during_the_upgrade_opens_no_session(t *testing.T) {
	leases := registry.New()
	core, err := server.New(server.Config{
		Storage:  stores.Open(t),
		Registry: leases,
		Nodes:    leases,
		Bus:      local.New(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := New(Config{Server: core, Auth: auth.New(auth.Config{Dev: true})})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newConnection(a)
		a.group.Add(c)
		c.Stop(time.Second)
		if _, err := c.conn.upgrade(w, r, time.Second); err != nil {
			t.Errorf("the upgrade: %v", err)
		}
		c.start(r)
	}))
	defer front.Close()
	client, _, err := websocket.Dial(t.Context(), front.URL, &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer dev:bob"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.CloseNow() }()
	if _, _, err := client.Read(t.Context()); websocket.CloseStatus(err) != CloseRestarting {
		t.Errorf("the connection ended with %v, want close %d", err, CloseRestarting)
	}
	if opens := core.Counters()["opens_total"]; opens != 0 {
		t.Errorf("%d sessions were opened", opens)
	}
	if err := a.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := core.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestStalled_counts_no_message_that_has_ended: otherwise a client that only listens would be cut
// some heartbeats later.
func TestStalled_counts_no_message_that_has_ended(t *testing.T) {
	c := new(connection)
	var over atomic.Bool
	var heartbeats sync.WaitGroup
	heartbeats.Go(func() {
		for !over.Load() {
			c.stalled()
		}
	})
	for range 500_000 {
		c.partial.Store(1)
		c.partial.Store(0)
		for range 3 {
			if n := c.partial.Load(); n != 0 {
				t.Errorf("between two messages %d is counted", n)
				over.Store(true)
			}
		}
		if over.Load() {
			break
		}
	}
	over.Store(true)
	heartbeats.Wait()
}
