package sessions

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/registry"
)

// maxQueued is how many events wait in a queue until answerLoop takes them. More are dropped: the
// nodes that sent them stop waiting after a time.
const maxQueued = 4_096

// Receive handles the events of moving sessions from other nodes. It does not block.
func (s *Sessions) Receive(e bus.Event) {
	switch {
	case e.Request != nil, e.Seek != nil:
		put(s.queued, e)
	case e.End != nil:
		put(s.ends, e)
	case e.Transfer != nil:
		s.land(e.Transfer)
	case e.Done != nil:
		s.asked.answer(e.Done.ID)
	}
}

// put passes an event to a loop, which may do I/O. It drops the event if the queue is full.
func put(queue chan<- bus.Event, e bus.Event) {
	select {
	case queue <- e:
	default:
	}
}

// transferLoop handles the Requests and Seeks of other nodes, until ctx ends.
func (s *Sessions) transferLoop(ctx context.Context) {
	answerLoop(ctx, s.queued, func(e bus.Event) registry.Node {
		if e.Request != nil {
			return e.Request.To
		}
		return e.Seek.From
	}, func(e bus.Event) {
		if e.Request != nil {
			s.serve(ctx, *e.Request)
		} else {
			s.seekHere(ctx, e.Seek)
		}
	})
}

// maxAsked is how many events of one asking node may be queued or under way. More are dropped: the
// node asks again, or its arrival ends and the client gets a new session.
const maxAsked = 2_048

// answerLoop answers events until ctx ends: those of one asking node in order, and those of
// different nodes concurrently. An answer may take seconds if the asking node has died.
func answerLoop(
	ctx context.Context, events <-chan bus.Event, asker func(bus.Event) registry.Node,
	answer func(bus.Event),
) {
	var mu sync.Mutex
	waiting := make(map[registry.Node]int)
	leave := func(node registry.Node) {
		mu.Lock()
		defer mu.Unlock()
		if waiting[node]--; waiting[node] == 0 {
			delete(waiting, node)
		}
	}
	answers := batch.NewKeyed(0, func(node registry.Node, some []bus.Event, _ bool) {
		for _, e := range some {
			if ctx.Err() == nil {
				answer(e)
			}
			leave(node)
		}
	})
	defer answers.Wait()
	enter := func(node registry.Node) bool {
		mu.Lock()
		defer mu.Unlock()
		//rule:bounded_use.limit-events-of-an-asking-node
		if waiting[node] >= maxAsked {
			return false
		}
		waiting[node]++
		return true
	}
	for {
		select {
		case e := <-events:
			//rule:resume_lossless.no-node-delays-another
			node := asker(e)
			if enter(node) {
				answers.Add(node, 0, e)
			}
		case <-ctx.Done():
			return
		}
	}
}

// serve gives a session to the node that requested it. If the session is still arriving, it keeps
// the Request, and passes it on to the previous holder, which may still have the session (R_PASS).
func (s *Sessions) serve(ctx context.Context, r bus.Request) {
	sess := s.Table.Get(r.Session)
	if sess == nil || sess.Ended() || sess.User() != r.User || r.To == s.Node {
		return
	}
	if asked, arriving := sess.Requested(r); arriving {
		s.pass(ctx, r, asked)
		return
	}
	// If the registry does not answer, the session is given: clients may leave a node that is cut
	// off.
	lease, err := s.Leases.Lease(ctx, r.User, r.Session)
	//rule:R_HOLDS.refuse-late-request
	if err == nil && lease.Holder() != r.To {
		if lease.Holder() != s.Node {
			s.Leases.CheckAll() // this node has lost the session's lease
		}
		return
	}
	frozen, ok := sess.Freeze()
	switch {
	case ok:
		s.give(ctx, sess, r, frozen)
	case !sess.Ended(): // too large to move, and its lease is taken
		//rule:R_ADDR.retake-lease-of-staying-session
		s.reacquire(ctx, []*session.Session{sess})
	}
}

// give sends a frozen session to the node that requested it.
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

// pass sends a Request on to asked, the node that was asked for the session. It sends nothing if
// asked is zero or the Request has made bus.MaxHops hops.
func (s *Sessions) pass(ctx context.Context, r bus.Request, asked registry.Node) {
	//rule:R_PASS.end-after-some-hops
	if asked == (registry.Node{}) || asked == r.To || r.Hops >= bus.MaxHops {
		return
	}
	r.Hops++
	//rule:R_PASS.pass-on
	_ = bus.PublishOne(ctx, s.Bus, asked, bus.Event{Request: &r})
}

// land makes an arriving session live with the state of a Transfer. If there is none, it marks what
// the snapshot leaves unacknowledged (R_UNLANDED).
func (s *Sessions) land(t *bus.Transfer) {
	snapshot, err := session.ReadSnapshot(t.Snapshot)
	if err != nil {
		s.Log.Error("the state of a session from another node cannot be decoded; the client gets "+
			"a new session, which reconciles", "error", err)
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
		put(s.queued, bus.Event{Request: &r})
	}
}

// seekHere sets the positions of a session of this node and confirms that to the node that asked.
// If the session is not served here, it sends nothing, and the other node asks again.
func (s *Sessions) seekHere(ctx context.Context, q *bus.Seek) {
	var to session.Positions
	sess := s.Table.Get(q.Session)
	//rule:nothing_outside_membership.seek-for-its-user-only
	if sess == nil || sess.User() != q.User || json.Unmarshal(q.Positions, &to) != nil ||
		!sess.Seek(q.ID, to) {
		return
	}
	_ = bus.PublishOne(ctx, s.Bus, q.From, bus.Event{Done: &bus.Done{ID: q.ID}})
}

// endLoop ends the sessions that other nodes name, and confirms that to them, until ctx ends. For a
// session that is not here it sends nothing, and the other node asks again.
func (s *Sessions) endLoop(ctx context.Context) {
	answerLoop(ctx, s.ends, func(e bus.Event) registry.Node { return e.End.From },
		func(e bus.Event) {
			sess := s.Table.Get(e.End.Session)
			if sess != nil && sess.User() == e.End.User && s.revoke(ctx, sess) {
				done := bus.Event{Done: &bus.Done{ID: e.End.ID}}
				_ = bus.PublishOne(ctx, s.Bus, e.End.From, done)
			}
		})
}
