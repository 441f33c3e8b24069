package server

import (
	"context"
	"crypto/rand"
	"encoding/base64"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/session"
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
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.inflight.Done()
	if r.Session != "" {
		if held := s.sessions.get(r.Session); held != nil && held.User == r.User {
			if c := held.Resume(r.After, r.Poll); c != nil {
				return &Connection{Connection: c, server: s, user: r.User}, nil
			}
		}
		if r.Poll {
			return nil, tidemark.Errorf(tidemark.Gone, "the session is unknown or has ended; poll without session to open a new one")
		}
	}
	id := newSessionID()
	if r.Device == "" {
		r.Device = tidemark.DeviceID(id)
	} else if older := s.sessions.ofDevice(r.User, r.Device); older != nil {
		// Its rows are marked and its lease released before ours is taken, so that a clean hand-over from one session of a
		// device to the next needs no comparison.
		if _, err := s.closeSessions(ctx, []session.Ending{older.Ending()}); err != nil {
			s.log.Warn("an older session of a device was not closed cleanly", "session", older.ID, "error", err)
		}
	}
	sess := s.share.New(registry.Lease{User: r.User, Device: r.Device, Node: s.node.ID, Boot: s.node.Boot, Session: id}, r.Statuses)
	if !s.sessions.add(sess, s.cfg.SessionsPerUser) {
		return nil, tidemark.Errorf(tidemark.Exhausted, "%s has %d sessions open, which is the limit; close one first", r.User, s.cfg.SessionsPerUser)
	}
	s.count.opens.Add(1)
	s.takeLease(ctx, sess)
	return &Connection{Connection: sess.Attach(r.Session != ""), server: s, user: r.User}, nil
}

// takeLease takes a session's lease, and lets it look for what is pending as the registry's answer asks (R_PROOF, R_LAST). It is called for a new
// session, and again when the lease was lost.
func (s *Server) takeLease(ctx context.Context, sess *session.Session) {
	ctx, cancel := after(ctx)
	defer cancel()
	epoch, err := s.registry.Epoch(ctx)
	var opened registry.Opened
	if err == nil {
		opened, err = s.registry.Open(ctx, sess.Lease, s.cfg.LeaseTTL)
	}
	if err != nil {
		s.registryFailed("a session has no lease", err)
	}
	sess.Leased(err == nil, !opened.Others && opened.Proof != nil && *opened.Proof == epoch, epoch)
}

// registryFailed notes that the registry could not be asked, and lets the node refresh its leases soon.
func (s *Server) registryFailed(what string, err error) {
	if !s.unsure.Swap(true) {
		select {
		case s.refresh <- struct{}{}:
		default:
		}
	}
	s.count.registryErrors.Add(1)
	s.log.Warn(what, "error", err)
}

// missed notes that publications to the node may have been lost: it joins the registry anew, so that all sessions compare.
func (s *Server) missed() {
	s.registryFailed("publications to this node may have been lost", tidemark.Errorf(tidemark.Unavailable, "the bus was interrupted"))
}

func newSessionID() tidemark.SessionID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return tidemark.SessionID(base64.RawURLEncoding.EncodeToString(b[:]))
}

// refreshLeases prolongs the leases of all sessions, takes lost ones again, and lets all sessions compare when a node died (R_EPOCH). It returns the
// present epoch, last if it could not be read. A node that regains a registry which it could not reach joins it anew, as one that died.
func (s *Server) refreshLeases(ctx context.Context, last registry.Epoch) registry.Epoch {
	all := s.sessions.all()
	leases := make([]registry.Lease, len(all))
	byLease := make(map[registry.Lease]*session.Session, len(all))
	for i, sess := range all {
		leases[i] = sess.Lease
		byLease[sess.Lease] = sess
	}
	if s.unsure.Swap(false) {
		if err := s.nodes.Join(ctx, s.node, s.cfg.NodeTTL); err != nil {
			s.registryFailed("the node has no lease", err)
			return last
		}
	}
	refreshed, err := s.registry.Refresh(ctx, s.node, s.cfg.NodeTTL, leases, s.cfg.LeaseTTL)
	if err != nil {
		s.registryFailed("the leases were not refreshed", err)
		return last
	}
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
	if refreshed.Epoch == last {
		return last
	}
	s.count.epochs.Add(1)
	s.log.Info("a node died, or the registry forgot: all sessions compare", "crashes", refreshed.Epoch.Crashes)
	s.compareAll(ctx, all, refreshed.Epoch)
	return refreshed.Epoch
}

// compareAll orders a comparison for each session, spread over a quarter of a lease's life.
func (s *Server) compareAll(ctx context.Context, all []*session.Session, epoch registry.Epoch) {
	const slices = 100
	for i := range slices {
		for _, sess := range all[len(all)*i/slices : len(all)*(i+1)/slices] {
			sess.Compare(epoch)
		}
		if len(all) > slices && !pause(ctx, s.cfg.LeaseTTL/4/slices) {
			return
		}
	}
}
