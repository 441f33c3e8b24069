package server_test

import (
	"context"
	"fmt"
	"slices"
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

// complaints has what the nodes of a cluster complain of. A publisher writes its complaints with
// its next heartbeat. Each then stands for six seconds. The other node finds it with a heartbeat,
// and trusts its caches again after two without one.
type complaints struct {
	w  *cluster
	mu sync.Mutex
	// unwritten has what each node will complain of. stand has until when the complaints of a node
	// stand, and missed what to call then.
	unwritten map[tidemark.NodeID][]tidemark.NodeID
	stand     map[tidemark.NodeID]time.Time
	missed    map[tidemark.NodeID]func()
}

func complain(w *cluster) *complaints {
	return &complaints{
		w: w, unwritten: map[tidemark.NodeID][]tidemark.NodeID{},
		stand: map[tidemark.NodeID]time.Time{}, missed: map[tidemark.NodeID]func(){},
	}
}

// node starts a node whose bus complains, as that of a cluster without Redis. It cannot reach the
// registry while down is true.
func (c *complaints) node(name tidemark.NodeID, down *atomic.Bool) *core {
	return c.w.node(name, func(cfg *server.Config) {
		cfg.Bus = complainingBus{hookedBus{c.w}, c, name}
		r := complainingRegistry{unreachable{c.w.reg, down}, c}
		cfg.Registry, cfg.Nodes = r, r
	})
}

// complainingRegistry writes the complaints of a node with its heartbeats.
type complainingRegistry struct {
	unreachable
	*complaints
}

func (r complainingRegistry) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	refreshed, err := r.unreachable.Refresh(ctx, node, nodeTTL, leases, ttl)
	if err == nil {
		r.write(node.ID)
	}
	return refreshed, err
}

type complainingBus struct {
	hookedBus
	*complaints
	name tidemark.NodeID
}

func (complainingBus) Complains() {}

func (b complainingBus) Check(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.stand[b.name]) {
		return errDown
	}
	return nil
}

func (b complainingBus) Subscribe(
	ctx context.Context, n registry.Node, s bus.Subscriber,
) (func(), error) {
	b.mu.Lock()
	b.missed[n.ID] = s.Missed
	b.mu.Unlock()
	return b.hookedBus.Subscribe(ctx, n, s)
}

func (b complainingBus) Publish(ctx context.Context, publications []bus.Publication) []error {
	errs := b.hookedBus.Publish(ctx, publications)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, err := range errs {
		if tidemark.CodeOf(err) == tidemark.Unavailable && !publications[i].Event.Repeated() {
			b.unwritten[b.name] = append(b.unwritten[b.name], publications[i].Node.ID)
		}
	}
	return errs
}

// write writes the complaints of a node.
func (c *complaints) write(by tidemark.NodeID) {
	const stands = 6 * time.Second
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.unwritten[by] {
		began := !time.Now().Before(c.stand[of])
		c.stand[of] = time.Now().Add(stands)
		if missed := c.missed[of]; began && missed != nil {
			time.AfterFunc(stands, func() { c.end(of, missed) })
		}
	}
	delete(c.unwritten, by)
}

// end calls missed when no complaint about a node stands any more.
func (c *complaints) end(of tidemark.NodeID, missed func()) {
	c.mu.Lock()
	left := time.Until(c.stand[of])
	c.mu.Unlock()
	if left > 0 {
		time.AfterFunc(left, func() { c.end(of, missed) })
	} else {
		missed()
	}
}

// TestR_EPOCH_no_epoch_for_each_failure: while a node that has died may still be alive, changes
// that it is not told of raise no epoch. Its own end raises one.
func TestR_EPOCH_no_epoch_for_each_failure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		all := complain(w)
		var down atomic.Bool
		a := all.node("a", &down)
		all.node("b", &down)
		chat := a.chat("abc", "alice", "bob", "carol")
		a.send("alice", chat)
		w.ghost("c", 20*time.Second)
		time.Sleep(5 * time.Second) // until both know it
		w.publish.set(func(to registry.Node, _ bus.Event, send func() error) error {
			if to.ID == "c" {
				return errDown
			}
			return send()
		})
		before, err := w.reg.Epoch(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			a.remove(chat, "carol")
			a.add(chat, "carol")
			a.relate("alice", chat, tidemark.KindEdit, 1, "again")
			time.Sleep(2 * time.Second)
		}
		if after, err := w.reg.Epoch(w.ctx); err != nil || after != before {
			t.Errorf("the epoch is %v, %v, want %v", after, err, before)
		}
		time.Sleep(10 * time.Second)
		if after, err := w.reg.Epoch(w.ctx); err != nil || after.Crashes != before.Crashes+1 {
			t.Errorf("after its end the epoch is %v, %v, want one more than %v", after, err, before)
		}
	})
}

