package presence

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// announceEvery is how often a node repeats that it looks. Others remember it for lasts.
	announceEvery = 20 * time.Second
	// settles is how long another node may take to start recording users for this one.
	settles = 2 * time.Second
	// batchEntries is how many users one publication has at most.
	batchEntries = 4_000
)

// nodes records which other nodes look at chats, and which of them know that this node does.
type nodes struct {
	// looking has the other nodes that look at chats, and until when.
	looking map[registry.Node]time.Time
	// told has when each other node was last told that this one looks.
	told map[registry.Node]time.Time
	// settled is when the last announced node has certainly started recording. Users who came there
	// earlier may be missing, so all are looked up once more.
	settled time.Time
}

func newNodes() nodes {
	return nodes{
		looking: make(map[registry.Node]time.Time), told: make(map[registry.Node]time.Time),
	}
}

// toTell returns the nodes that are to be told again that this node looks.
func (n *nodes) toTell(others []registry.Node, now time.Time) []registry.Node {
	before := n.told
	n.told = make(map[registry.Node]time.Time, len(others))
	var due []registry.Node
	for _, node := range others {
		told, there := before[node]
		if there && now.Sub(told) < announceEvery {
			n.told[node] = told
			continue
		}
		if !there {
			n.settled = now.Add(settles)
		}
		n.told[node] = now
		due = append(due, node)
	}
	return due
}

// announce tells the other nodes that this one looks, if it does.
func (p *Presence) announce(ctx context.Context, now time.Time) {
	p.mu.Lock()
	var due []registry.Node
	if len(p.chats) > 0 {
		p.cfg.Sessions.Record(true)
		due = p.nodes.toTell(p.others(), now)
	}
	p.mu.Unlock()
	publications := make([]bus.Publication, len(due))
	for i, node := range due {
		publications[i] = bus.Publication{
			Node:  node,
			Event: bus.Event{Presence: &bus.Presence{From: p.cfg.Node, Looking: true}},
		}
	}
	for i, err := range p.publish(ctx, publications) {
		if err != nil {
			p.mu.Lock()
			delete(p.nodes.told, due[i])
			p.mu.Unlock()
		}
	}
}

// others returns the other nodes that have a lease.
func (p *Presence) others() []registry.Node {
	var others []registry.Node
	for _, node := range p.cfg.Leases.Nodes() {
		if node != p.cfg.Node {
			others = append(others, node)
		}
	}
	return others
}

// share takes the users who came and left on this node in the last second, and tells the nodes that
// look.
func (p *Presence) share(ctx context.Context, now time.Time) {
	batch := bus.Presence{From: p.cfg.Node, At: tidemark.Millis(p.cfg.Now().UnixMilli())}
	batch.Came, batch.Left = p.cfg.Sessions.Moved()
	p.mu.Lock()
	batch.Changed, p.changed = p.changed, nil
	p.take(&batch, now)
	if p.cfg.LastSeen {
		p.Count.Unseen.Add(int64(p.absences.begin(batch.Left, batch.At, now)))
	}
	var publications []bus.Publication
	for node := range p.nodes.looking {
		for _, part := range parts(&batch) {
			publications = append(publications, bus.Publication{
				Node: node, Event: bus.Event{Presence: part},
			})
			p.Count.Entries.Add(int64(len(part.Came) + len(part.Left) + len(part.Changed)))
		}
	}
	p.mu.Unlock()
	p.publish(ctx, publications)
}

// publish counts publications and sends them. If one fails, the next look-up of its users corrects
// it.
func (p *Presence) publish(ctx context.Context, publications []bus.Publication) []error {
	if len(publications) == 0 {
		return nil
	}
	p.Count.Batches.Add(int64(len(publications)))
	return p.cfg.Bus.Publish(ctx, publications)
}

// parts divides a batch into publications. An empty one has none.
func parts(batch *bus.Presence) []*bus.Presence {
	var all []*bus.Presence
	left := *batch
	for len(left.Came)+len(left.Left)+len(left.Changed) > 0 {
		part := bus.Presence{From: batch.From, At: batch.At}
		room := batchEntries
		for _, list := range []struct{ from, to *[]tidemark.UserID }{
			{&left.Came, &part.Came}, {&left.Left, &part.Left}, {&left.Changed, &part.Changed},
		} {
			n := min(room, len(*list.from))
			if n > 0 {
				*list.to, *list.from = (*list.from)[:n], (*list.from)[n:]
			}
			room -= n
		}
		all = append(all, &part)
	}
	return all
}
