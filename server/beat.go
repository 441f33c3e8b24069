package server

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// comparesPerSecond bounds how fast the sessions of a node are told to compare: each costs a read or two.
const comparesPerSecond = 2_000

// pulse is what a node knows of its standing among the others. It is safe for concurrent use.
type pulse struct {
	// due asks for a beat before its time, compare for a comparison of all sessions.
	due, compare chan struct{}
	// lost says that the node has to join the registry anew: its lease has run out, or it missed something. all says that a session has no lease.
	lost, all atomic.Bool
	// failing says that the last beat failed.
	failing atomic.Bool
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
}

func newPulse() *pulse {
	return &pulse{due: make(chan struct{}, 1), compare: make(chan struct{}, 1), born: time.Now()}
}

// known returns the present epoch and the nodes.
func (p *pulse) known() (registry.Epoch, []registry.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch, p.nodes
}

// alone reports whether there is no other node, by the last beat.
func (p *pulse) alone() bool {
	_, nodes := p.known()
	return len(nodes) < 2
}

// trusts reports whether news of members reaches the node, so that what it remembers of them is true. It asks the clock, since a process may stand still.
func (p *pulse) trusts() bool { return int64(time.Since(p.born)) < p.trusted.Load() }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// join takes the node's lease for the first time. A registry that cannot be reached is no reason not to serve: the beat goes on trying.
func (s *Server) join(ctx context.Context) error {
	err := s.joinNow(ctx)
	if err == nil {
		err = s.beat(ctx)
	}
	if tidemark.CodeOf(err) == tidemark.Unavailable {
		s.beatFailed(err)
		return nil
	}
	return err
}

// joinNow takes the node's lease.
func (s *Server) joinNow(ctx context.Context) error {
	s.pulse.trusted.Store(0)
	if err := s.nodes.Join(ctx, s.node, s.cfg.NodeTTL); err != nil {
		s.pulse.lost.Store(true)
		return err
	}
	s.pulse.mu.Lock()
	defer s.pulse.mu.Unlock()
	s.pulse.joined = time.Now()
	return nil
}

// beatLoop keeps the node's lease, and those of its sessions, until ctx ends.
func (s *Server) beatLoop(ctx context.Context) {
	for s.awaitBeat(ctx) {
		if err := s.beat(ctx); err != nil && ctx.Err() == nil {
			s.beatFailed(err)
		}
	}
}

// awaitBeat waits until the next beat: every third of the node's life, or, when one is asked for, at once but at most once in a pause. It reports whether ctx
// goes on.
func (s *Server) awaitBeat(ctx context.Context) bool {
	timer := time.NewTimer(s.cfg.NodeTTL / 3)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.pulse.due:
		return pause(ctx, min(debtsPause, s.cfg.NodeTTL/3))
	case <-ctx.Done():
		return false
	}
}

// beat prolongs the node's lease and those of a part of its sessions, takes lost ones again, and lets all sessions compare when a node died (R_EPOCH). A node that
// has no lease any more, or missed something, joins the registry anew, as one that died.
func (s *Server) beat(ctx context.Context) error {
	began := time.Now()
	again := s.pulse.lost.Swap(false)
	if again {
		if err := s.joinNow(ctx); err != nil {
			return err
		}
	}
	again = s.pulse.all.Swap(false) || again
	sessions := s.dueLeases(again)
	leases := make([]registry.Lease, len(sessions))
	byLease := make(map[registry.Lease]*session.Session, len(sessions))
	for i, sess := range sessions {
		leases[i] = sess.Lease
		byLease[sess.Lease] = sess
	}
	refreshed, err := s.registry.Refresh(ctx, s.node, s.cfg.NodeTTL, leases, s.cfg.LeaseTTL)
	if err != nil {
		s.pulse.all.Store(again)
		if tidemark.CodeOf(err) == tidemark.NotFound { // the lease has run out, or the registry forgot it
			s.pulse.lost.Store(true)
			signal(s.pulse.due)
		}
		return err
	}
	s.beaten(began, refreshed)
	for _, lease := range refreshed.Replaced {
		if sess := byLease[lease]; sess != nil {
			if _, err := s.closeSessions(ctx, []session.Ending{sess.Ending()}); err != nil {
				s.log.Warn("a session whose device has a newer one was not closed cleanly", "session", sess.ID, "error", err)
			}
		}
	}
	for _, lease := range refreshed.Lost {
		if sess := byLease[lease]; sess != nil && !sess.Ended() {
			s.count.leasesLost.Add(1)
			s.takeLease(ctx, sess)
		}
	}
	return nil
}