// TestR_WIPE_a_node_that_is_complained_of_serves_nothing: it is not told of a redaction, and
// learns from the registry that something did not reach it.
func TestR_WIPE_a_node_that_is_complained_of_serves_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		all := complain(w)
		var down atomic.Bool
		s := newWipedOn(t, w, all.node("a", &down), all.node("b", &down))
		s.redactsUntold()
		w.publish.clear()
		time.Sleep(5 * time.Second)
		s.gone()
	})
}

// TestMembership_a_node_that_is_complained_of_asks_storage is the same for members. With half, the
// node finds the complaint, and its heartbeat fails after that.
func TestMembership_a_node_that_is_complained_of_asks_storage(t *testing.T) {
	for _, half := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			all := complain(w)
			var up, down atomic.Bool
			a, b := all.node("a", &up), all.node("b", &down)
			nodesTrust()
			chat := a.chat("abc", "alice", "bob", "carol")
			if _, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat); err != nil {
				t.Fatal(err)
			}
			w.publish.set(func(_ registry.Node, e bus.Event, send func() error) error {
				if e.Membership != nil {
					return errDown
				}
				return send()
			})
			down.Store(half)
			a.remove(chat, "carol")
			time.Sleep(5 * time.Second)
			_, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat)
			wantCode(t, "carol on b", err, tidemark.NotMember)
			down.Store(false)
		})
	}
}

// TestMove_a_node_that_died_delays_no_other: a node answers the questions of another one while its
// answers to a third one find nobody. Of these it keeps only some.
func TestMove_a_node_that_died_delays_no_other(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		dead, a := m.ghost("c", time.Hour), m.leases("bob")[0].Holder()
		var answers atomic.Int64
		m.publish.set(func(to registry.Node, e bus.Event, send func() error) error {
			if to != dead {
				return send()
			}
			answers.Add(1)
			if e.Done != nil && (e.Done.ID == "e" || e.Done.ID == "q0") {
				time.Sleep(10 * time.Second)
			}
			return errDown
		})
		ask := func(e bus.Event) {
			t.Helper()
			if err := bus.PublishOne(m.ctx, m.bus, a, e); err != nil {
				t.Fatal(err)
			}
		}
		carol, dave := m.a.open("carol"), m.a.open("dave")
		ask(bus.Event{End: &bus.End{ID: "e", Session: carol.Session(), User: "carol", From: dead}})
		for n := range 6_000 {
			ask(bus.Event{Seek: &bus.Seek{
				ID: fmt.Sprint("q", n), Session: m.bob.Session(), User: "bob", From: dead,
				Positions: []byte("{}"),
			}})
			if n%500 == 0 {
				synctest.Wait()
			}
		}
		m.a.send("alice", m.chat)
		_, err := m.b.Sync(m.ctx, "bob", server.SyncRequest{
			Session: m.bob.Session(), Cursors: []server.Cursor{{Chat: m.chat, Acked: 1}},
		})
		if err != nil {
			t.Errorf("a sync at b: %v", err)
		}
		if !slices.Contains(m.bob.drain(), "message ab 2") {
			t.Error("bob got no message")
		}
		if err := m.b.EndSession(m.ctx, "dave", dave.Session()); err != nil {
			t.Errorf("the end of a session at b: %v", err)
		}
		time.Sleep(time.Minute)
		const most = 2_100
		if n := answers.Load(); n < 3 || n > most {
			t.Errorf("the dead node got %d answers, want 3 to %d", n, most)
		}
		m.publish.clear()
	})
}

// endedRegistry notes that the registry has no lease of a node any more.
type endedRegistry struct {
	unreachable
	ended *atomic.Bool
}

func (r endedRegistry) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	refreshed, err := r.unreachable.Refresh(ctx, node, nodeTTL, leases, ttl)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		r.ended.Store(true)
	}
	return refreshed, err
}

// TestMembership_a_node_without_a_lease_asks_storage: nobody tells it anything, from when the
// registry says so, and not only once it joins again.
func TestMembership_a_node_without_a_lease_asks_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		var up, ended atomic.Bool
		a := w.node("a")
		b := w.node("b", func(cfg *server.Config) {
			r := endedRegistry{unreachable{w.reg, &up}, &ended}
			cfg.Registry, cfg.Nodes = r, r
		})
		nodesTrust()
		chat := a.chat("abc", "alice", "bob", "carol")
		if _, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat); err != nil {
			t.Fatal(err)
		}
		b.open("bob")
		if err := w.reg.Leave(w.ctx, w.leases("bob")[0].Holder()); err != nil {
			t.Fatal(err)
		}
		w.dropping(func(to registry.Node, _ bus.Event) bool { return to.ID == "b" })
		a.remove(chat, "carol")
		for !ended.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // it joins again after a second
		_, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat)
		wantCode(t, "carol on b", err, tidemark.NotMember)
		w.publish.clear()
	})
}
