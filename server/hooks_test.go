package server_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/local"
	"github.com/tidemark-im/tidemark/server/registry"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/services/stores"
)

// cluster is what several nodes share: storage, registry and bus, with hooks where a test can step
// in. The store is the one of the test run, and the bus is local.
type cluster struct {
	t   *testing.T
	ctx context.Context
	raw storage.Store
	reg *registrymemory.Registry
	bus *local.Bus
	// before is called before each method of storage, after each one that succeeded.
	before hook[func(method string) error]
	after  hook[func(method string) error]
	// publish is called in place of a publication. It publishes by calling send.
	publish hook[func(to registry.Node, e bus.Event, send func() error) error]
}

// hook holds a function that a test may set and clear while the server runs.
type hook[F any] struct {
	mu sync.Mutex
	f  F
	on bool
}

func (h *hook[F]) set(f F) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.f, h.on = f, true
}

func (h *hook[F]) clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.on = false
}

func (h *hook[F]) get() (F, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.f, h.on
}

func newCluster(t *testing.T) *cluster { return newClusterOn(t, stores.Open(t)) }

// newClusterInMemory returns a cluster for tests of what a node keeps in memory.
func newClusterInMemory(t *testing.T) *cluster { return newClusterOn(t, memory.New()) }

func newClusterOn(t *testing.T, store storage.Store) *cluster {
	return &cluster{
		t:   t,
		ctx: context.Background(),
		raw: store,
		reg: registrymemory.New(),
		bus: local.New(),
	}
}

// node starts a server with a name.
func (w *cluster) node(name tidemark.NodeID, change ...func(*server.Config)) *core {
	w.t.Helper()
	faulty := storagetest.Fault(w.raw)
	call := func(h *hook[func(string) error]) func(string) error {
		return func(method string) error {
			if f, on := h.get(); on {
				return f(method)
			}
			return nil
		}
	}
	faulty.Before, faulty.After = call(&w.before), call(&w.after)
	inWorld := func(cfg *server.Config) { cfg.Node, cfg.Bus = name, hookedBus{w} }
	change = append([]func(*server.Config){inWorld}, change...)
	return startOn(w.t, faulty, w.reg, w.bus, change...)
}

// hookedBus is the cluster's bus. The publish hook is in its way.
type hookedBus struct{ w *cluster }

func (b hookedBus) Subscribe(
	ctx context.Context, n registry.Node, s bus.Subscriber,
) (func(), error) {
	return b.w.bus.Subscribe(ctx, n, s)
}

func (b hookedBus) Publish(ctx context.Context, publications []bus.Publication) []error {
	return oneByOne(publications,
		func(n registry.Node, e bus.Event) error { return b.publish(ctx, n, e) })
}

// oneByOne makes a bus.Bus.Publish of a function that publishes one event.
func oneByOne(
	publications []bus.Publication, publish func(n registry.Node, e bus.Event) error,
) []error {
	errs := make([]error, len(publications))
	for i, p := range publications {
		errs[i] = publish(p.Node, p.Event)
	}
	return errs
}

func (b hookedBus) publish(ctx context.Context, n registry.Node, e bus.Event) error {
	send := func() error { return bus.PublishOne(ctx, b.w.bus, n, e) }
	if f, on := b.w.publish.get(); on {
		return f(n, e, send)
	}
	return send()
}

// dropping loses the publications for which lost returns true, until publish is cleared. Their
// publisher gets no error.
func (w *cluster) dropping(lost func(to registry.Node, e bus.Event) bool) {
	w.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
		if lost(to, e) {
			return nil
		}
		return send()
	})
}

func isStatus(_ registry.Node, e bus.Event) bool     { return e.Status != nil }
func isMembership(_ registry.Node, e bus.Event) bool { return e.Membership != nil }

func notificationTo(node tidemark.NodeID) func(registry.Node, bus.Event) bool {
	return func(to registry.Node, e bus.Event) bool {
		return to.ID == node && e.Notification != nil
	}
}

// once returns a hook of storage that calls act at the first call of a method, and returns err for
// it.
func once(method string, err error, act func()) func(string) error {
	var mu sync.Mutex
	done := false
	return func(m string) error {
		mu.Lock()
		now := m == method && !done
		done = done || now
		mu.Unlock()
		if !now {
			return nil
		}
		if act != nil {
			act()
		}
		return err
	}
}

// every returns a hook of storage that returns err for every call of a method.
func every(method string, err error) func(string) error {
	return func(m string) error {
		if m == method {
			return err
		}
		return nil
	}
}

var errDown = tidemark.Errorf(tidemark.Unavailable, "cannot be reached, by order of the test")

// rows returns the pending rows of a user, past all counters and hooks.
func (w *cluster) rows(user tidemark.UserID) []tidemark.PendingDelivery {
	w.t.Helper()
	rows, _, err := w.raw.PendingOf(w.ctx, user, "", 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	return plain(rows)
}

// plain returns rows without the watermarks beside them.
func plain(rows []storage.PendingRow) []tidemark.PendingDelivery {
	var flat []tidemark.PendingDelivery
	for _, row := range rows {
		flat = append(flat, row.PendingDelivery)
	}
	return flat
}

func (w *cluster) wantRows(what string, user tidemark.UserID, want ...tidemark.PendingDelivery) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.rows(user)); diff != "" {
		w.t.Errorf("%s: rows of %s (-want +got):\n%s", what, user, diff)
	}
}

