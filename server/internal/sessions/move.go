package sessions

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/moves"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
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
func (s *Sessions) fetch(ctx context.Context, r ResumeRequest) (*session.Session, error) {
	lease, found, unasked := s.Leases.Owner(ctx, r.User, r.Session)
	if !found {
		return nil, unasked
	}
	//rule:resume_lossless.departed-client-fetches-nothing
	if r.yields() {
		return nil, errOvertaken
	}
	//rule:resume_lossless.limit-time-of-claim
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimWithin) // a session that was given is not given again
	defer cancel()
	s.Count.Claims.Add(1)
	defer func(began time.Time) { s.Count.ClaimTime.Add(time.Since(began).Microseconds()) }(time.Now())
	owner := lease.Holder()
	claim := func() moves.Followed { return s.moves.Follow(ctx, owner, bus.Claim{Session: r.Session, User: r.User}) }
	got := moves.Followed{At: owner}
	if lease.Device == "" {
		if got = claim(); got.State == nil {
			s.Count.ClaimsFailed.Add(1)
			return nil, unasked
		}
		lease.Device = session.DeviceIn(got.State)
	}
	lease.Node, lease.Boot = s.Node.ID, s.Node.Boot
	sess := s.Host.Arriving(lease)
	if !s.Table.Add(sess, s.PerUser) {
		s.undelivered(got.State)
		return nil, unasked
	}
	taken, err := s.Leases.Acquire(ctx, sess)
	if err != nil {
		unasked = err
	} else if got.State == nil {
		got = claim()
	}
	// If another node gave it, the lease that was replaced was not that of the session.
	//rule:R_LEASEFIRST.lease-of-this-claim-only
	if rows, here := sess.Restore(got.State, session.Continuity{Unbroken: taken.Previous != (registry.Node{}) && got.At == owner, Epoch: taken.Epoch}); here {
		s.Count.Claimed.Add(1)
		s.Delivery.Retry.Mark(rows)
		return sess, nil
	}
	s.Count.ClaimsFailed.Add(1)
	//rule:resume_lossless.tell-where-session-stays
	s.moves.Gave(r.Session, got.At) // for whoever asks here
	//rule:R_WAKESET.mark-what-was-not-taken
	s.undelivered(got.State)
	if _, err := s.Close(ctx, sess.Ending(session.Closed)); err != nil {
		s.Log.Warn("a session that did not arrive was not closed cleanly", "session", sess.ID(), "error", err)
	}
	//rule:resume_lossless.overtaken-client-keeps-session
	if unasked == nil && !got.Stays && s.Leases.Elsewhere(ctx, r.User, r.Session) {
		return nil, errOvertaken
	}
	return nil, unasked
}

// Seek sets the positions of a session that is known to be the user's, and reports whether it did. A
// session that moves meanwhile is followed.
func (s *Sessions) Seek(ctx context.Context, user tidemark.UserID, id tidemark.SessionID, to session.Positions) bool {
	text, _ := json.Marshal(to) // there is nothing in it that JSON has no word for
	ctx, cancel := context.WithTimeout(ctx, claimWithin)
	defer cancel()
	for {
		if sess := s.Table.Get(id); sess != nil {
			if sess.Landed(ctx) && sess.Seek(to) {
				return true
			}
		} else if lease, found, _ := s.Leases.Owner(ctx, user, id); !found {
			return false
		} else if s.moves.Follow(ctx, lease.Holder(), bus.Claim{Session: id, User: user, GoTo: text}).State != nil {
			return true
		}
		//rule:resume_lossless.follow-moving-session
		if !signal.Pause(ctx, goToPause) {
			return false
		}
	}
}

// answer does what another node asks; nil: later.
func (s *Sessions) answer(ctx context.Context, c *bus.Claim) *bus.Claimed {
	var answer bus.Claimed
	sess := s.Table.Get(c.Session)
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
		lease, err := s.Leases.Lease(ctx, c.User, c.Session)
		taken, arriving := err == nil && lease.Holder() == c.From, sess.Arriving()
		switch {
		//rule:R_LEASEFIRST.refuse-late-claim
		case !taken && err == nil:
		case arriving:
			//rule:resume_lossless.answer-claim-after-arrival
			s.background.Go(func() { s.later(ctx, sess, c, taken) })
			return nil
		default:
			answer.State = sess.Freeze(c.User)
		}
		switch {
		case answer.State != nil:
			s.Table.Remove(sess)
			s.Count.Given.Add(1)
			s.moves.Gave(c.Session, c.From)
		case arriving || sess.Ended():
			answer.Moved = s.moves.Who(c.Session)
		case taken: // it stays, and the claim has taken its lease
			//rule:R_ADDR.retake-lease-of-staying-session
			s.reacquire(ctx, []*session.Session{sess})
			answer.Moved = &s.Node
		default:
			s.Leases.CheckAll()
		}
	}
	return &answer
}

// undelivered marks what is not acknowledged of a session in writing that was given and does not arrive. One that is here has arrived: it was said twice.
func (s *Sessions) undelivered(state []byte) {
	id, rows := session.RowsIn(state)
	//rule:pending_once.ignore-repeated-answer
	if sess := s.Table.Get(id); sess == nil || sess.Arriving() || sess.Ended() {
		s.Delivery.Retry.Mark(rows)
	}
}

// later puts a question back until its session is here, or is not to come; and, if the asker had its lease, soon, since it may have been overtaken: two that are on their way
// and have asked each other would wait in vain.
func (s *Sessions) later(ctx context.Context, sess *session.Session, c *bus.Claim, taken bool) {
	//rule:resume_lossless.yield-to-newer-claim
	if taken {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, goToPause)
		defer cancel()
	}
	sess.Landed(ctx)
	s.moves.Receive(c)
}
