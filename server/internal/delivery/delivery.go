// Package delivery takes messages from senders to the sessions of their readers. It appends them to
// storage, notifies the sessions of online members, and marks pending rows for the others
// (delivery.md §4, Send). Work that fails for a stored message goes into a retry queue.
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
	"github.com/tidemark-im/tidemark/server/internal/traced"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage reads and writes what delivery needs.
type Storage interface {
	storage.Appender
	Observe(m *tidemark.Message)
	Sent(ctx context.Context, key storage.SendKey) (storage.Appended, bool, error)
	Mark(ctx context.Context, rows []tidemark.PendingDelivery) ([]bool, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
}

// Config has what a Delivery needs. All fields but the last two are required.
type Config struct {
	Storage  Storage
	Chats    *chat.Cache
	Sessions *session.Table
	Leases   *leases.Leases
	Bus      bus.Bus
	// Acks raises the watermarks of authors over their own messages.
	Acks *ackbuffer.Buffer
	// Retry holds failed work.
	Retry *retry.Queue
	// Latest learns what users without a session send.
	Latest *session.Latest
	Log    *slog.Logger
	// Now is the time of day, in the precision of the contract.
	Now func() time.Time
	// Workers is nil if each node hands over what it stores.
	Workers Workers
	// Traces is nil if no message is traced.
	Traces *traced.Messages
}

// Workers hand over messages that other nodes have stored.
type Workers interface {
	// HandOver reports whether they hand over every message that is stored from now on, by calls of
	// HandOver on any node. It must not block.
	HandOver() bool
}

// Counters count events of a Delivery. They only grow.
type Counters struct {
	Sends, Duplicates, Notifications, StorageErrors, BusErrors atomic.Int64
	// MarksKnown are rows that were known to stand (R_STANDS), so they are not in Marks.
	Marks, MarksWritten, MarksKnown atomic.Int64
}

// Delivery sends messages and marks pending rows. It is safe for concurrent use.
type Delivery struct {
	Config
	Count Counters
}

// New returns a Delivery without goroutines.
func New(cfg Config) *Delivery { return &Delivery{Config: cfg} }

// writeTimeout bounds a write with everything that follows from it.
const writeTimeout = 10 * time.Second

// Detach returns a context for a write with everything that follows from it. It ends after
// writeTimeout, and not when the caller's context ends.
func Detach(ctx context.Context) (context.Context, context.CancelFunc) {
	//rule:request_id_reaches_storage.keep-request-behind-timeout
	return context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
}

// Announcement is an event for the sessions of some users on all nodes. It may be lost.
type Announcement struct {
	To []tidemark.UserID
	// Event is sent without its To, which Publish sets to the users' leases.
	Event bus.Event
	// Except, if not empty, is a session that does not get it.
	Except tidemark.SessionID
	// AllNodes sends it to every node, even without a session of To, because all nodes cache what
	// it changes.
	AllNodes bool
}

// Publish sends announcements. It does one look-up for all of them, and one publication for each
// announcement and node. If the registry does not answer, certain is false: with onlyCertain
// nothing is sent, else only this node's sessions get it. failed says of each announcement that a
// node that may be alive may not have got it.
//
// A node that misses an announcement with AllNodes has an outdated cache. leases.Untold makes it
// drop that.
func (d *Delivery) Publish(
	ctx context.Context, all []Announcement, onlyCertain bool,
) (certain bool, failed []bool) {
	failed = make([]bool, len(all))
	var users []tidemark.UserID
	for _, a := range all {
		users = append(users, a.To...)
	}
	leases, certain := d.Leases.Lookup(ctx, users)
	if onlyCertain && !certain {
		return false, failed
	}
	nodes := d.Leases.Nodes()
	var publications []bus.Publication
	var of []int // the announcement of each publication
	for at, a := range all {
		n := len(a.To)
		for _, to := range a.nodes(leases[:n], nodes) {
			event := a.Event
			event.To = to.Leases
			publications = append(publications, bus.Publication{Node: to.Node, Event: event})
			of = append(of, at)
		}
		leases = leases[n:]
	}
	for i, err := range d.publish(ctx, publications) {
		if err == nil || tidemark.CodeOf(err) == tidemark.NotFound {
			continue
		}
		failed[of[i]] = true
		if all[of[i]].AllNodes && slices.Contains(nodes, publications[i].Node) {
			//rule:nothing_outside_membership.drop-caches-of-nodes-that-missed-it
			d.Leases.Untold()
		}
	}
	return certain, failed
}

// nodes returns the nodes to which an announcement goes, each with its leases.
func (a *Announcement) nodes(leases [][]registry.Lease, all []registry.Node) []registry.Addressed {
	if a.Except != "" {
		leases = without(leases, a.Except)
	}
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

// without returns the leases of the other sessions.
func without(leases [][]registry.Lease, session tidemark.SessionID) [][]registry.Lease {
	others := make([][]registry.Lease, len(leases))
	for i, of := range leases {
		others[i] = slices.DeleteFunc(slices.Clone(of),
			func(l registry.Lease) bool { return l.Session == session })
	}
	return others
}

// publish sends publications and counts failures.
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