func row(
	user tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence,
) tidemark.PendingDelivery {
	return tidemark.PendingDelivery{UserID: user, ChatID: chat, FirstUndelivered: first}
}

func (w *cluster) leases(user tidemark.UserID) []registry.Lease {
	w.t.Helper()
	leases, err := w.reg.Lookup(w.ctx, []tidemark.UserID{user})
	if err != nil {
		w.t.Fatal(err)
	}
	return leases[0]
}

// appendDead stores a message as if the sender's node had died before the hand-over.
func (w *cluster) appendDead(
	user tidemark.UserID, chat tidemark.ChatID, key string,
) tidemark.Message {
	w.t.Helper()
	return w.appendDeadAt(time.Now(), user, chat, key)
}

// appendDeadAt is appendDead of a node whose clock showed a time.
func (w *cluster) appendDeadAt(
	at time.Time, user tidemark.UserID, chat tidemark.ChatID, key string,
) tidemark.Message {
	w.t.Helper()
	appended, err := storage.AppendOne(w.ctx, w.raw, tidemark.Draft{
		ChatID:          chat,
		SenderID:        user,
		ClientMessageID: key,
		Content:         "from a dead node",
		Kind:            tidemark.KindMessage,
		ContentType:     tidemark.DefaultContentType,
		MessageID:       tidemark.MessageID("dead-" + key),
		CreatedAt:       at.UTC(),
	})
	if err != nil {
		w.t.Error(err)
	}
	return appended.Message
}

// say sends status updates to the sessions of a user, one by one, as a node with older knowledge
// would. It sends them to the node of the user's first session.
func (w *cluster) say(to tidemark.UserID, updates ...tidemark.StatusUpdate) {
	w.t.Helper()
	leases := w.leases(to)
	for _, u := range updates {
		err := bus.PublishOne(w.ctx, w.bus, registry.Node{ID: leases[0].Node, Boot: leases[0].Boot},
			bus.Event{To: leases, Status: &bus.Status{
				Updates: []tidemark.StatusUpdate{u}, Version: 1,
			}})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	settle()
}

// ghost joins a node that does nothing more, and so never leaves.
func (w *cluster) ghost(id tidemark.NodeID, ttl time.Duration) registry.Node {
	w.t.Helper()
	n := registry.Node{ID: id, Boot: "boot-of-" + string(id)}
	if err := w.reg.Join(w.ctx, n, ttl); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// state returns the stored delivery state of a user.
func (w *cluster) state(user tidemark.UserID, chat tidemark.ChatID) tidemark.DeliveryState {
	w.t.Helper()
	states, err := w.raw.States(w.ctx, []storage.StateKey{{User: user, Chat: chat}})
	if err != nil {
		w.t.Fatal(err)
	}
	return states[0]
}

func (w *cluster) head(chat tidemark.ChatID) tidemark.Sequence {
	w.t.Helper()
	heads, err := w.raw.Heads(w.ctx, []tidemark.ChatID{chat})
	if err != nil {
		w.t.Fatal(err)
	}
	return heads[0]
}

func (w *cluster) wantState(
	what string, user tidemark.UserID, chat tidemark.ChatID, acked, read tidemark.Sequence,
) {
	w.t.Helper()
	if st := w.state(user, chat); st.Acked != acked || st.Read != read {
		w.t.Errorf("%s: watermarks of %s are %d and %d, want %d and %d",
			what, user, st.Acked, st.Read, acked, read)
	}
}

// leaveProof opens and closes a session cleanly, so that the user's next open trusts their pending
// rows.
func (c *core) leaveProof(user tidemark.UserID) {
	c.t.Helper()
	conn := c.open(user)
	conn.drain()
	conn.goodbye()
}

// goodbye closes the session as its client's goodbye does.
func (c *client) goodbye() {
	c.t.Helper()
	if err := c.Close(context.Background()); err != nil {
		c.t.Errorf("Close of %s: %v", c.user, err)
	}
}

// sendKey sends with a given client message id.
func (c *core) sendKey(
	user tidemark.UserID, chat tidemark.ChatID, key, content string,
) (server.Sent, error) {
	return c.Send(c.ctx, user, tidemark.Draft{ChatID: chat, ClientMessageID: key, Content: content})
}

func wantCode(t *testing.T, what string, err error, code tidemark.Code) {
	t.Helper()
	if got := tidemark.CodeOf(err); got != code {
		t.Errorf("%s: got %v, want code %q", what, err, code)
	}
}

// atOnce makes n calls, up to 64 at once, and waits for them. On a store with a disk, many writes
// then share a commit.
func atOnce(n int, call func(i int)) {
	var all sync.WaitGroup
	var next atomic.Int64
	for range min(n, 64) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				call(i)
			}
		})
	}
	all.Wait()
}
