package server

import (
	"context"
	"errors"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/moves"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// OpenRequest asks for a session: a new one, or one that exists.
type OpenRequest struct {
	User tidemark.UserID
	// Device names the device. A new session of a device ends the older one, whose connection is told Replaced. "" means a device of its own.
	Device tidemark.DeviceID
	// Session is the session to resume, "" for a new one. After is the number of the last event that the client has.
	Session tidemark.SessionID
	After   uint64
	// Statuses asks for a snapshot of statuses after caught_up. Status updates come in any case.
	Statuses bool
	// Poll asks for the rules of long-poll: an unknown, expired or foreign session is Gone instead of a new session and a reset, and a resumed
	// session begins without `open`.
	Poll bool
	// Left reports whether the client has closed its side: then it may have come back by a newer connection, which keeps the session. nil: it has not.
	Left func() bool
}

func (r OpenRequest) left() bool { return r.Left != nil && r.Left() }

// Open opens or resumes a session and takes it over from an older connection. The first Next gives the `open` event.
//
// Errors: Gone (Poll only), Exhausted (Config.SessionsPerUser), Unavailable (stopping; another connection fetches or has the session at the same time; or, with Poll,
// another node may have it, and cannot be asked). A registry that cannot be reached does not prevent a session: it compares, and leaves no proof.
func (s *Server) Open(ctx context.Context, r OpenRequest) (*Connection, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	defer s.inflight.Done()
	if r.Session != "" {
		held, err := s.resumable(ctx, r)
		if held != nil {
			var c *session.Reader
			if c, err = held.Resume(session.At{After: r.After, Announce: !r.Poll, Yield: r.left()}); err == nil {
				return &Connection{Reader: c, server: s, user: r.User}, nil
			}
		}
		switch {
		case errors.Is(err, errOvertaken), tidemark.CodeOf(err) == tidemark.Replaced:
			return nil, errOvertaken
		//rule:resume_lossless.keep-polled-session
		case r.Poll && held == nil && err != nil: // a new session with each poll would be no better: the one that is there goes on
			return nil, tidemark.Wrap(tidemark.Unavailable, err, "this node cannot ask the others for the session; poll again")
		case r.Poll:
			return nil, tidemark.Errorf(tidemark.Gone, "the session is unknown or has ended; poll without session to open a new one")
		}
	}
	id := moves.NewSessionID(s.node)
	//rule:R_ORDER.end-older-session-of-device
	if r.Device == "" {
		r.Device = tidemark.DeviceID(id)
	} else if older := s.sessions.OfDevice(r.User, r.Device); older != nil {
		// Its rows are marked and its lease released before ours is taken, so that a clean hand-over from one session of a
		// device to the next needs no comparison.
		if _, err := s.closeSessions(ctx, []session.Ending{older.Ending(session.Superseded)}); err != nil {
			s.log.Warn("an older session of a device was not closed cleanly", "session", older.ID(), "error", err)
		}
	}
	sess := s.host.New(registry.Lease{User: r.User, Device: r.Device, Node: s.node.ID, Boot: s.node.Boot, Session: id}, r.Statuses)
	if !s.sessions.Add(sess, s.cfg.SessionsPerUser) {
		return nil, errSessions(r.User, s.cfg.SessionsPerUser)
	}
	s.count.opens.Add(1)
	//rule:bounded_use.count-sessions-on-all-nodes
	if s.takeLease(ctx, sess) > s.cfg.SessionsPerUser {
		_, err := s.closeSessions(ctx, []session.Ending{sess.Ending(session.Closed)})
		return nil, errors.Join(errSessions(r.User, s.cfg.SessionsPerUser), err)
	}
	var reset tidemark.ResetReason
	if r.Session != "" {
		reset = tidemark.ResetUnknownSession
	}
	return &Connection{Reader: sess.Attach(reset), server: s, user: r.User}, nil
}

// resumable returns the session to which a client comes back: one of this node, or one that another node gives to it; nil if there is none. err says that there may be one: the
// registry could not be asked.
func (s *Server) resumable(ctx context.Context, r OpenRequest) (held *session.Session, err error) {
	held = s.sessions.Get(r.Session)
	if held == nil {
		if held, err = s.fetch(ctx, r); held != nil {
			return held, nil
		}
		held = s.sessions.Get(r.Session) // or somebody else fetches it
	}
	switch {
	//rule:nothing_outside_membership.resume-own-session-only
	case held == nil || held.User() != r.User:
		return nil, err
	case held.Landed(ctx):
		return held, nil
	//rule:resume_lossless.wait-for-overtaken-session
	case err == nil && s.locate.Elsewhere(ctx, r.User, r.Session):
		return nil, errOvertaken
	}
	return nil, err
}

// takeLease takes a session's lease, and lets it look for what is pending as the registry's answer asks (R_PROOF, R_LAST). It is called for a new
// session, and again when the lease was lost. It returns how many leases the user has, as far as that is known.
func (s *Server) takeLease(ctx context.Context, sess *session.Session) int {
	ctx, cancel := after(ctx)
	defer cancel()
	epoch, opened, err := s.openLease(ctx, sess.Lease)
	if err != nil {
		s.locate.Failed("a session has no lease", err)
		s.pulse.Retake()
	}
	answer := session.LeaseAnswer{Granted: err == nil, Epoch: epoch}
	//rule:R_PROOF.trust-rows-by-proof-only
	answer.Proven = !opened.Others && opened.Proof != nil && *opened.Proof == epoch
	if sess.LeaseAnswered(answer) {
		s.giveBack(ctx, sess)
	}
	return opened.Leases
}

// openLease asks the registry for a lease, and before that for the epoch.
func (s *Server) openLease(ctx context.Context, lease registry.Lease) (epoch registry.Epoch, opened registry.Opened, err error) {
	if epoch, err = s.registry.Epoch(ctx); err == nil {
		//rule:R_EPOCH.epoch-before-lease
		opened, err = s.registry.Open(ctx, lease, s.cfg.LeaseTTL)
	}
	return epoch, opened, err
}

// giveBack releases the lease of a session that ended before it was taken. It may have taken the place of that of a newer session of the device, which then takes it
// again.
func (s *Server) giveBack(ctx context.Context, sess *session.Session) {
	//rule:R_ADDR.release-lease-taken-after-end
	s.release(ctx, sess, false)
	//rule:R_ADDR.retake-lease-at-once
	s.pulse.Retake()
}

// takeLeases is takeLease for sessions whose leases were lost, to another node or to nobody. One whose device has a newer session meanwhile is not given that
// one's lease.
func (s *Server) takeLeases(ctx context.Context, lost []*session.Session) {
	flow.SideBySide(lost, func(sess *session.Session) {
		if sess.Ended() { // or has moved
			return
		}
		for _, lease := range s.locate.Hint(ctx, []tidemark.UserID{sess.User()})[0] {
			//rule:R_ADDR.keep-lease-of-newer-session
			if lease.Device == sess.Lease.Device && lease.Session != sess.ID() {
				s.closeReplaced(ctx, []*session.Session{sess})
				return
			}
		}
		sess.LeaseLost()
		s.takeLease(ctx, sess)
	})
}

func errSessions(user tidemark.UserID, most int) error {
	return tidemark.Errorf(tidemark.Exhausted, "%s has %d sessions open, which is the limit; close one first", user, most)
}
