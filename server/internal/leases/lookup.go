package leases

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Lookup returns the leases of each user. If the registry does not answer, certain is false, and
// only the leases of this node's sessions are returned. The caller then marks the other users and
// looks them up again later (R_RELOOK).
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

// Lease returns the lease of a session, or a zero lease if it has none. The error is Unavailable if
// the registry did not answer.
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

// Has reports whether the session belongs to the user and is on this or another node. It returns
// an error if the registry does not answer.
func (l *Leases) Has(
	ctx context.Context, user tidemark.UserID, id tidemark.SessionID,
) (bool, error) {
	if s := l.cfg.Sessions.Get(id); s != nil {
		//rule:nothing_outside_membership.session-of-this-user
		return s.User() == user, nil
	}
	lease, err := l.Lease(ctx, user, id)
	//rule:resume_lossless.find-session-on-other-nodes
	return lease.Session == id && lease.Holder() != l.cfg.Node, err
}

// Taken is the registry's answer to a request for a session's lease.
type Taken struct {
	registry.Opened
	// Epoch is the registry's epoch before the lease was granted.
	Epoch registry.Epoch
	// Orphaned says that the session had ended before the answer came. Its lease has been released.
	Orphaned bool
}

// Acquire requests a session's lease and passes the answer to the session, which then reconciles
// (R_PROOF, R_LAST). It is called for a new session and after a lost lease. If it fails, a
// heartbeat reports the session as lost.
func (l *Leases) Acquire(ctx context.Context, s *session.Session) (Taken, error) {
	return l.open(ctx, s, registry.LeaseRequest{Lease: s.Lease, TTL: l.cfg.LeaseTTL})
}

// Continue takes over the lease of an arriving session. Taken.Previous is the node that held it. If
// Previous is zero, there was no lease, and none was taken.
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
		l.Failed("the lease of a session was not acquired; the next heartbeat tries again", err)
		l.CheckAll()
	}
	answer := session.LeaseAnswer{Granted: taken.Leases > 0, Epoch: epoch}
	//rule:R_PROOF.trust-rows-by-proof-only
	answer.Proven = !taken.Others && taken.Proof != nil && *taken.Proof == epoch
	if taken.Orphaned = s.LeaseAnswered(answer); taken.Orphaned {
		//rule:R_ADDR.release-lease-taken-after-end
		l.Release(context.WithoutCancel(ctx), s, false)
		// The lease may have replaced that of the device's newer session.
		//rule:R_ADDR.retake-lease-at-once
		l.CheckAll()
	}
	return taken, err
}

// Release releases a session's lease and leaves its proof. It leaves none if the session is
// incomplete or marked is false (R_COMPLETE). If the first request for the lease is unanswered,
// Release returns false; open then releases the lease.
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
		l.Failed("a lease was not released; it expires by itself", err)
	}
	return true
}

// Leave ends the node's lease. The node must have no work left. If the node is outdated, others may
// lack its notifications, so Leave first raises the epoch. If that fails, it returns the error and
// keeps the lease: its expiry raises the epoch (R_EPOCH).
func (l *Leases) Leave(ctx context.Context) error {
	//rule:R_EPOCH.raise-before-leaving
	if l.isOutdated() {
		if err := l.RaiseEpoch(ctx); err != nil {
			return err
		}
	}
	return l.cfg.Nodes.Leave(ctx, l.cfg.Node)
}

// RaiseEpoch makes the sessions of all nodes reconcile. The node joins the registry as after a
// crash, because it has lost work that it had to retry (R_EPOCH).
func (l *Leases) RaiseEpoch(ctx context.Context) error {
	return l.cfg.Nodes.Join(ctx, l.cfg.Node, l.cfg.NodeTTL)
}
