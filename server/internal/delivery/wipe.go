package delivery

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
)

// wipe tells all nodes of the edits and redactions among stored messages, before these are handed
// over. What the nodes have cached of the chats' earlier messages may be outdated (R_WIPE).
func (d *Delivery) wipe(ctx context.Context, stored []message) {
	var relations []tidemark.MessageRef
	for i := range stored {
		m := stored[i].stored
		//rule:annotations_counted.drop-nothing
		if !m.Kind.Revises() {
			continue
		}
		relations = append(relations,
			tidemark.MessageRef{ChatID: m.ChatID, Sequence: m.Sequence})
	}
	d.Wipe(ctx, relations...)
}

// Wipe makes all nodes drop what they have cached of chats before a message each, and keep no
// earlier message any more.
//
// If a node that may be alive was not told, leases.Untold makes it drop its cache. If this node
// dies before it has told anybody, all nodes drop theirs (R_EPOCH).
func (d *Delivery) Wipe(ctx context.Context, before ...tidemark.MessageRef) {
	var publications []bus.Publication
	nodes := d.Leases.Nodes()
	for _, m := range before {
		//rule:R_WIPE.drop-here-first
		d.Chats.Relate(m.ChatID, m.Sequence)
		event := bus.Event{Notification: &bus.Notification{
			Chat: m.ChatID, Sequence: m.Sequence, Relation: true,
		}}
		//rule:R_WIPE.tell-all-nodes
		for _, node := range nodes {
			publications = append(publications, bus.Publication{Node: node, Event: event})
		}
	}
	d.tell(ctx, publications)
}

// TellAll publishes an event to all nodes, which cache what it changes. If one that may be alive
// was not told, leases.Untold makes it drop its caches.
func (d *Delivery) TellAll(ctx context.Context, event bus.Event) {
	nodes := d.Leases.Nodes()
	publications := make([]bus.Publication, len(nodes))
	for i, node := range nodes {
		publications[i] = bus.Publication{Node: node, Event: event}
	}
	d.tell(ctx, publications)
}

// tell publishes what all nodes have to know.
func (d *Delivery) tell(ctx context.Context, publications []bus.Publication) {
	for i, err := range d.publish(ctx, publications) {
		//rule:R_WIPE.drop-caches-of-nodes-that-missed-it
		if err != nil && tidemark.CodeOf(err) != tidemark.NotFound &&
			slices.Contains(d.Leases.Nodes(), publications[i].Node) {
			d.Leases.Untold()
		}
	}
}
