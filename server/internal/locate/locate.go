// Package locate answers where users and sessions are: by the registry, and, while that cannot be asked, by what this node knows itself.
package locate

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/moves"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// elsewhereWithin is how long Elsewhere asks, whoever waits for it.
const elsewhereWithin = time.Second

// Locator is safe for concurrent use. All fields but Failures are set before the first call.
type Locator struct {
	Registry registry.Registry
	// Sessions are those of this node, which is Self; Nodes returns those that were there a moment ago.
	Sessions *session.Table
	Self     registry.Node
	Nodes    func() []registry.Node
	Log      *slog.Logger
	// Failures counts the times that the registry could not be asked.
	Failures atomic.Int64
}

// Failed notes that the registry could not be asked.
func (l *Locator) Failed(what string, err error) {
	l.Failures.Add(1)
	l.Log.Warn(what, "error", err)
}

// Users returns the leases of users, for a message that has to reach them. If the registry cannot be asked, known is false, and everyone who is not on this node
// counts as offline: he is marked, and looked up again later.
func (l *Locator) Users(ctx context.Context, users []tidemark.UserID) (leases [][]registry.Lease, known bool) {
	leases, err := l.Registry.Lookup(ctx, users)
	if err != nil {
		l.Failed("the members' leases are unknown: who is not on this node counts as offline", err)
		return l.Sessions.Leases(users), false
	}
	return leases, true
}

// Hint is Users for what may be missed.
func (l *Locator) Hint(ctx context.Context, users []tidemark.UserID) [][]registry.Lease {
	leases, _ := l.Users(ctx, users)
	return leases
}

// Lease returns the lease of a session, a zero one if it has none. Unavailable: the registry could not be asked.
func (l *Locator) Lease(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) (registry.Lease, error) {
	leases, err := l.Registry.Lookup(ctx, []tidemark.UserID{user})
	if err != nil {
		l.Failures.Add(1)
		return registry.Lease{}, err
	}
	for _, lease := range leases[0] {
		if lease.Session == id {
			return lease, nil
		}
	}
	return registry.Lease{}, nil
}

// Owner returns the lease of a session that another node has. If the registry cannot be asked, it is one without a device, of the node that the session's id names.
func (l *Locator) Owner(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) (lease registry.Lease, found bool, unasked error) {
	held, err := l.Lease(ctx, user, id)
	if err == nil {
		return held, held.Session == id && held.Holder() != l.Self, nil
	}
	for _, n := range l.Nodes() {
		if n != l.Self && moves.Names(id, n) {
			return registry.Lease{User: user, Node: n.ID, Boot: n.Boot, Session: id}, true, err
		}
	}
	return registry.Lease{}, false, err
}

// Elsewhere reports whether another node has the lease of a session, as far as that can be known, whether or not ctx has ended.
func (l *Locator) Elsewhere(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), elsewhereWithin)
	defer cancel()
	_, found, unasked := l.Owner(ctx, user, id)
	return found && unasked == nil
}

// Has reports whether a session is a user's, here or on another node.
func (l *Locator) Has(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) bool {
	if sess := l.Sessions.Get(id); sess != nil {
		//rule:nothing_outside_membership.session-of-this-user
		return sess.User() == user
	}
	_, found, _ := l.Owner(ctx, user, id)
	//rule:resume_lossless.find-session-on-other-nodes
	return found
}
