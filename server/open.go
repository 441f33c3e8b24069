package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// OpenRequest asks for a session: a new one, or one that exists.
type OpenRequest struct {
	User tidemark.UserID
	// Device names the device. A new session of a device ends the older one. "" means a device of its own.
	Device tidemark.DeviceID
	// Session is the session to resume, "" for a new one. After is the number of the last event that the client has.
	Session tidemark.SessionID
	After   uint64
	// Statuses asks for a snapshot of statuses after caught_up. Status updates come in any case.
	Statuses bool
	// Poll asks for the rules of long-poll: an unknown, expired or foreign session is Gone instead of a new session and a reset, and a resumed
	// session begins without `open`.
	Poll bool
}

// Open opens or resumes a session and takes it over from an older connection. The first Next gives the `open` event.
//
// Errors: Gone (Poll only), Exhausted (Config.SessionsPerUser), Unavailable (stopping). A registry that cannot be reached does not
// prevent a session: it compares, and leaves no proof.
func (s *Server) Open(ctx context.Context, r OpenRequest) (*Connection, error) {
	if s.stopping.Load() {
		return nil, errStopping()
	}
	unknown := false
	if r.Session != "" {
		if held := s.sessions.get(r.Session); held != nil && held.user == r.User {
			if c := held.resume(r); c != nil {
				return c, nil
			}
		}
		if r.Poll {
			return nil, tidemark.Errorf(tidemark.Gone, "the session is unknown or has ended; poll without session to open a new one")
		}
		unknown = true
	}
	return s.open(ctx, r, unknown)
}

// open makes a new session.
func (s *Server) open(ctx context.Context, r OpenRequest, unknown bool) (*Connection, error) {
	id := newSessionID()
	if r.Device == "" {
		r.Device = tidemark.DeviceID(id)
	} else if older := s.sessions.ofDevice(r.User, r.Device); older != nil {
		// Its rows are marked and its lease released before ours is taken, so that a clean hand-over from one session of a
		// device to the next needs no comparison.
		if err := s.closeSessions(ctx, []*Session{older}); err != nil {
			s.log.Warn("an older session of a device was not closed cleanly", "session", older.id, "error", err)
		}
	}
	sess := &Session{
		server: s, id: id, user: r.User, wantStatuses: r.Statuses,
		lease: registry.Lease{User: r.User, Device: r.Device, Node: s.node.ID, Boot: s.node.Boot, Session: id},
	}
	if !s.sessions.add(sess, s.cfg.SessionsPerUser) {
		return nil, tidemark.Errorf(tidemark.Exhausted, "%s has %d sessions open, which is the limit; close one first", r.User, s.cfg.SessionsPerUser)
	}
	s.count.sessions.Add(1)
	sess.takeLease(ctx)
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if unknown {
		s.count.resets.Add(1)
		sess.control(tidemark.EventReset, tidemark.Reset{Reason: tidemark.ResetUnknownSession}.AppendJSON(nil))
	}
	return sess.attach(false, false), nil
}

