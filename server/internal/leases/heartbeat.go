package leases

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// earlyPause is the least time between two requested heartbeats.
const earlyPause = time.Second

// Report is the result of a heartbeat. The caller acts on it.
type Report struct {
	// Lost has sessions whose lease the registry does not have, or did not confirm. Their leases
	// are to be acquired again.
	Lost []*session.Session
	// Superseded has sessions whose device has a newer session. They are to be closed.
	Superseded []*session.Session
	// Elsewhere has sessions whose lease another node has taken. That node sends a Request. If none
	// comes, their leases are to be acquired again.
	Elsewhere []*session.Session
	// Reconcile says that all sessions have to reconcile. A node died, the registry lost its data
	// or does not answer, or publications do not reach this node.
	Reconcile bool
}

// Join joins the registry and sends the first heartbeat. If the registry is unreachable, the node
// serves all the same, and later heartbeats join.
func (l *Leases) Join(ctx context.Context) (Report, error) {
	err := l.join(ctx)
	if err == nil {
		return l.Heartbeat(ctx), nil
	}
	if tidemark.CodeOf(err) == tidemark.Unavailable {
		return l.unanswered(err), nil
	}
	return Report{}, err
}

// join takes the node's lease. Cached rosters are not trusted until the next refresh.
func (l *Leases) join(ctx context.Context) error {
	l.cfg.Chats.TrustUntil(time.Time{}, 0)
	err := l.cfg.Nodes.Join(ctx, l.cfg.Node, l.cfg.NodeTTL)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.node = outdated
		return err
	}
	l.since = time.Now()
	return nil
}

// Await waits until the next heartbeat is due, and returns false when ctx ends. A heartbeat is due
// every third of NodeTTL, or soon after CheckAll or Rejoin.
func (l *Leases) Await(ctx context.Context) bool {
	early, ok := l.early.WaitUntil(ctx, time.Now().Add(l.cfg.NodeTTL/3))
	if early {
		return signal.Pause(ctx, min(earlyPause, l.cfg.NodeTTL/3))
	}
	return ok
}

// Heartbeat refreshes the node's lease and those of a part of its sessions. If the node has lost
// its lease or missed publications, it first joins again. All nodes then reconcile, as after a
// crash (R_EPOCH).
func (l *Leases) Heartbeat(ctx context.Context) Report {
	began := time.Now()
	rejoin := l.takeOutdated()
	if rejoin {
		//rule:R_EPOCH.join-anew
		if err := l.join(ctx); err != nil {
			return l.unanswered(err)
		}
	}
	var report Report
	byLease := make(map[registry.Lease]*session.Session)
	var held []registry.Lease
	for _, s := range l.takeTurn(rejoin) {
		// If the lease was granted, that was after the session had reconciled.
		if s.LeaseUnconfirmed() {
			report.Lost = append(report.Lost, s)
			continue
		}
		held = append(held, s.Lease)
		byLease[s.Lease] = s
	}
	refreshed, err := l.cfg.Registry.Refresh(ctx, l.cfg.Node, l.cfg.NodeTTL, held, l.cfg.LeaseTTL)
	if err != nil {
		return l.notRefreshed(err)
	}
	report.Reconcile = l.refreshed(began, refreshed)
	//rule:R_ADDR.end-replaced-sessions
	report.Superseded = of(refreshed.Replaced, byLease)
	for _, s := range of(refreshed.Lost, byLease) {
		if !s.Ended() {
			//rule:R_NOBODY.take-lost-lease-again
			report.Lost = append(report.Lost, s)
			l.Count.Lost.Add(1)
		}
	}
	report.Elsewhere = of(refreshed.Elsewhere, byLease)
	// Sorted, so that a run of the simulation is repeatable.
	slices.SortFunc(report.Lost, func(a, b *session.Session) int {
		return cmp.Or(cmp.Compare(a.User(), b.User()), cmp.Compare(a.Lease.Device, b.Lease.Device))
	})
	return report
}

// of returns the sessions of leases.
func of(leases []registry.Lease, byLease map[registry.Lease]*session.Session) []*session.Session {
	var sessions []*session.Session
	for _, lease := range leases {
		if s := byLease[lease]; s != nil {
			sessions = append(sessions, s)
		}
	}
	return sessions
}

// takeOutdated reports whether the node has to join again. It resets the state, so that
// publications which are missed while joining make it join once more.
func (l *Leases) takeOutdated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rejoin := l.node == outdated
	l.node = joined
	return rejoin
}

