package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/server/internal/moves"
	"github.com/tidemark-im/tidemark/server/internal/session"
)

// claimWithin is how long a node waits for the one that has a session, altogether; goToPause how long before it asks again where one is that moves, or whether one that
// is waited for was overtaken.
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
	//rule:resume_lossless.departed-client-fetches-nothing
	if r.left() {
		return nil, errOvertaken
	}
	//rule:resume_lossless.limit-time-of-claim
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimWithin) // a session that was given is not given again
	defer cancel()
	s.count.claims.Add(1)
	defer func(began time.Time) { s.count.claimTime.Add(time.Since(began).Microseconds()) }(time.Now())
	owner := lease.Holder()
	claim := func() moves.Followed { return s.moves.Follow(ctx, owner, bus.Claim{Session: r.Session, User: r.User}) }
	got := moves.Followed{At: owner}
	if lease.Device == "" {
		if got = claim(); got.State == nil {
			s.count.claimsFailed.Add(1)
			return nil, unasked
		}
		lease.Device = session.DeviceIn(got.State)
	}
	lease.Node, lease.Boot = s.node.ID, s.node.Boot
	sess := s.host.Arriving(lease)
	if !s.sessions.Add(sess, s.cfg.SessionsPerUser) {
		s.undelivered(got.State)
		return nil, unasked
	}
	epoch, opened, err := s.openLease(ctx, lease)
	orphaned := sess.LeaseAnswered(session.LeaseAnswer{Granted: err == nil, Epoch: epoch})
	if err != nil {
		s.locate.Failed("a session moves and has no lease", err)
		unasked = err
	} else if got.State == nil {
		got = claim()
	}
	// If another node gave it, the lease that was replaced was not that of the session.
	//rule:R_LEASEFIRST.lease-of-this-claim-only
	if rows, here := sess.Restore(got.State, session.Continuity{Unbroken: opened.Moved && got.At == owner, Epoch: epoch}); here {
		if err != nil {
			s.pulse.Retake()
		}
		s.count.claimed.Add(1)
		s.debts.Mark(rows)
		return sess, nil
	}
	s.count.claimsFailed.Add(1)
	//rule:resume_lossless.tell-where-session-stays
	s.moves.Gave(r.Session, got.At) // for whoever asks here
	//rule:R_WAKESET.mark-what-was-not-taken
	s.undelivered(got.State)
	if _, err := s.closeSessions(ctx, []session.Ending{sess.Ending(session.Closed)}); err != nil {
		s.log.Warn("a session that did not arrive was not closed cleanly", "session", sess.ID(), "error", err)
	}
	//rule:R_ADDR.release-lease-of-ended-session
	if orphaned { // a newer session of the device has ended it before its lease was taken
		s.giveBack(context.WithoutCancel(ctx), sess)
	}
	//rule:resume_lossless.overtaken-client-keeps-session
	if unasked == nil && !got.Stays && s.locate.Elsewhere(ctx, r.User, r.Session) {
		return nil, errOvertaken
	}
	return nil, unasked
}

// errOvertaken says that a session that did not come has gone to another node: it goes to whoever has taken its lease last. That is not always the newest connection of the
// client, and not always one that gets it, so that the client is told to come back: who is there then is replaced.
//
//rule:resume_lossless.overtaken-client-comes-back
var errOvertaken = tidemark.Errorf(tidemark.Unavailable, "the session has just been asked for by another connection; come back with the position")

// goTo sets the positions of a session that is known to be the user's, and reports whether it did. One that moves meanwhile is followed.
func (s *Server) goTo(ctx context.Context, user tidemark.UserID, id tidemark.SessionID, to session.Positions) bool {
	text, _ := json.Marshal(to) // there is nothing in it that JSON has no word for
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	for {
		if sess := s.sessions.Get(id); sess != nil {
			if sess.Landed(ctx) && sess.Seek(to) {
				return true
			}
		} else if lease, found, _ := s.locate.Owner(ctx, user, id); !found {
			return false
		} else if s.moves.Follow(ctx, lease.Holder(), bus.Claim{Session: id, User: user, GoTo: text}).State != nil {
			return true
		}
		//rule:resume_lossless.follow-moving-session
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
		var to session.Positions
		if sess.User() == c.User && json.Unmarshal(c.GoTo, &to) == nil && sess.Seek(to) {
			answer.State = c.GoTo
		}
	default:
		// A claim that is late was given up, and the client may have come back here. One that was overtaken gets nothing, and waits for nothing.
		lease, err := s.locate.Lease(ctx, c.User, c.Session)
		taken, arriving := err == nil && lease.Holder() == c.From, sess.Arriving()
		switch {
		//rule:R_LEASEFIRST.refuse-late-claim
		case !taken && err == nil:
		case arriving:
			//rule:resume_lossless.answer-claim-after-arrival
			s.loops.Go(func() { s.later(ctx, sess, c, taken) })
			return nil
		default:
			answer.State = sess.Freeze(c.User)
		}
		switch {
		case answer.State != nil:
			s.sessions.Remove(sess)
			s.count.given.Add(1)
			s.moves.Gave(c.Session, c.From)
		case arriving || sess.Ended():
			answer.Moved = s.moves.Who(c.Session)
		case taken: // it stays, and the claim has taken its lease
			//rule:R_ADDR.retake-lease-of-staying-session
			s.takeLeases(ctx, []*session.Session{sess})
			answer.Moved = &s.node
		default:
			s.pulse.Retake()
		}
	}
	return &answer
}

// undelivered marks what is not acknowledged of a session in writing that was given and does not arrive. One that is here has arrived: it was said twice.
func (s *Server) undelivered(state []byte) {
	id, rows := session.RowsIn(state)
	//rule:pending_once.ignore-repeated-answer
	if sess := s.sessions.Get(id); sess == nil || sess.Arriving() || sess.Ended() {
		s.debts.Mark(rows)
	}
}

// later puts a question back until its session is here, or is not to come; and, if the asker had its lease, soon, since it may have been overtaken: two that are on their way
// and have asked each other would wait in vain.
func (s *Server) later(ctx context.Context, sess *session.Session, c *bus.Claim, taken bool) {
	//rule:resume_lossless.yield-to-newer-claim
	if taken {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, goToPause)
		defer cancel()
	}
	sess.Landed(ctx)
	s.moves.Receive(c)
}
