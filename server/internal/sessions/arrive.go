package sessions

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// TransferWithin is how long an arriving session waits for its Transfer.
// rule:resume_lossless.limit-time-of-arrival
const TransferWithin = time.Second

// arrive moves a session from another node to this one (delivery.md §4, Transfer):
//
//  1. look up the session's lease;
//  2. enter an arriving session, which keeps what is published for it (R_LEASEFIRST);
//  3. take over the lease;
//  4. send the previous holder a Request, and wait for the outcome of the arrival.
//
// If the session is not here afterwards, arrive returns the error of Resume.
func (s *Sessions) arrive(ctx context.Context, r ResumeRequest) (*session.Session, error) {
	//rule:resume_lossless.departed-client-fetches-nothing
	if r.yields() {
		return nil, errOvertaken
	}
	lease, err := s.Leases.Lease(ctx, r.User, r.Session)
	switch {
	//rule:resume_lossless.keep-polled-session
	case err != nil:
		return nil, ErrUncertain
	case lease.Session == "" || lease.Holder() == s.Node:
		return nil, errGone
	}
	lease.Node, lease.Boot = s.Node.ID, s.Node.Boot
	sess := s.Host.Arriving(lease, rand.Text())
	if !s.Table.Add(sess, s.PerUser) {
		if other := s.Table.Get(r.Session); other != nil {
			return s.await(ctx, other, r)
		}
		return nil, errGone
	}
	// The previous holder gives the session away only once. From here on, the move goes on even if
	// the client leaves.
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	defer func(began time.Time) {
		s.Count.TransferTime.Add(time.Since(began).Microseconds())
	}(time.Now())
	if err := s.ask(ctx, sess); err != nil {
		return nil, err
	}
	switch sess.Arrived(ctx) {
	case session.Landed:
		return sess, nil
	//rule:resume_lossless.overtaken-client-keeps-session
	case session.Overtaken:
		return nil, errOvertaken
	}
	return nil, errGone
}

// await waits for a session of this node, which may be arriving.
func (s *Sessions) await(
	ctx context.Context, sess *session.Session, r ResumeRequest,
) (*session.Session, error) {
	//rule:nothing_outside_membership.resume-own-session-only
	if sess.User() != r.User {
		return nil, errGone
	}
	switch sess.Arrived(ctx) {
	case session.Landed:
		return sess, nil
	//rule:resume_lossless.wait-for-overtaken-session
	case session.Overtaken, session.Undecided:
		return nil, errOvertaken
	}
	return nil, errGone
}

// ask takes over the lease of an arriving session and sends the previous holder a Request. After an
// error the session has ended.
func (s *Sessions) ask(ctx context.Context, sess *session.Session) error {
	s.Count.Asked.Add(1)
	taken, err := s.Leases.Continue(ctx, sess)
	if taken.Orphaned { // the device has a newer session
		s.Table.Remove(sess)
		return errGone
	}
	if err != nil {
		s.endArrival(ctx, sess)
		return ErrUncertain
	}
	if taken.Previous == (registry.Node{}) {
		s.endArrival(ctx, sess)
		return errGone
	}
	for _, early := range sess.Asked(taken.Previous, taken.Epoch) {
		s.pass(ctx, early, taken.Previous)
	}
	request := &bus.Request{
		ID: sess.Arrival(), Session: sess.ID(), User: sess.User(), To: s.Node,
	}
	if bus.PublishOne(ctx, s.Bus, taken.Previous, bus.Event{Request: request}) != nil {
		s.endArrival(ctx, sess)
	}
	return nil
}

// endArrival ends sessions that did not arrive, and marks what was published for them.
func (s *Sessions) endArrival(ctx context.Context, late ...*session.Session) {
	closed, err := s.Close(ctx, session.Endings(late, session.Closed)...)
	if err != nil {
		s.Log.Warn("sessions did not arrive from another node, and writing their pending rows "+
			"failed; the node tries again", "sessions", closed, "error", err)
	}
}

// arrivalLoop ends sessions whose Transfer did not come in time, until ctx ends.
func (s *Sessions) arrivalLoop(ctx context.Context) {
	for {
		due, ok := s.Host.Arrivals.Due(ctx)
		if !ok {
			return
		}
		if late := session.Overstayed(due); len(late) > 0 {
			s.endArrival(ctx, late...)
		}
	}
}