// takeTurn returns the sessions whose leases this heartbeat refreshes. Each session's turn comes
// three times within LeaseTTL.
func (l *Leases) takeTurn(all bool) []*session.Session {
	//rule:R_NOBODY.refresh-registered-sessions-only
	sessions := slices.DeleteFunc(l.cfg.Sessions.All(),
		func(s *session.Session) bool { return !s.LeaseSettled() })
	parts := int(l.cfg.LeaseTTL / l.cfg.NodeTTL)
	l.mu.Lock()
	all, l.everySession = all || l.everySession, false
	if all || parts < 2 {
		l.mu.Unlock()
		return sessions
	}
	l.part = (l.part + 1) % parts
	part := l.part
	l.mu.Unlock()
	return slices.DeleteFunc(sessions, func(s *session.Session) bool {
		h := fnv.New32a()
		_, _ = h.Write([]byte(s.ID()))
		return int(h.Sum32()%uint32(parts)) != part
	})
}

// refreshed records the registry's answer to a heartbeat that began at began. It reports whether
// all sessions have to reconcile.
func (l *Leases) refreshed(began time.Time, r registry.Refreshed) (reconcile bool) {
	l.mu.Lock()
	before, wasSilent := l.epoch, l.silent
	l.epoch, l.nodes, l.silent = r.Epoch, r.Nodes, false
	l.met = l.met || len(r.Nodes) > 1
	met, since := l.met, l.since
	l.mu.Unlock()
	reached := l.reached() == nil
	//rule:R_EPOCH.compare-while-disconnected
	reconcile = !reached
	//rule:R_EPOCH.compare-after-epoch-change
	if before != r.Epoch && before != (registry.Epoch{}) {
		l.Count.Epochs.Add(1)
		l.cfg.Log.Info("a node died, or the registry lost its data: all sessions reconcile",
			"crashes", r.Epoch.Crashes)
		//rule:nothing_outside_membership.forget-cache-after-epoch-change
		l.cfg.Chats.Forget()
		//rule:R_EPOCH.signal-comparison
		reconcile = true
		l.CheckAll() // the registry may have lost their leases
	}
	// During this node's first NodeTTL, other nodes may not know it, and do not send it changes of
	// members or relations.
	//rule:R_WIPE.no-term-before-all-know-the-node
	known := len(r.Nodes) < 2 || began.Sub(since) >= l.cfg.NodeTTL
	if !reached {
		// What an earlier heartbeat allowed ends at once.
		//rule:nothing_outside_membership.no-trust-while-not-reached
		l.cfg.Chats.TrustUntil(time.Time{}, 0)
	}
	if known && reached && !l.isOutdated() {
		l.trust(began.Add(l.cfg.NodeTTL), met)
	}
	if wasSilent {
		l.cfg.Log.Info("the registry answers again")
	}
	return reconcile
}

// trust sets how long cached rosters may be trusted: until then, changes of members reach this
// node. A node without a connection to the registry cannot publish the changes that it makes.
// Therefore, if there ever was another node, a roster is trusted for at most LeaseTTL.
func (l *Leases) trust(until time.Time, met bool) {
	age := time.Duration(0)
	if met {
		age = l.cfg.LeaseTTL
	}
	l.cfg.Chats.TrustUntil(until, age)
}

func (l *Leases) isOutdated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.node == outdated
}

// notRefreshed handles a failed refresh.
func (l *Leases) notRefreshed(err error) Report {
	l.mu.Lock()
	l.everySession = true
	l.mu.Unlock()
	if tidemark.CodeOf(err) == tidemark.NotFound {
		l.cfg.Log.Warn("the registry has no lease of this node, so the node joins again: it did "+
			"not reach the registry for too long, the registry was emptied, or another process "+
			"has the same --node", "node", l.cfg.Node.ID)
		//rule:R_EPOCH.rejoin-without-lease
		l.Rejoin()
	}
	return l.unanswered(err)
}

// unanswered records that the registry did not answer. Other nodes then cannot find this node's
// sessions, so all of these reconcile.
func (l *Leases) unanswered(err error) Report {
	l.Failed("the leases were not refreshed; the next heartbeat tries again", err)
	l.mu.Lock()
	l.silent = true
	l.mu.Unlock()
	// The registry has no lease of this node, or the heartbeat found complaints before it failed.
	//rule:nothing_outside_membership.no-trust-after-half-a-heartbeat
	if l.isOutdated() || l.reached() != nil {
		l.cfg.Chats.TrustUntil(time.Time{}, 0)
	}
	//rule:pending_or_delivered.compare-while-disconnected
	return Report{Reconcile: true}
}
