package sessions

import (
	"context"
	"encoding/json"

	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// maxQueued bounds the events that wait for transferLoop. More are dropped: those who ask do not wait
// for ever.
const maxQueued = 4_096

// Receive takes what other nodes say about sessions that move. It does not block.
func (s *Sessions) Receive(e bus.Event) {
	switch {
	case e.Request != nil, e.Seek != nil:
		s.queue(e)
	case e.Transfer != nil:
		s.land(e.Transfer)
	case e.Sought != nil:
		s.seeks.answer(e.Sought.ID)
	}
}

// queue lets transferLoop do something that asks others.
func (s *Sessions) queue(e bus.Event) {
	select {
	case s.queued <- e:
	default:
	}
}

// transferLoop serves the Requests and Seeks of other nodes, one after the other, until ctx ends.
func (s *Sessions) transferLoop(ctx context.Context) {
	for {
		select {
		case e := <-s.queued:
			if e.Request != nil {
				s.serve(ctx, *e.Request)
			} else {
				s.seekHere(ctx, e.Seek)
			}
		case <-ctx.Done():
			return
		}
	}
}

// serve gives a session to the node that asks for it. One that is still arriving keeps the Request,
// and the node that was asked for it gets the Request, too: it may have the session (R_PASS).
func (s *Sessions) serve(ctx context.Context, r bus.Request) {
	sess := s.Table.Get(r.Session)
	if sess == nil || sess.Ended() || sess.User() != r.User || r.To == s.Node {
		return
	}
	if asked, arriving := sess.Requested(r); arriving {
		s.pass(ctx, r, asked)
		return
	}
	// If the registry cannot be asked, the session is given: clients of a node that is cut off have a
	// reason to go.
	lease, err := s.Leases.Lease(ctx, r.User, r.Session)
	//rule:R_HOLDS.refuse-late-request
	if err == nil && lease.Holder() != r.To {
		if lease.Holder() != s.Node {
			s.Leases.CheckAll() // the session's own lease is lost
		}
		return
	}
	frozen, ok := sess.Freeze()
	switch {
	case ok:
		s.give(ctx, sess, r, frozen)
	case !sess.Ended(): // it is too large, and the other node has taken its lease
		//rule:R_ADDR.retake-lease-of-staying-session
		s.reacquire(ctx, []*session.Session{sess})
	}
}

// give sends a frozen session to the node that asked for it.
func (s *Sessions) give(
	ctx context.Context, sess *session.Session, r bus.Request, f session.Frozen,
) {
	s.Table.Remove(sess)
	s.Count.Given.Add(1)
	transfer := &bus.Transfer{ID: r.ID, Snapshot: f.Text}
	if bus.PublishOne(ctx, s.Bus, r.To, bus.Event{Transfer: transfer}) != nil {
		//rule:R_WAKESET.mark-unpublished-answer
		s.Delivery.Retry.Mark(f.Unacknowledged)
	}
}

// pass sends a Request on to the node that was asked for the session. If that is not known yet, or
// the Request has gone far enough, it is not sent.
func (s *Sessions) pass(ctx context.Context, r bus.Request, asked registry.Node) {
	//rule:R_PASS.end-after-some-hops
	if asked == (registry.Node{}) || asked == r.To || r.Hops >= bus.MaxHops {
		return
	}
	r.Hops++
	//rule:R_PASS.pass-on
	_ = bus.PublishOne(ctx, s.Bus, asked, bus.Event{Request: &r})
}

// land lets an arriving session go on with what another node has frozen. What lands nowhere is marked
// (R_UNLANDED).
func (s *Sessions) land(t *bus.Transfer) {
	snapshot, err := session.ReadSnapshot(t.Snapshot)
	if err != nil {
		s.Log.Error("a session that moved cannot be read; its next open compares", "error", err)
		return
	}
	var left session.Landing
	landed := false
	if sess := s.Table.Get(snapshot.Session); sess != nil {
		left, landed = sess.Land(t.ID, snapshot)
	}
	//rule:R_UNLANDED.mark-what-does-not-land
	if !landed {
		s.Delivery.Retry.Mark(snapshot.Unacknowledged())
		return
	}
	s.Delivery.Retry.Mark(left.Rows)
	//rule:R_PASS.serve-what-was-kept
	for _, r := range left.Requests {
		s.queue(bus.Event{Request: &r})
	}
}

// seekHere sets the positions of a session of this node, and says so to the node that asks. It says
// nothing if the session is not served here: the other node asks again.
func (s *Sessions) seekHere(ctx context.Context, q *bus.Seek) {
	var to session.Positions
	sess := s.Table.Get(q.Session)
	//rule:nothing_outside_membership.seek-for-its-user-only
	if sess == nil || sess.User() != q.User || json.Unmarshal(q.Positions, &to) != nil ||
		!sess.Seek(to) {
		return
	}
	_ = bus.PublishOne(ctx, s.Bus, q.From, bus.Event{Sought: &bus.Sought{ID: q.ID}})
}