// dueLeases returns the sessions whose leases are to be refreshed in this beat: each has its turn every third of a lease's life.
func (s *Server) dueLeases(all bool) []*session.Session {
	sessions := s.sessions.all()
	parts := int(s.cfg.LeaseTTL / s.cfg.NodeTTL)
	if all || parts < 2 {
		return sessions
	}
	s.pulse.mu.Lock()
	s.pulse.part = (s.pulse.part + 1) % parts
	part := s.pulse.part
	s.pulse.mu.Unlock()
	due := sessions[:0]
	for _, sess := range sessions {
		h := fnv.New32a()
		_, _ = h.Write([]byte(sess.ID))
		if int(h.Sum32()%uint32(parts)) == part {
			due = append(due, sess)
		}
	}
	return due
}

// beaten takes in what a beat that began at a time found.
func (s *Server) beaten(began time.Time, r registry.Refreshed) {
	p := s.pulse
	p.mu.Lock()
	before, joined := p.epoch, p.joined
	p.epoch, p.nodes = r.Epoch, r.Nodes
	p.mu.Unlock()
	if before != r.Epoch && before != (registry.Epoch{}) {
		s.count.epochs.Add(1)
		s.log.Info("a node died, or the registry forgot: all sessions compare", "crashes", r.Epoch.Crashes)
		s.feed.ForgetPeople()
		signal(p.compare)
	}
	// Who came a moment ago is not known to all others yet: of what they change he is not told.
	if known := len(r.Nodes) < 2 || began.Sub(joined) >= s.cfg.NodeTTL; known && s.hears() == nil {
		p.trusted.Store(int64(began.Add(s.cfg.NodeTTL).Sub(p.born)))
	}
	if p.failing.Swap(false) {
		s.log.Info("the registry is there again")
	}
}

// beatFailed notes that the node cannot reach the registry. While that lasts nobody tells it of what others store.
func (s *Server) beatFailed(err error) {
	s.registryFailed("the leases were not refreshed", err)
	s.pulse.failing.Store(true)
	signal(s.pulse.compare)
}

// missed notes that publications to the node may have been lost: it joins the registry anew, so that all sessions compare.
func (s *Server) missed() {
	s.count.missed.Add(1)
	s.log.Warn("publications to this node may have been lost: all sessions compare")
	s.pulse.trusted.Store(0)
	s.pulse.lost.Store(true)
	signal(s.pulse.due)
}

// hears returns nil if publications to the node reach it.
func (s *Server) hears() error {
	if c, ok := s.bus.(checker); ok {
		return c.Check(context.Background())
	}
	return nil
}

// Degraded returns nil if the node reaches the others and is reached by them, else Unavailable with the reason. A degraded node stores, marks and confirms; its
// sessions learn of what other nodes store by comparing, within some seconds.
func (s *Server) Degraded() error {
	switch {
	case s.pulse.failing.Load():
		return tidemark.Errorf(tidemark.Unavailable, "the registry cannot be reached")
	case s.pulse.lost.Load():
		return tidemark.Errorf(tidemark.Unavailable, "the node has lost its lease in the registry, or missed something, and joins anew")
	}
	return s.hears()
}

// compareLoop lets all sessions compare when that is asked for, and again and again while the node is degraded.
func (s *Server) compareLoop(ctx context.Context) {
	for {
		select {
		case <-s.pulse.compare:
		case <-ctx.Done():
			return
		}
		for deaf := true; deaf; {
			deaf = s.Degraded() != nil
			if !s.compareAll(ctx, deaf) {
				return
			}
		}
	}
}

// compareAll orders a comparison for each session, spread over half of a node's life, or over as long as comparesPerSecond takes. A deaf node's sessions compare
// whatever the epoch is. It reports whether ctx goes on.
func (s *Server) compareAll(ctx context.Context, deaf bool) bool {
	all := s.sessions.all()
	slices := min(100, 1+len(all)/100)
	over := max(s.cfg.NodeTTL/2, time.Duration(len(all))*time.Second/comparesPerSecond)
	for i := range slices {
		epoch, _ := s.pulse.known()
		for _, sess := range all[len(all)*i/slices : len(all)*(i+1)/slices] {
			sess.Compare(epoch, deaf)
		}
		if (deaf || slices > 1) && !pause(ctx, over/time.Duration(slices)) {
			return false
		}
	}
	return ctx.Err() == nil
}
