package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// claimWithin is how long a node waits for the one that has a session, altogether; goToPause how long before it asks again where one is that moves.
const (
	claimWithin = time.Second
	goToPause   = 50 * time.Millisecond
)

// fetch lets a session that another node has go on here, and returns it; nil if nobody has it, or nobody answers in time, with the reason why the registry could not be
// asked, if it could not. The lease is taken first: what is handed over from then on arrives here, and what arrives at the other node after it has given the session is
// marked, and finds this lease (R_LEASEFIRST, R_ADDR, R_FOLLOW). Where the registry cannot be asked nobody is handed anything, and the session is claimed without.
func (s *Server) fetch(ctx context.Context, r OpenRequest) (*session.Session, error) {
	lease, found, unasked := s.locate.Owner(ctx, r.User, r.Session)
	if !found {
		return nil, unasked
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimWithin) // a session that was given is not given again
	defer cancel()
	s.count.claims.Add(1)
	defer func(began time.Time) { s.count.claimTime.Add(time.Since(began).Microseconds()) }(time.Now())
	owner := lease.Holder()
	claim := func() []byte { return s.moves.Follow(ctx, owner, bus.Claim{Session: r.Session, User: r.User}) }
	var state []byte
	if lease.Device == "" {
		if state = claim(); state == nil {
			s.count.claimsFailed.Add(1)
			return nil, unasked
		}
		lease.Device = session.DeviceIn(state)
	}
	lease.Node, lease.Boot = s.node.ID, s.node.Boot
	sess := s.share.Arriving(lease)
	if !s.sessions.Add(sess, s.cfg.SessionsPerUser) {
		return nil, unasked
	}
	epoch, opened, err := s.openLease(ctx, lease)
	if err != nil {
		s.locate.Failed("a session moves and has no lease", err)
		unasked = err
	} else if state == nil {
		state = claim()
	}
	if rows, here := sess.Take(state, opened.Moved, epoch); here {
		if err != nil {
			sess.Leased(false, false, epoch)
			s.pulse.Retake()
		}
		s.count.claimed.Add(1)
		s.debts.Mark(rows)
		return sess, nil
	}
	s.count.claimsFailed.Add(1)
	s.moves.Gave(r.Session, owner) // for whoever asks here
	closed, err := s.closeSessions(ctx, []session.Ending{sess.Ending()})
	if err != nil {
		s.log.Warn("a session that did not arrive was not closed cleanly", "session", sess.ID, "error", err)
	}
	if closed == 0 { // a newer session of the device has ended it, maybe before its lease was taken
		s.giveBack(context.WithoutCancel(ctx), sess)
	}
	if unasked == nil && s.overtaken(ctx, lease, owner) {
		return nil, tidemark.Errorf(tidemark.Replaced, "a newer connection has fetched the session; do not reconnect by yourself")
	}
	return nil, unasked
}

// overtaken reports whether a session that did not come from its owner has gone to another node meanwhile: it goes to whoever has taken its lease last.
func (s *Server) overtaken(ctx context.Context, lease registry.Lease, owner registry.Node) bool {
	ctx, cancel := after(ctx)
	defer cancel()
	held, err := s.locate.Lease(ctx, lease.User, lease.Session)
	if err != nil || held.Session != lease.Session {
		return false
	}
	return held.Holder() != s.node && held.Holder() != owner
}

// hasSession reports whether a session is a user's, here or on another node.
func (s *Server) hasSession(ctx context.Context, user tidemark.UserID, id tidemark.SessionID) bool {
	if sess := s.sessions.Get(id); sess != nil {
		return sess.User == user
	}
	_, found, _ := s.locate.Owner(ctx, user, id)
	return found
}

// goTo sets the positions of a session that hasSession has found, and reports whether it did. One that moves meanwhile is followed.
func (s *Server) goTo(ctx context.Context, user tidemark.UserID, id tidemark.SessionID, to session.GoingTo) bool {
	text, _ := json.Marshal(to) // there is nothing in it that JSON has no word for
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	for {
		if sess := s.sessions.Get(id); sess != nil {
			if sess.Arrived(ctx) && sess.GoTo(to) {
				return true
			}
		} else if lease, found, _ := s.locate.Owner(ctx, user, id); !found {
			return false
		} else if s.moves.Follow(ctx, lease.Holder(), bus.Claim{Session: id, User: user, GoTo: text}) != nil {
			return true
		}
		if !flow.Pause(ctx, goToPause) {
			return false
		}
	}
}

// answer does what another node asks; nil: later.
func (s *Server) answer(ctx context.Context, c *bus.Claim) *bus.Claimed {
	var answer bus.Claimed
	sess := s.sessions.Get(c.Session)
	switch {
	case sess == nil:
		answer.Moved = s.moves.Who(c.Session)
	case c.GoTo != nil:
		var to session.GoingTo
		if sess.User == c.User && json.Unmarshal(c.GoTo, &to) == nil && sess.GoTo(to) {
			answer.State = c.GoTo
		}
	case sess.Arriving(): // it is asked for again when it is here, or is not to come
		s.loops.Go(func() {
			sess.Arrived(ctx)
			s.moves.Receive(c)
		})
		return nil
	default:
		// A claim that is late was given up, and the client may have come back here. One that was overtaken gets nothing.
		lease, err := s.locate.Lease(ctx, c.User, c.Session)
		taken := err == nil && lease.Holder() == c.From
		if taken || err != nil {
			answer.State = sess.Give(c.User)
		}
		switch {
		case answer.State != nil:
			s.sessions.Remove(sess)
			s.count.given.Add(1)
			s.moves.Gave(c.Session, c.From)
		case taken: // it stays, and the claim has taken its lease
			s.takeLeases(ctx, []*session.Session{sess})
		default:
			s.pulse.Retake()
		}
	}
	return &answer
}
