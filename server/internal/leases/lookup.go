package leases

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Lookup returns the leases of each user. If the registry cannot be asked, certain is false, and
// only the leases of this node's sessions are returned: the caller marks everyone else, and looks
// them up again later (R_RELOOK).
func (l *Leases) Lookup(
	ctx context.Context, users []tidemark.UserID,
) (leases [][]registry.Lease, certain bool) {
	leases, err := l.cfg.Registry.Lookup(ctx, users)
	if err != nil {
		l.Failed("the members' leases are unknown: users without a session on this node count as "+
			"offline", err)
		return l.cfg.Sessions.Leases(users), false
	}
	return leases, true
}

// Lease returns the lease of a session, a zero one if it has none. Unavailable: the registry could
// not be asked.
func (l *Leases) Lease(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID,
) (registry.Lease, error) {
	leases, err := l.cfg.Registry.Lookup(ctx, []tidemark.UserID{user})
	if err != nil {
		l.Failed("the lease of a session is unknown", err)
		return registry.Lease{}, err
	}
	for _, lease := range leases[0] {
		if lease.Session == id {
			return lease, nil
		}
	}
	return registry.Lease{}, nil
}

// Has reports whether a session is a user's, here or on another node.
func (l *Leases) Has(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) bool {
	if s := l.cfg.Sessions.Get(id); s != nil {
		//rule:nothing_outside_membership.session-of-this-user
		return s.User() == user
	}
	lease, _ := l.Lease(ctx, user, id)
	//rule:resume_lossless.find-session-on-other-nodes
	return lease.Session == id && lease.Holder() != l.cfg.Node
}

// Taken is what the registry answered to a request for a session's lease.
type Taken struct {
	registry.Opened
	// Epoch is what the registry said before the lease was taken.
	Epoch registry.Epoch
	// Orphaned says that the session had ended when the answer came. Its lease has been released.
	Orphaned bool
}

// Acquire takes a session's lease and hands the registry's answer to the session, which reconciles
// as that asks for (R_PROOF, R_LAST). It is called for a new session, and again when the lease was
// lost. If the registry cannot be asked, the session has no lease until a heartbeat finds that out.
func (l *Leases) Acquire(ctx context.Context, s *session.Session) (Taken, error) {
	return l.open(ctx, s, registry.LeaseRequest{Lease: s.Lease, TTL: l.cfg.LeaseTTL})
}

// Continue takes the lease of an arriving session in place of that of another node, which is
// Taken.Previous. If that is zero the session had none, and nothing was taken.
func (l *Leases) Continue(ctx context.Context, s *session.Session) (Taken, error) {
	q := registry.LeaseRequest{Lease: s.Lease, TTL: l.cfg.LeaseTTL, Continue: true}
	return l.open(ctx, s, q)
}

func (l *Leases) open(
	ctx context.Context, s *session.Session, q registry.LeaseRequest,
) (taken Taken, err error) {
	epoch, err := l.cfg.Registry.Epoch(ctx)
	if err == nil {
		taken.Epoch = epoch
		//rule:R_EPOCH.epoch-before-lease
		taken.Opened, err = l.cfg.Registry.Open(ctx, q)
	}
	if err != nil {
		l.Failed("a session has no lease", err)
		l.CheckAll()
	}
	answer := session.LeaseAnswer{Granted: taken.Leases > 0, Epoch: epoch}
	//rule:R_PROOF.trust-rows-by-proof-only
	answer.Proven = !taken.Others && taken.Proof != nil && *taken.Proof == epoch
	if taken.Orphaned = s.LeaseAnswered(answer); taken.Orphaned {
		//rule:R_ADDR.release-lease-taken-after-end
		l.Release(context.WithoutCancel(ctx), s, false)
		// It may have replaced the lease of a newer session of the device.
		//rule:R_ADDR.retake-lease-at-once
		l.CheckAll()
	}
	return taken, err
}

// Release gives a session's lease back and leaves its proof, if the proof is true and the session's
// rows are marked (R_COMPLETE). It reports false if the registry has still to answer: then whoever
// asked releases the lease.
func (l *Leases) Release(ctx context.Context, s *session.Session, marked bool) (released bool) {
	proof, release := s.Proof()
	if !release {
		return false
	}
	//rule:R_COMPLETE.no-proof-without-rows
	if !marked {
		proof = nil
	}
	if err := l.cfg.Registry.Close(ctx, s.Lease, proof); err != nil {
		l.Failed("a lease was not released", err)
	}
	return true
}

// Leave ends the node's lease, because it has done everything that it had to.
func (l *Leases) Leave(ctx context.Context) error { return l.cfg.Nodes.Leave(ctx, l.cfg.Node) }

// RaiseEpoch makes the sessions of all nodes reconcile: the node joins the registry as one that died,
// because it does not know any more what it has to do (R_EPOCH).
func (l *Leases) RaiseEpoch(ctx context.Context) error {
	return l.cfg.Nodes.Join(ctx, l.cfg.Node, l.cfg.NodeTTL)
}
