// Package leases keeps a node's entries in the registry: the node's lease and the leases of its
// sessions. It also looks up where users and sessions are, and reports whether the node is
// reachable (delivery.md §4, Heartbeat).
//
// It does not act on sessions. Heartbeat returns a Report, and the caller acts on it.
package leases

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Config has what Leases need. All fields are required.
type Config struct {
	Registry registry.Registry
	Nodes    registry.Nodes
	Bus      bus.Bus
	// Node is this node. Sessions are the ones that it serves. Leases decide how long the rosters
	// in Chats are trusted.
	Node     registry.Node
	Sessions *session.Table
	Chats    *chat.Cache
	Log      *slog.Logger
	// NodeTTL is the life of the node's lease; a heartbeat refreshes it every third of NodeTTL.
	// LeaseTTL is the life of a session's lease.
	NodeTTL, LeaseTTL time.Duration
}

// Counters count events of Leases. They only grow.
type Counters struct {
	// Lost counts leases that the registry no longer had, and Epochs new epochs. Missed counts
	// interruptions of the bus, and Failed calls to the registry that failed.
	Lost, Epochs, Missed, Failed atomic.Int64
}

// nodeState says whether the node's lease is valid.
type nodeState int32

const (
	joined nodeState = iota
	// outdated says that the lease expired, or that the node missed publications. The node has to
	// join again, so that all sessions of all nodes reconcile (R_EPOCH).
	outdated
)

// Leases keeps a node's leases. Call New, then Join, then Await and Heartbeat in turn. All methods
// are safe for concurrent use.
type Leases struct {
	cfg   Config
	Count Counters
	// early is set to request a heartbeat before it is due.
	early signal.Flag

	mu   sync.Mutex
	node nodeState
	// everySession says that the next heartbeat refreshes the leases of all sessions.
	everySession bool
	// silent says that the registry did not answer the last heartbeat.
	silent bool
	// met says that another node was seen since this one started.
	met   bool
	epoch registry.Epoch
	// nodes has the nodes with a lease, this one included. since is when this node joined.
	nodes []registry.Node
	since time.Time
	// part is the part of the sessions that was refreshed last.
	part int
}

// New returns the Leases of a node that has not joined yet.
func New(cfg Config) *Leases { return &Leases{cfg: cfg, early: signal.New()} }

// Nodes returns the nodes with a lease as of the last heartbeat, this one included. The caller must
// not change the slice.
func (l *Leases) Nodes() []registry.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes
}

// Alone reports whether no other node had a lease at the last heartbeat.
func (l *Leases) Alone() bool { return len(l.Nodes()) < 2 }

// Epoch returns the registry's epoch as of the last heartbeat.
func (l *Leases) Epoch() registry.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// Rejoin makes the next heartbeat join the registry again, and requests it soon. All nodes then
// reconcile and drop their cached rosters.
func (l *Leases) Rejoin() {
	l.mu.Lock()
	l.node = outdated
	l.mu.Unlock()
	l.early.Set()
}

// Untold makes a node that missed a change drop what it has cached: the node may be alive. If the
// bus complains (bus.Complainer), Untold requests a heartbeat, which writes the complaint.
// Otherwise this node joins the registry again, so that all nodes drop their caches (Rejoin).
func (l *Leases) Untold() {
	//rule:R_EPOCH.no-epoch-for-each-failure
	if _, complains := l.cfg.Bus.(bus.Complainer); complains {
		l.early.Set()
		return
	}
	l.Rejoin()
}

// Missed records that publications to this node may have been lost, and calls Rejoin. A session on
// another node may have left a proof that is wrong.
func (l *Leases) Missed() {
	l.Count.Missed.Add(1)
	l.cfg.Log.Warn("publications to this node may have been lost: all sessions reconcile")
	l.cfg.Chats.TrustUntil(time.Time{}, 0)
	l.Rejoin()
}

// CheckAll makes the next heartbeat refresh the leases of all sessions, and requests it soon.
func (l *Leases) CheckAll() {
	l.mu.Lock()
	l.everySession = true
	l.mu.Unlock()
	l.early.Set()
}

// Degraded returns nil if this node and the others reach each other, else Unavailable with the
// reason.
func (l *Leases) Degraded() error {
	l.mu.Lock()
	silent, node := l.silent, l.node
	l.mu.Unlock()
	switch {
	case silent:
		return tidemark.Errorf(tidemark.Unavailable, "the registry cannot be reached")
	case node == outdated:
		return tidemark.Errorf(tidemark.Unavailable,
			"the node has lost its lease in the registry, or missed publications; it joins again")
	}
	return l.reached()
}

// reached returns nil if publications to this node arrive.
func (l *Leases) reached() error {
	if bus, ok := l.cfg.Bus.(interface {
		Check(ctx context.Context) error
	}); ok {
		return bus.Check(context.Background())
	}
	return nil
}

// Failed records that a call to the registry failed.
func (l *Leases) Failed(what string, err error) {
	l.Count.Failed.Add(1)
	l.cfg.Log.Warn(what, "error", err)
}