// takeLease takes the session's lease and orders the look that the registry's answer asks for (R_PROOF, R_LAST). It is called for a new session, and
// again when the lease was lost.
func (s *Session) takeLease(ctx context.Context) {
	mode := lookCompare
	epoch, err := s.server.registry.Epoch(ctx)
	leased := false
	if err == nil {
		var opened registry.Opened
		opened, err = s.server.registry.Open(ctx, s.lease, s.server.cfg.LeaseTTL)
		leased = err == nil
		if leased && !opened.Others && opened.Proof != nil && *opened.Proof == epoch {
			mode = lookListing
		}
	}
	if err != nil {
		s.server.count.registryErrors.Add(1)
		s.server.log.Warn("a session has no lease", "session", s.id, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed { // a lease that nobody releases: hand-overs to it are marked, until it ends by itself
		return
	}
	s.leased = leased
	s.orderLook(mode, epoch)
	s.notify()
}

// attach makes a connection the owner of the session.
func (s *Session) attach(resumed, poll bool) *Connection {
	s.generation++
	if s.attached {
		s.server.count.replaced.Add(1)
		s.notify() // the older connection finds that it was replaced
	}
	s.attached = true
	s.server.count.connections.Add(1)
	c := &Connection{session: s, generation: s.generation, signal: make(chan struct{}, 1)}
	s.signal = c.signal
	s.notify()
	if !poll || !resumed {
		s.opening = &tidemark.Open{
			Session: s.id, Resumed: resumed, Heartbeat: s.server.cfg.Heartbeat, Resume: s.server.cfg.ResumeWindow,
		}
		s.recent = s.recent || s.wantStatuses && !resumed
		s.caughtUp = false
	}
	if !s.caughtUp {
		s.countBacklog()
	}
	return c
}

// countBacklog makes caught_up wait for everything that is in the wake set now.
func (s *Session) countBacklog() {
	for _, p := range s.wakes {
		if !p.backlog {
			p.backlog = true
			s.backlog++
		}
		p.backlogTo = max(p.backlogTo, p.woken)
	}
}

// resume goes on after a position. It returns nil if the session has ended meanwhile.
func (s *Session) resume(r OpenRequest) *Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.server.count.resumes.Add(1)
	if r.After < s.log.base || r.After > s.lastID {
		s.server.count.resets.Add(1)
		c := s.attach(false, r.Poll)
		if r.Poll {
			s.opening = nil
		}
		s.control(tidemark.EventReset, tidemark.Reset{Reason: tidemark.ResetUnknownPosition}.AppendJSON(nil))
		return c
	}
	for _, r := range s.log.rewind(r.After) {
		s.sendAgain(r)
	}
	return s.attach(true, r.Poll)
}

// sendAgain puts a run that may not have arrived back to where it came from.
func (s *Session) sendAgain(r run) {
	switch r.kind {
	case runMessages, runGap:
		last := r.to
		if r.kind == runMessages {
			last = r.sequence + tidemark.Sequence(r.count) - 1
		}
		p := s.chats[r.chat]
		if p == nil { // forgotten since, or removed: the page will tell
			if p = s.touch(r.chat, r.sequence); p == nil {
				return
			}
			p.sure = true
		}
		if r.sequence < p.next {
			s.rewind(p, r.sequence)
		}
		p.woken = max(p.woken, last)
		s.queue(p)
	case runStatus:
		s.snapshot(r.chat)
	case runCaughtUp:
		s.caughtUp = false
	case runControl:
		s.control(r.control.Type, r.control.Payload)
	}
}

func newSessionID() tidemark.SessionID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return tidemark.SessionID(base64.RawURLEncoding.EncodeToString(b[:]))
}

// refreshLeases prolongs the leases of all sessions, takes lost ones again, and lets all sessions compare when a node died (R_EPOCH).
func (s *Server) refreshLeases(ctx context.Context, last registry.Epoch) registry.Epoch {
	all := s.sessions.all()
	leases := make([]registry.Lease, len(all))
	byLease := make(map[registry.Lease]*Session, len(all))
	for i, sess := range all {
		leases[i] = sess.lease
		byLease[sess.lease] = sess
	}
	refreshed, err := s.registry.Refresh(ctx, s.node, leases, s.cfg.LeaseTTL)
	if err != nil {
		s.count.registryErrors.Add(1)
		s.log.Warn("the leases were not refreshed", "error", err)
		if err := s.nodes.Join(ctx, s.node, s.cfg.LeaseTTL); err != nil {
			s.log.Warn("the node has no lease", "error", err)
		}
		return last
	}
	for _, lease := range refreshed.Lost {
		s.count.leasesLost.Add(1)
		if sess := byLease[lease]; sess != nil && !sess.isClosed() {
			sess.takeLease(ctx)
		}
	}
	if refreshed.Epoch == last {
		return last
	}
	s.count.epochs.Add(1)
	s.log.Info("a node died or the registry forgot: all sessions compare", "crashes", refreshed.Epoch.Crashes)
	s.spreadCompare(ctx, all, refreshed.Epoch)
	return refreshed.Epoch
}

// spreadCompare orders a comparison for each session, over as long as a third of the lease's life.
func (s *Server) spreadCompare(ctx context.Context, all []*Session, epoch registry.Epoch) {
	if len(all) == 0 {
		return
	}
	pause := s.cfg.LeaseTTL / 4 / time.Duration(len(all))
	tick := time.NewTicker(max(pause, time.Microsecond))
	defer tick.Stop()
	for _, sess := range all {
		sess.mu.Lock()
		if !sess.closed && sess.epoch != epoch {
			sess.orderLook(lookCompare, epoch)
			sess.notify()
		}
		sess.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
