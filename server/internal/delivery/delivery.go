// Package delivery takes messages from their senders to the sessions of their readers: it appends
// them to storage, notifies the sessions of the members who are online, and marks pending rows for
// the others (delivery.md §4, Send). What it could not do for a stored message it tries again.
package delivery

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/ackbuffer"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/leases"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what delivery reads and writes.
type Storage interface {
	Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error)
	Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
}

// Config is what a Delivery works with. All fields are required.
type Config struct {
	Storage  Storage
	Chats    *chat.Cache
	Sessions *session.Table
	Leases   *leases.Leases
	Bus      bus.Bus
	// Acks raises the watermarks of authors over what they write.
	Acks *ackbuffer.Buffer
	// Retry holds what could not be done.
	Retry *retry.Queue
	Log   *slog.Logger
}

// Counters only grow.
type Counters struct {
	Sends, Duplicates, Notifications, Marks, MarksWritten, StorageErrors, BusErrors atomic.Int64
}

// Delivery is safe for concurrent use.
type Delivery struct {
	Config
	// Count is what the delivery counts.
	Count Counters
}

// New returns a Delivery without goroutines.
func New(cfg Config) *Delivery { return &Delivery{Config: cfg} }

// writeTimeout bounds what is done for a write, from its beginning on, whatever its caller does.
const writeTimeout = 10 * time.Second

// Detach returns a context for a write and everything that follows from it. A caller who goes away
// does not end it.
func Detach(ctx context.Context) (context.Context, context.CancelFunc) {
	//rule:request_id_reaches_storage.keep-request-behind-timeout
	return context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
}

// Announcement is an event for the sessions of some users, on all nodes. A session may miss it.
type Announcement struct {
	To []tidemark.UserID
	// Event is sent with the leases of To.
	Event bus.Event
	// AllNodes sends it also to nodes that have no session of To, because they remember what it says.
	AllNodes bool
}

// Publish sends announcements, with one look-up and one publication for each node and announcement.
// certain is false if the registry could not be asked: then the sessions of this node get them, or,
// with onlyCertain, none. A node that remembers something and cannot be reached believes what is
// wrong: then this node joins the registry anew, which makes all nodes forget.
func (d *Delivery) Publish(
	ctx context.Context, all []Announcement, onlyCertain bool,
) (certain bool) {
	var users []tidemark.UserID
	for _, a := range all {
		users = append(users, a.To...)
	}
	leases, certain := d.Leases.Lookup(ctx, users)
	if onlyCertain && !certain {
		return false
	}
	nodes := d.Leases.Nodes()
	var publications []bus.Publication
	var remembers []bool
	for _, a := range all {
		n := len(a.To)
		for _, to := range a.nodes(leases[:n], nodes) {
			event := a.Event
			event.To = to.Leases
			publications = append(publications, bus.Publication{Node: to.Node, Event: event})
			remembers = append(remembers, a.AllNodes)
		}
		leases = leases[n:]
	}
	for i, err := range d.publish(ctx, publications) {
		if err != nil && remembers[i] && slices.Contains(nodes, publications[i].Node) &&
			tidemark.CodeOf(err) != tidemark.NotFound {
			//rule:nothing_outside_membership.rejoin-when-nodes-are-unknown
			d.Leases.Rejoin()
		}
	}
	return certain
}

// nodes returns the nodes that an announcement goes to, each with the leases of its sessions.
func (a *Announcement) nodes(leases [][]registry.Lease, all []registry.Node) []registry.Addressed {
	to := registry.ByNode(leases)
	if !a.AllNodes {
		return to
	}
	for _, n := range all {
		if !slices.ContainsFunc(to, func(at registry.Addressed) bool { return at.Node == n }) {
			//rule:nothing_outside_membership.tell-all-nodes-of-members
			to = append(to, registry.Addressed{Node: n})
		}
	}
	return to
}

// publish sends publications and counts those that fail.
func (d *Delivery) publish(ctx context.Context, publications []bus.Publication) []error {
	if len(publications) == 0 {
		return nil
	}
	errs := d.Bus.Publish(ctx, publications)
	for _, err := range errs {
		if err != nil {
			d.Count.BusErrors.Add(1)
		}
	}
	return errs
}
