package session

import (
	"slices"

	"github.com/tidemark-im/tidemark"
)

// Reason says why a session ends on this node.
type Reason uint8

// Reasons for an end. Each gives the reader another error.
const (
	Closed     Reason = iota // the client said goodbye, or did not come back in time: Gone
	Superseded               // the device has a newer session: Replaced
	Stopped                  // the node is stopping: Unavailable
)

// residenceState says where a session lives, as this node knows it.
type residenceState uint8

const (
	live        residenceState = iota // it is served here
	draining                          // the node is stopping: it still takes notifications
	arriving                          // another node has it, and has been asked for it
	ended                             // it is over
	transferred                       // it went on at another node
)

// residence is the first of a session's eight values. It decides who may read the session, and
// whether a notification reaches it.
//
//	state         restore   drain      end      freeze
//	live          -         draining   ended    transferred
//	draining      -         -          ended    transferred
//	arriving      live      -          ended    -
//	ended         -         -          -        -
//	transferred   -         -          -        -
//
// The last two are final. A final session takes no notification, so that the caller marks it
// (R_ADDR, R_ORDER). The step into a final state hands over what is not acknowledged (R_WAKESET).
type residence struct {
	state  residenceState
	reason Reason // of ended
	// arrivals is what was published for an arriving session, by chat.
	arrivals map[tidemark.ChatID]arrival
	// landed is closed when an arriving session is restored or ends. It is nil for a session that
	// began here.
	landed chan struct{}
}

// arrival is what was published in one chat for a session that is arriving.
type arrival struct {
	low, high tidemark.Sequence
	marked    bool
}

// newArriving returns the residence of a session that another node still has.
func newArriving() residence {
	return residence{
		state: arriving, arrivals: make(map[tidemark.ChatID]arrival), landed: make(chan struct{}),
	}
}

// serves reports whether the session is here, so that notifications change it.
func (r *residence) serves() bool { return r.state == live || r.state == draining }

// final reports whether the session is over on this node.
func (r *residence) final() bool { return r.state == ended || r.state == transferred }

// collect takes a notification for an arriving session. It reports false if limit chats have one.
func (r *residence) collect(n Notification, limit int) bool {
	a, there := r.arrivals[n.Chat]
	if !there && len(r.arrivals) >= limit {
		return false
	}
	if !there || n.Sequence < a.low {
		a.low = n.Sequence
	}
	a.high, a.marked = max(a.high, n.Sequence), a.marked || n.Marked
	r.arrivals[n.Chat] = a
	return true
}

// restore makes an arriving session live. It returns the notifications that it collected, in the
// order of their chats, which no map gives.
func (r *residence) restore() []Notification {
	collected := make([]Notification, 0, 2*len(r.arrivals))
	for chat, a := range r.arrivals {
		collected = append(collected,
			Notification{chat, a.low, a.marked}, Notification{chat, a.high, a.marked})
	}
	slices.SortStableFunc(collected, func(a, b Notification) int {
		return compareChats(a.Chat, b.Chat)
	})
	r.state, r.arrivals = live, nil
	close(r.landed)
	return collected
}

// drain lets readers go, because the node is stopping.
func (r *residence) drain() {
	if r.state == live {
		r.state = draining
	}
}

// end ends the session and returns what an arriving one had collected.
func (r *residence) end(reason Reason) map[tidemark.ChatID]arrival {
	collected := r.arrivals
	if r.state == arriving {
		close(r.landed)
	}
	r.state, r.reason, r.arrivals = ended, reason, nil
	return collected
}

// freeze ends the session here, because it goes on at another node.
func (r *residence) freeze() {
	//rule:resume_lossless.tell-connection-of-replacement
	r.state = transferred
}

// readable returns nil if a reader may have events, else the reason as the client is told it.
func (r *residence) readable() error {
	switch {
	case r.state == live:
		return nil
	case r.state == transferred:
		return tidemark.Errorf(tidemark.Replaced,
			"the session went on at another server; do not reconnect by yourself")
	//rule:resume_lossless.report-replaced-session
	case r.state == ended && r.reason == Superseded:
		return tidemark.Errorf(tidemark.Replaced,
			"the device has a newer session; do not reconnect by yourself")
	case r.state == ended && r.reason == Closed:
		return tidemark.Errorf(tidemark.Gone, "the session has ended; open a new one")
	case r.state == arriving:
		return tidemark.Errorf(tidemark.Unavailable, "the session is not here yet; connect again")
	}
	return tidemark.Errorf(tidemark.Unavailable, "the server is stopping; connect again")
}
