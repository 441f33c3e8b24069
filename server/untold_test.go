package server_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// complaints are what the nodes of a cluster complain of. Each complaint stands for six seconds:
// the other node finds it with a heartbeat, and trusts its caches again after two without one.
type complaints struct {
	w  *cluster
	mu sync.Mutex
	// of has until when the complaints of a node stand, and missed what to call then.
	of     map[tidemark.NodeID]time.Time
	missed map[tidemark.NodeID]func()
}

// complaining starts a node whose bus complains, as that of a cluster without Redis.
func (c *complaints) node(name tidemark.NodeID) *core {
	return c.w.node(name, func(cfg *server.Config) {
		cfg.Bus = complainingBus{hookedBus{c.w}, c, name}
	})
}

func complain(w *cluster) *complaints {
	return &complaints{
		w: w, of: map[tidemark.NodeID]time.Time{}, missed: map[tidemark.NodeID]func(){},
	}
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
	if time.Now().Before(b.of[b.name]) {
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
		if tidemark.CodeOf(err) == tidemark.Unavailable {
			b.complainLocked(publications[i].Node.ID)
		}
	}
	return errs
}

func (c *complaints) complainLocked(of tidemark.NodeID) {
	const stands = 6 * time.Second
	began := !time.Now().Before(c.of[of])
	c.of[of] = time.Now().Add(stands)
	missed := c.missed[of]
	if !began || missed == nil {
		return
	}
	var end func()
	end = func() {
		c.mu.Lock()
		left := time.Until(c.of[of])
		c.mu.Unlock()
		if left > 0 {
			time.AfterFunc(left, end)
		} else {
			missed()
		}
	}
	time.AfterFunc(stands, end)
}

// TestR_EPOCH_no_epoch_for_each_failure: while a node that has died may still be alive, changes
// that it is not told of raise no epoch. Its own end raises one.
func TestR_EPOCH_no_epoch_for_each_failure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		all := complain(w)
		a := all.node("a")
		all.node("b")
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
		s := newWipedOn(t, w, all.node("a"), all.node("b"))
		s.redactsUntold()
		w.publish.clear()
		time.Sleep(6 * time.Second)
		s.gone()
	})
}

// TestMembership_a_node_that_is_complained_of_asks_storage is the same for members.
func TestMembership_a_node_that_is_complained_of_asks_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		all := complain(w)
		a, b := all.node("a"), all.node("b")
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
		a.remove(chat, "carol")
		time.Sleep(5 * time.Second)
		_, err := b.Chat(w.ctx, server.Caller{User: "carol"}, chat)
		wantCode(t, "carol on b", err, tidemark.NotMember)
	})
}

// TestMove_a_node_that_died_delays_no_other: a node answers the questions of another one while its
// answers to a third one find nobody.
func TestMove_a_node_that_died_delays_no_other(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMoving(t)
		dead := m.ghost("c", time.Hour)
		m.publish.set(func(to registry.Node, _ bus.Event, send func() error) error {
			if to == dead {
				time.Sleep(2 * time.Second)
				return errDown
			}
			return send()
		})
		for range 10 {
			for _, e := range []bus.Event{
				{Seek: &bus.Seek{
					ID: "q", Session: m.bob.Session(), User: "bob", From: dead,
					Positions: []byte("{}"),
				}},
				{End: &bus.End{ID: "q", Session: "none", User: "bob", From: dead}},
			} {
				if err := bus.PublishOne(m.ctx, m.bus, m.leases("bob")[0].Holder(), e); err != nil {
					t.Fatal(err)
				}
			}
		}
		m.a.send("alice", m.chat)
		_, err := m.b.Sync(m.ctx, "bob", server.SyncRequest{
			Session: m.bob.Session(), Cursors: []server.Cursor{{Chat: m.chat, Acked: 1}},
		})
		if err != nil {
			t.Error(err)
		}
		if !slices.Contains(m.bob.drain(), "message ab 2") {
			t.Error("bob got no message")
		}
		m.publish.clear()
	})
}
