// Package pulse is a node's standing among the others: its own lease and those of its sessions, who else is there, whether it can be reached, and when all sessions
// have to compare because somebody could not be (delivery.md §4, Crash epoch).
package pulse

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// comparesPerSecond bounds how fast the sessions of a node are told to compare: each costs a read or two.
const comparesPerSecond = 2_000

// pauseBetween is the least time between two beats that are asked for.
const pauseBetween = time.Second

// Config is what a Pulse works with. All fields are required, except Hears.
type Config struct {
	Registry registry.Registry
	Nodes    registry.Nodes
	Node     registry.Node
	Log      *slog.Logger
	// NodeTTL is the life of the node's lease; it beats every third of it. LeaseTTL is that of a session's.
	NodeTTL, LeaseTTL time.Duration
	// Sessions returns the sessions of the node.
	Sessions func() []*session.Session
	// Lost is called for sessions whose lease is gone, Replaced for those whose device has a newer session.
	Lost, Replaced func(ctx context.Context, sessions []*session.Session)
	// Forget is called when news of members may have been missed.
	Forget func()
	// Hears returns nil if publications to the node reach it. nil: they always do.
	Hears func() error
}

// Counters only grow.
type Counters struct {
	LeasesLost, Epochs, Missed, Failed atomic.Int64
}

// Pulse is safe for concurrent use. Use New, then Join, and run BeatLoop, CompareLoop and RepairLoop.
type Pulse struct {
	cfg Config
	// Count is what the pulse counts.
	Count Counters

	// due asks for a beat before its time, compare for a comparison of all sessions, repair for what is to be done about leases.
	due, compare, repair chan struct{}
	// lost says that the node has to join the registry anew: its lease has run out, or it missed something. all says that a session has no lease.
	lost, all atomic.Bool
	// failing says that the last beat failed; met, that there ever was another node.
	failing, met atomic.Bool
	// trusted is until when what the node remembers of members is true, in nanoseconds after born.
	born    time.Time
	trusted atomic.Int64

	mu sync.Mutex
	// epoch is the present one, as far as this node knows; nodes are those that have a lease, this one included.
	epoch registry.Epoch
	nodes []registry.Node
	// joined is when the node took its lease. A node's life later, everybody knows it.
	joined time.Time
	// part is which sessions' leases are refreshed next.
	part int
	// gone are the sessions whose leases are lost or replaced, until RepairLoop takes them.
	gone repairs
}

// New returns a Pulse that does not beat yet.
func New(cfg Config) *Pulse {
	if cfg.Hears == nil {
		cfg.Hears = func() error { return nil }
	}
	return &Pulse{cfg: cfg, due: make(chan struct{}, 1), compare: make(chan struct{}, 1), repair: make(chan struct{}, 1), born: time.Now()}
}

// Nodes returns the nodes that have a lease, this one included, by the last beat. The result must not be changed.
func (p *Pulse) Nodes() []registry.Node {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nodes
}

// Alone reports whether there is no other node, by the last beat.
func (p *Pulse) Alone() bool { return len(p.Nodes()) < 2 }

// Trusts reports whether members that were read at a time are still those: news of them reach the node, and, since a node that is cut off from the registry cannot
// send any, they were read less than a session's lease ago, unless there never was anybody else. It asks the clock, since a process may stand still.
func (p *Pulse) Trusts(read time.Time) bool {
	now := time.Now()
	//rule:nothing_outside_membership.limit-cache-age
	return int64(now.Sub(p.born)) < p.trusted.Load() && (now.Sub(read) < p.cfg.LeaseTTL || !p.met.Load())
}

// Missed notes that publications to the node may have been lost: it joins the registry anew, so that all sessions compare, those of other nodes too, since a proof
// may have been left that is not true.
func (p *Pulse) Missed() {
	p.Count.Missed.Add(1)
	p.cfg.Log.Warn("publications to this node may have been lost: all sessions compare")
	p.trusted.Store(0)
	p.Rejoin()
}

