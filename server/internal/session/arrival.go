package session

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// maxRequests bounds the Requests that an arriving session keeps. Beyond it the oldest is dropped:
// its node does not wait for ever.
const maxRequests = 4

// arrival is how a session comes to this node.
//
//	step      what is known then
//	begun     id
//	asked     asked, epoch: the registry has given the lease, and the Request goes to its holder
//	landed    the session is live, and id names the Transfer by which it came
//
// Requests and notifications are kept from the beginning, and handed over when the session lands or
// ends.
type arrival struct {
	// id names the arrival. The Request carries it, and only a Transfer that repeats it lands
	// (R_ARRIVAL).
	id string
	// asked is the previous holder of the lease. It is zero until the registry has named it.
	asked registry.Node
	// epoch is what the registry said before the lease was taken.
	epoch registry.Epoch
	// requests are those of other nodes, in the order in which they came.
	requests []bus.Request
	// kept is what was published for the session, by chat.
	kept map[tidemark.ChatID]kept
	// decided is closed when the session lands, is overtaken, or ends.
	decided chan struct{}
}

// kept is what was published in one chat for a session that is arriving.
type kept struct {
	low, high tidemark.Sequence
	marked    bool
	// unmarkedFrom is the lowest sequence without a row, 0 if there is none. If the session does not
	// arrive it is marked (R_WAKESET). What has a row is followed instead (R_FOLLOW).
	unmarkedFrom tidemark.Sequence
}

// newArrival returns the residence of a session that another node still has.
func newArrival(id string) residence {
	return residence{state: arriving, arrival: &arrival{
		id: id, kept: make(map[tidemark.ChatID]kept), decided: make(chan struct{}),
	}}
}

// keep keeps a Request.
func (a *arrival) keep(q bus.Request) {
	//rule:R_PASS.keep-for-the-landing
	a.requests = append(a.requests, q)
	//rule:bounded_use.limit-kept-requests
	if len(a.requests) > maxRequests {
		a.requests = slices.Delete(a.requests, 0, 1)
	}
}

// collect keeps a notification. It reports false if limit chats have one.
func (a *arrival) collect(n Notification, limit int) bool {
	k, there := a.kept[n.Chat]
	if !there && len(a.kept) >= limit {
		return false
	}
	if !there || n.Sequence < k.low {
		k.low = n.Sequence
	}
	k.high, k.marked = max(k.high, n.Sequence), k.marked || n.Marked
	if !n.Marked && (k.unmarkedFrom == 0 || n.Sequence < k.unmarkedFrom) {
		k.unmarkedFrom = n.Sequence
	}
	a.kept[n.Chat] = k
	return true
}

// notifications returns what was collected in the order of the chats, which no map gives.
func (a *arrival) notifications() []Notification {
	all := make([]Notification, 0, 2*len(a.kept))
	for chat, k := range a.kept {
		all = append(all, Notification{chat, k.low, k.marked}, Notification{chat, k.high, k.marked})
	}
	slices.SortStableFunc(all, func(a, b Notification) int { return compareChats(a.Chat, b.Chat) })
	return all
}

// Arriving returns a session that moves to this node, under the name of its arrival. It keeps what is
// published to its lease, until Land or End.
func (h *Host) Arriving(lease registry.Lease, id string) *Session {
	s := h.New(lease, false)
	s.residence = newArrival(id)
	return s
}

// Arrival returns the name under which the session arrives or arrived, "" if it was opened here.
func (s *Session) Arrival() string {
	if a := s.residence.arrival; a != nil { // set once
		return a.id
	}
	return ""
}

// Asked takes in what the registry answered: which node had the lease, and the epoch before it was
// taken. From now on the session waits for a Transfer, for as long as Host.Arrivals says. It returns
// the Requests that came before: they have still to be passed on to previous (R_PASS).
func (s *Session) Asked(previous registry.Node, epoch registry.Epoch) []bus.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.arrives() {
		return nil
	}
	a := s.residence.arrival
	a.asked, a.epoch = previous, epoch
	s.host.Arrivals.push(Deadline{session: s})
	//rule:R_PASS.pass-on-what-came-early
	return slices.Clone(a.requests)
}

// Requested takes another node's Request for an arriving session, which is overtaken from now on. It
// returns the node that was asked for the session, to which the Request is passed on; a zero one
// while that is not known. It reports false if the session is not arriving.
func (s *Session) Requested(q bus.Request) (asked registry.Node, arriving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.arrives() {
		return registry.Node{}, false
	}
	s.residence.request(q)
	return s.residence.arrival.asked, true
}

// Outcome is what those who wait for an arriving session are told.
type Outcome uint8

// Outcomes of an arrival.
const (
	Landed    Outcome = iota // it is here, or was opened here: Resume says whether it goes on
	Overtaken                // another node has asked for it
	Unlanded                 // it did not come
	Undecided                // the context ended first
)

// Arrived waits until it is known what became of an arriving session.
func (s *Session) Arrived(ctx context.Context) Outcome {
	if a := s.residence.arrival; a != nil { // set once
		select {
		case <-a.decided:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.residence.state {
	case arriving:
		return Undecided
	case overtaken:
		return Overtaken
	case unlanded:
		//rule:R_OVERTAKEN.remember-after-the-end
		if len(s.residence.arrival.requests) > 0 {
			return Overtaken
		}
		return Unlanded
	}
	return Landed
}

// Landing is what a session leaves to be done that has landed.
type Landing struct {
	// Rows are to be marked.
	Rows []tidemark.PendingDelivery
	// Requests were kept for the session. They are served as if they came now (R_PASS).
	Requests []bus.Request
}

// Land lets an arriving session go on where it was frozen, if the Transfer is that of its arrival. It
// reports false if the snapshot lands nowhere: then the caller marks what it leaves unacknowledged
// (R_UNLANDED). A Transfer that comes again to the session that landed by it leaves nothing.
func (s *Session) Land(id string, m *Snapshot) (left Landing, landed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.residence.arrival
	switch {
	//rule:R_ARRIVAL.land-the-transfer-that-was-asked-for
	case a == nil || a.id != id || m.User != s.User():
		return left, false
	//rule:pending_once.ignore-repeated-answer
	case s.residence.serves():
		return left, true
	case !s.residence.arrives():
		return left, false
	}
	s.host.Count.Landed.Add(1)
	left.Rows = s.restore(m)
	// A reader comes soon, unless its client has been told to come back.
	//rule:bounded_use.expire-landed-session
	s.host.Expiry.push(Deadline{session: s, left: s.attachment.land()})
	var notifications []Notification
	notifications, left.Requests = s.residence.land()
	for _, n := range notifications {
		//rule:R_ADDR.replay-early-wakes
		s.notify(n)
	}
	return left, true
}
