package simulationtest

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// crowd makes groups of three large enough for an aggregate: their members get the least boundary
// of all in place of the boundary of each. Every third run has one. Straight runs have none: the
// browser client's fake server repeats them.
type crowd struct {
	// fanout is the server.Config.StatusFanout of the nodes, or 0 for the default.
	fanout int
	// read has when each node last began to read the aggregate of each chat. It is guarded by mu of
	// the simulation.
	read map[aggregateOf]time.Time
}

type aggregateOf struct {
	node *node
	chat tidemark.ChatID
}

func newCrowd(seed uint64) (c crowd) {
	if seed%3 == 0 {
		c.fanout = 2
	}
	return c
}

// aggregates notes that a node reads the aggregate of a chat, at most once in an interval
// (least_is_shared). Nodes call it.
func (w *simulation) aggregates(n *node, chat tidemark.ChatID) {
	of, now := aggregateOf{n, chat}, time.Now()
	w.mu.Lock()
	last, again := w.crowd.read[of]
	if w.crowd.read == nil {
		w.crowd.read = map[aggregateOf]time.Time{}
	}
	w.crowd.read[of] = now
	w.mu.Unlock()
	w.count("aggregate read")
	if again && now.Sub(last) < aggregateInterval {
		w.failf("least_is_shared: node %s reads the aggregate of %s %v after it did so last",
			n.id, chat, now.Sub(last))
	}
}

// takeAggregate takes the least boundary of a chat. Nobody who has always been a member is below
// it.
func (d *device) takeAggregate(p payload) {
	for _, user := range d.w.users {
		key := storage.StateKey{User: user, Chat: p.ChatID}
		if !d.w.truth.member(user, p.ChatID) || d.w.truth.changes[key] > 0 {
			continue
		}
		st := d.w.state(user, p.ChatID)
		if p.Read > st.Read || p.Acked > max(st.Acked, st.Read) {
			d.w.failf("group_delivered_requires_all_members: %s is told %d/%d of all in %s, and "+
				"%s is at %d/%d", d.name(), p.Acked, p.Read, p.ChatID, user, st.Acked, st.Read)
		}
	}
	d.w.count("aggregate told")
	key := storage.StateKey{Chat: p.ChatID}
	d.ticks[key] = d.ticks[key].Merge(tidemark.Boundary{Acked: p.Acked, Read: p.Read})
}

// crowded reports whether the members of a chat have an aggregate now.
func (w *simulation) crowded(chat tidemark.ChatID) bool {
	members := 0
	for _, user := range w.users {
		if w.truth.member(user, chat) {
			members++
		}
	}
	return w.crowd.fanout > 0 && members > w.crowd.fanout
}

// knowsAggregate checks that a device has the least boundary of a chat, after a snapshot was sent.
func (d *device) knowsAggregate(chat tidemark.ChatID) {
	var least tidemark.Boundary
	first := true
	for _, user := range d.w.users {
		if !d.w.truth.member(user, chat) {
			continue
		}
		b := d.w.state(user, chat).Exposed()
		if first {
			least, first = b, false
		}
		least.Acked, least.Read = min(least.Acked, b.Acked), min(least.Read, b.Read)
	}
	got := d.ticks[storage.StateKey{Chat: chat}]
	if got.Acked != least.Acked || got.Read != least.Read {
		d.w.failf("delivered_is_eventually_consistent: %s knows that all have %d/%d of %s, and "+
			"the truth is %d/%d", d.name(), got.Acked, got.Read, chat, least.Acked, least.Read)
	}
}
