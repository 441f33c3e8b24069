// Package leases is a node's standing in the registry: its own lease and those of its sessions,
// where users and sessions are, and whether the node can be reached (delivery.md §4, Crash epoch).
//
// It decides nothing about sessions. Heartbeat returns a Report, and the caller acts on it.
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

// Config is what Leases work with. All fields are required.
type Config struct {
	Registry registry.Registry
	Nodes    registry.Nodes
	Bus      bus.Bus
	// Node is this node; Sessions are those that it serves. Chats is what it remembers of members:
	// the leases say until when that may be trusted.
	Node     registry.Node
	Sessions *session.Table
	Chats    *chat.Cache
	Log      *slog.Logger
	// NodeTTL is the life of the node's lease, whose heartbeat comes three times in it. LeaseTTL is
	// that of a session's lease.
	NodeTTL, LeaseTTL time.Duration
}

// Counters only grow.
type Counters struct {
	// Lost counts leases that the registry no longer had, Epochs the epochs that were noticed,
	// Missed interruptions of the bus, Failed calls that the registry did not answer.
	Lost, Epochs, Missed, Failed atomic.Int64
}

// nodeState says whether the node has a lease of its own.
type nodeState int32

const (
	joined nodeState = iota
	// outdated: the lease has run out, or the node missed something. It has to join anew, as a node
	// that died, so that the sessions of all nodes reconcile (R_EPOCH).
	outdated
)

// Leases is safe for concurrent use. Use New, then Join; then call Await and Heartbeat in turn.
type Leases struct {
	cfg Config
	// Count is what the leases count.
	Count Counters
	// early asks for a heartbeat before its time.
	early signal.Flag

	mu   sync.Mutex
	node nodeState
	// everySession says that the next heartbeat refreshes the leases of all sessions, and not only
	// of the part whose turn it is.
	everySession bool
	// silent says that the registry did not answer the last heartbeat.
	silent bool
	// met says that there was another node since this one started.
	met   bool
	epoch registry.Epoch
	// nodes are those that have a lease, this one included. since is when this one joined.
	nodes []registry.Node
	since time.Time
	// part is the part of the sessions that was refreshed last.
	part int
}

// New returns the leases of a node that has not joined.
func New(cfg Config) *Leases { return &Leases{cfg: cfg, early: signal.New()} }

// Nodes returns the nodes that have a lease, this one included, by the last heartbeat. The result
// must not be changed.
func (l *Leases) Nodes() []registry.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.nodes
}

// Alone reports whether there is no other node, by the last heartbeat.
func (l *Leases) Alone() bool { return len(l.Nodes()) < 2 }

// Epoch returns the epoch of the last heartbeat.
func (l *Leases) Epoch() registry.Epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// Rejoin makes the next heartbeat join the registry anew, so that the sessions of all nodes
// reconcile and all nodes forget what they remember of members. It comes soon.
func (l *Leases) Rejoin() {
	l.mu.Lock()
	l.node = outdated
	l.mu.Unlock()
	l.early.Set()
}

// Missed notes that publications to the node may have been lost, and rejoins: a session elsewhere
// may have left a proof that is not true.
func (l *Leases) Missed() {
	l.Count.Missed.Add(1)
	l.cfg.Log.Warn("publications to this node may have been lost: all sessions reconcile")
	l.cfg.Chats.TrustUntil(time.Time{}, 0)
	l.Rejoin()
}

// CheckAll makes the next heartbeat look at the leases of all sessions. It comes soon.
func (l *Leases) CheckAll() {
	l.mu.Lock()
	l.everySession = true
	l.mu.Unlock()
	l.early.Set()
}

// Degraded returns nil if the node reaches the others and is reached by them, else Unavailable with
// the reason.
func (l *Leases) Degraded() error {
	l.mu.Lock()
	silent, node := l.silent, l.node
	l.mu.Unlock()
	switch {
	case silent:
		return tidemark.Errorf(tidemark.Unavailable, "the registry cannot be reached")
	case node == outdated:
		return tidemark.Errorf(tidemark.Unavailable,
			"the node has lost its lease in the registry, or missed something, and joins anew")
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

// Failed notes that the registry did not answer a call.
func (l *Leases) Failed(what string, err error) {
	l.Count.Failed.Add(1)
	l.cfg.Log.Warn(what, "error", err)
}
