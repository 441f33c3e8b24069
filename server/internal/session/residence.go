package session

import (
	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
)

// Reason says why a session ends on this node.
type Reason uint8

// Reasons for an end, with the error that the reader gets.
const (
	Closed     Reason = iota // the client closed it, or did not come back in time: Gone
	Superseded               // the device has a newer session: Replaced
	Stopped                  // the node is stopping: Unavailable
	Revoked                  // its user ended it from elsewhere: Replaced
	Barred                   // its user may not use the server any more: the error of Bar
)

// residenceState says where a session lives, as far as this node knows.
type residenceState uint8

const (
	live        residenceState = iota // it is served here
	draining                          // the node is stopping; notifications are still accepted
	arriving                          // it is moving here from the node that had its lease
	overtaken                         // the same, and another node has requested it
	unlanded                          // it did not arrive; its lease has still to be released
	ended                             // it is over
	transferred                       // it continues at another node
)

// residence says where a session lives. It decides whether a reader may read it, and whether it
// accepts notifications.
//
//	state         request     land   drain      end        freeze
//	live          -           -      draining   ended      transferred
//	draining      -           -      -          ended      transferred
//	arriving      overtaken   live   -          unlanded   -
//	overtaken     overtaken   live   -          unlanded   -
//	unlanded      -           -      -          -          -
//	ended         -           -      -          -          -
//	transferred   -           -      -          -          -
//
// The last three are final. A final session accepts no notification, so its caller marks the
// message (R_ADDR, R_ORDER). The step into a final state returns what is not acknowledged
// (R_WAKESET).
type residence struct {
	state  residenceState
	reason Reason // set in the state ended
	// barred is the error for the client if the reason is Barred.
	barred error
	// arrival is the move to this node. It is nil if the session was opened here.
	arrival *arrival
}

// serves reports whether the session is served here.
func (r *residence) serves() bool { return r.state == live || r.state == draining }

// arrives reports whether the session is moving to this node.
func (r *residence) arrives() bool { return r.state == arriving || r.state == overtaken }

// final reports whether the session is over on this node.
func (r *residence) final() bool {
	return r.state == unlanded || r.state == ended || r.state == transferred
}

// request records another node's Request for an arriving session.
func (r *residence) request(q bus.Request) {
	r.arrival.keep(q)
	if r.state == arriving {
		//rule:R_OVERTAKEN.wake-those-who-wait
		close(r.arrival.decided)
	}
	r.state = overtaken
}

// land makes an arriving session live. It returns what the arrival kept.
func (r *residence) land() (notifications []Notification, requests []bus.Request) {
	if r.state == arriving {
		close(r.arrival.decided)
	}
	a := r.arrival
	notifications, requests = a.notifications(), a.requests
	r.state, a.kept, a.requests = live, nil, nil
	return notifications, requests
}

// drain makes a live session refuse readers, because the node is stopping.
func (r *residence) drain() {
	if r.state == live {
		r.state = draining
	}
}

// end ends the session. It returns the notifications that an arriving session had kept.
func (r *residence) end(reason Reason) map[tidemark.ChatID]kept {
	r.reason = reason
	if !r.arrives() {
		r.state = ended
		return nil
	}
	if r.state == arriving {
		close(r.arrival.decided)
	}
	left := r.arrival.kept
	r.state, r.arrival.kept = unlanded, nil
	return left
}

// freeze ends the session here, because it moves to another node.
func (r *residence) freeze() {
	//rule:resume_lossless.tell-connection-of-replacement
	r.state = transferred
}

// readable returns nil if the session may be read, else the error for its client.
func (r *residence) readable() error {
	switch {
	case r.state == live:
		return nil
	case r.state == transferred:
		return tidemark.Errorf(tidemark.Replaced,
			"the session continues on another server; do not reconnect automatically")
	//rule:resume_lossless.report-replaced-session
	case r.state == ended && r.reason == Superseded:
		return tidemark.Errorf(tidemark.Replaced,
			"the device has a newer session; do not reconnect automatically")
	//rule:sessions_end_when_told.report-revoked-session
	case r.state == ended && r.reason == Revoked:
		return tidemark.Errorf(tidemark.Replaced,
			"the session was ended by a request of its user; do not reconnect automatically")
	//rule:suspended_does_nothing.say-why-the-session-ended
	case r.barred != nil && r.final():
		return r.barred
	case r.state == ended && r.reason == Closed:
		return tidemark.Errorf(tidemark.Gone, "the session has ended; open a new one")
	case r.arrives():
		return tidemark.Errorf(tidemark.Unavailable,
			"the session is still moving to this server; connect again")
	case r.state == unlanded:
		return tidemark.Errorf(tidemark.Unavailable,
			"the session did not arrive from another server; connect again")
	}
	return tidemark.Errorf(tidemark.Unavailable, "the server is stopping; connect again")
}