// Rejoin lets the node join the registry anew with the next beat, so that everybody compares and forgets.
func (p *Pulse) Rejoin() {
	p.lost.Store(true)
	flow.Signal(p.due)
}

// Retake lets the next beat take leases again that sessions could not get.
func (p *Pulse) Retake() {
	p.all.Store(true)
	flow.Signal(p.due)
}

// Degraded returns nil if the node reaches the others and is reached by them, else Unavailable with the reason.
func (p *Pulse) Degraded() error {
	switch {
	case p.failing.Load():
		return tidemark.Errorf(tidemark.Unavailable, "the registry cannot be reached")
	case p.lost.Load():
		return tidemark.Errorf(tidemark.Unavailable, "the node has lost its lease in the registry, or missed something, and joins anew")
	}
	return p.cfg.Hears()
}

// claimed is longer than a node that claims a session waits for it, the registry's answers included.
const claimed = 2 * time.Second

// repairs are sessions whose leases a beat did not find.
type repairs struct{ lost, replaced, elsewhere []*session.Session }

// expected are sessions whose leases other nodes have, and that are left to them until then.
type expected struct {
	until    time.Time
	sessions []*session.Session
}

// RepairLoop takes lost leases again, and ends sessions that were replaced, until ctx ends. One whose lease another node has is left to that one for as long as a
// claim takes; if nobody has claimed it then, its lease is taken back. However many they are, the node goes on to beat meanwhile.
func (p *Pulse) RepairLoop(ctx context.Context) {
	var left []expected
	for {
		var due <-chan time.Time
		if len(left) > 0 {
			due = time.After(time.Until(left[0].until))
		}
		select {
		case <-p.repair:
		case <-due:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		gone := p.gone
		p.gone = repairs{}
		p.mu.Unlock()
		if len(gone.replaced) > 0 {
			p.cfg.Replaced(ctx, gone.replaced)
		}
		if len(gone.lost) > 0 {
			p.cfg.Lost(ctx, gone.lost)
		}
		if len(gone.elsewhere) > 0 {
			//rule:R_NOBODY.wait-for-pending-move
			left = append(left, expected{time.Now().Add(claimed), gone.elsewhere})
		}
		if len(left) > 0 && !time.Now().Before(left[0].until) {
			here := slices.DeleteFunc(left[0].sessions, (*session.Session).Ended)
			left = left[1:]
			p.Count.LeasesLost.Add(int64(len(here)))
			//rule:R_ADDR.release-lease-given-away
			p.cfg.Lost(ctx, here)
		}
	}
}

// CompareLoop lets all sessions compare when that is asked for, and again and again while the node is degraded, until ctx ends.
func (p *Pulse) CompareLoop(ctx context.Context) {
	for {
		select {
		case <-p.compare:
		case <-ctx.Done():
			return
		}
		for deaf := true; deaf; {
			deaf = p.Degraded() != nil
			if !p.compareAll(ctx, deaf) {
				return
			}
		}
	}
}

// compareAll orders a comparison for each session, spread over half of a node's life, or over as long as comparesPerSecond takes. A deaf node's sessions compare
// whatever the epoch is. It reports whether ctx goes on.
func (p *Pulse) compareAll(ctx context.Context, deaf bool) bool {
	all := p.cfg.Sessions()
	steps := min(100, 1+len(all)/100)
	over := max(p.cfg.NodeTTL/2, time.Duration(len(all))*time.Second/comparesPerSecond)
	for i := range steps {
		p.mu.Lock()
		epoch := p.epoch
		p.mu.Unlock()
		for _, sess := range all[len(all)*i/steps : len(all)*(i+1)/steps] {
			sess.Reconcile(epoch, deaf)
		}
		if (deaf || steps > 1) && !flow.Pause(ctx, over/time.Duration(steps)) {
			return false
		}
	}
	return ctx.Err() == nil
}
