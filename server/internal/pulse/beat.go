package pulse

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Join takes the node's lease for the first time. A registry that cannot be reached is no reason not to serve: the beat goes on trying.
func (p *Pulse) Join(ctx context.Context) error {
	err := p.join(ctx)
	if err == nil {
		err = p.beat(ctx)
	}
	if tidemark.CodeOf(err) == tidemark.Unavailable {
		p.failed(err)
		return nil
	}
	return err
}

// join takes the node's lease.
func (p *Pulse) join(ctx context.Context) error {
	p.trusted.Store(0)
	if err := p.cfg.Nodes.Join(ctx, p.cfg.Node, p.cfg.NodeTTL); err != nil {
		p.lost.Store(true)
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined = time.Now()
	return nil
}

// BeatLoop keeps the node's lease, and those of its sessions, until ctx ends.
func (p *Pulse) BeatLoop(ctx context.Context) {
	for p.await(ctx) {
		if err := p.beat(ctx); err != nil && ctx.Err() == nil {
			p.failed(err)
		}
	}
}

// await waits until the next beat: every third of the node's life, or, when one is asked for, at once but at most once in a pause. It reports whether ctx goes on.
func (p *Pulse) await(ctx context.Context) bool {
	timer := time.NewTimer(p.cfg.NodeTTL / 3)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.due:
		return flow.Pause(ctx, min(pauseBetween, p.cfg.NodeTTL/3))
	case <-ctx.Done():
		return false
	}
}

// beat prolongs the node's lease and those of a part of its sessions, takes lost ones again, and lets all sessions compare when a node died (R_EPOCH). A node that
// has no lease any more, or missed something, joins the registry anew, as one that died.
func (p *Pulse) beat(ctx context.Context) error {
	began := time.Now()
	all := p.lost.Swap(false)
	if all {
		//rule:R_EPOCH.join-anew
		if err := p.join(ctx); err != nil {
			return err
		}
	}
	all = p.all.Swap(false) || all
	sessions := p.turn(all)
	leases := make([]registry.Lease, 0, len(sessions))
	byLease := make(map[registry.Lease]*session.Session, len(sessions))
	var gone repairs
	for _, sess := range sessions {
		if sess.LeaseUnconfirmed() { // if it has one, that was taken later than the session looked
			gone.lost = append(gone.lost, sess)
			continue
		}
		leases = append(leases, sess.Lease)
		byLease[sess.Lease] = sess
	}
	refreshed, err := p.cfg.Registry.Refresh(ctx, p.cfg.Node, p.cfg.NodeTTL, leases, p.cfg.LeaseTTL)
	if err != nil {
		p.all.Store(true)
		if tidemark.CodeOf(err) == tidemark.NotFound { // the lease has run out, or the registry forgot it
			p.cfg.Log.Warn("the registry has no lease of this node: it was away for too long, the registry was emptied, or another process has the same name", "node", p.cfg.Node.ID)
			//rule:R_EPOCH.rejoin-without-lease
			p.Rejoin()
		}
		return err
	}
	p.beaten(began, refreshed)
	//rule:R_ADDR.end-replaced-sessions
	for _, lease := range refreshed.Replaced {
		if sess := byLease[lease]; sess != nil {
			gone.replaced = append(gone.replaced, sess)
		}
	}
	for _, lease := range refreshed.Lost {
		if sess := byLease[lease]; sess != nil && !sess.Ended() {
			//rule:R_NOBODY.take-lost-lease-again
			p.Count.LeasesLost.Add(1)
			gone.lost = append(gone.lost, sess)
		}
	}
	for _, lease := range refreshed.Elsewhere {
		if sess := byLease[lease]; sess != nil {
			gone.elsewhere = append(gone.elsewhere, sess)
		}
	}
	// In an order that no map gives, so that a run of the simulation can be repeated.
	slices.SortFunc(gone.lost, func(a, b *session.Session) int {
		return cmp.Or(cmp.Compare(a.User(), b.User()), cmp.Compare(a.Lease.Device, b.Lease.Device))
	})
	p.mu.Lock()
	//rule:pending_or_delivered.remember-lost-leases
	p.gone.replaced, p.gone.lost = append(p.gone.replaced, gone.replaced...), append(p.gone.lost, gone.lost...)
	p.gone.elsewhere = append(p.gone.elsewhere, gone.elsewhere...)
	p.mu.Unlock()
	flow.Signal(p.repair)
	return nil
}

// turn returns the sessions whose leases are refreshed in this beat: each has its turn every third of a lease's life.
func (p *Pulse) turn(all bool) []*session.Session {
	//rule:R_NOBODY.refresh-registered-sessions-only
	sessions := slices.DeleteFunc(p.cfg.Sessions(), func(s *session.Session) bool { return !s.LeaseSettled() })
	parts := int(p.cfg.LeaseTTL / p.cfg.NodeTTL)
	if all || parts < 2 {
		return sessions
	}
	p.mu.Lock()
	p.part = (p.part + 1) % parts
	part := p.part
	p.mu.Unlock()
	due := sessions[:0]
	for _, sess := range sessions {
		h := fnv.New32a()
		_, _ = h.Write([]byte(sess.ID()))
		if int(h.Sum32()%uint32(parts)) == part {
			due = append(due, sess)
		}
	}
	return due
}

// beaten takes in what a beat that began at a time found.
func (p *Pulse) beaten(began time.Time, r registry.Refreshed) {
	p.mu.Lock()
	before, joined := p.epoch, p.joined
	p.epoch, p.nodes = r.Epoch, r.Nodes
	p.mu.Unlock()
	if len(r.Nodes) > 1 {
		p.met.Store(true)
	}
	//rule:R_EPOCH.compare-after-epoch-change
	if before != r.Epoch && before != (registry.Epoch{}) {
		p.Count.Epochs.Add(1)
		p.cfg.Log.Info("a node died, or the registry forgot: all sessions compare", "crashes", r.Epoch.Crashes)
		//rule:nothing_outside_membership.forget-cache-after-epoch-change
		p.cfg.Forget()
		//rule:R_EPOCH.signal-comparison
		flow.Signal(p.compare)
		p.Retake() // what the registry forgot, if it did
	}
	hears := p.cfg.Hears() == nil
	//rule:R_EPOCH.compare-while-disconnected
	if !hears {
		flow.Signal(p.compare)
	}
	// Who came a moment ago is not known to all others yet: of what they change he is not told.
	if known := len(r.Nodes) < 2 || began.Sub(joined) >= p.cfg.NodeTTL; known && hears && !p.lost.Load() {
		p.trusted.Store(int64(began.Add(p.cfg.NodeTTL).Sub(p.born)))
	}
	if p.failing.Swap(false) {
		p.cfg.Log.Info("the registry is there again")
	}
}

// failed notes that the node cannot reach the registry. While that lasts nobody tells it of what others store.
func (p *Pulse) failed(err error) {
	p.Count.Failed.Add(1)
	p.cfg.Log.Warn("the leases were not refreshed", "error", err)
	p.failing.Store(true)
	//rule:pending_or_delivered.compare-while-disconnected
	flow.Signal(p.compare)
}
