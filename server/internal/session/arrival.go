package session

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// maxRequests is how many Requests an arriving session keeps. Beyond it the oldest is dropped; its
// sender stops waiting after Host.Arrivals.
const maxRequests = 4

// arrival is the move of a session to this node.
//
//	step      what is known
//	begun     id
//	asked     asked, epoch: the registry granted the lease, and its holder gets the Request
//	landed    the session is live; id names the Transfer that brought it
//
// An arriving session keeps Requests and notifications. It hands them over when it lands or ends.
type arrival struct {
	// id names the arrival. The Request carries it, and only a Transfer with the same id lands
	// (R_ARRIVAL).
	id string
	// asked is the node that held the lease before. It is zero until the registry has named it.
	asked registry.Node
	// epoch is the registry's epoch before the lease was taken.
	epoch registry.Epoch
	// requests came from other nodes, oldest first.
	requests []bus.Request
	// kept has the notifications by chat.
	kept map[tidemark.ChatID]kept
	// decided is closed when the session lands, is overtaken or ends.
	decided chan struct{}
}

// kept summarizes the notifications of one chat that reached an arriving session.
type kept struct {
	low, high tidemark.Sequence
	marked    bool
	// unmarkedFrom is the lowest sequence without a row, or 0. If the session does not land,
	// messages without a row are marked (R_WAKESET), and those with one are followed (R_FOLLOW).
	unmarkedFrom tidemark.Sequence
}

// newArrival returns the residence of a session that still is at another node.
func newArrival(id string) residence {
	return residence{state: arriving, arrival: &arrival{
		id: id, kept: make(map[tidemark.ChatID]kept), decided: make(chan struct{}),
	}}
}

// keep appends a Request, and drops the oldest beyond maxRequests.
func (a *arrival) keep(q bus.Request) {
	//rule:R_PASS.keep-for-the-landing
	a.requests = append(a.requests, q)
	//rule:bounded_use.limit-kept-requests
	if len(a.requests) > maxRequests {
		a.requests = slices.Delete(a.requests, 0, 1)
	}
}

// collect records a notification. It returns false if limit chats have one already.
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

// notifications returns what was collected, sorted by chat so that the order is repeatable.
func (a *arrival) notifications() []Notification {
	all := make([]Notification, 0, 2*len(a.kept))
	for chat, k := range a.kept {
		all = append(all, Notification{Chat: chat, Sequence: k.low, Marked: k.marked},
			Notification{Chat: chat, Sequence: k.high, Marked: k.marked})
	}
	slices.SortStableFunc(all, func(a, b Notification) int { return compareChats(a.Chat, b.Chat) })
	return all
}

// Arriving returns a session that moves to this node. id names the arrival. The session keeps what
// is published to its lease until Land or End.
func (h *Host) Arriving(lease registry.Lease, id string) *Session {
	s := h.New(lease, false)
	s.residence = newArrival(id)
	return s
}

// Arrival returns the name of the session's arrival, or "" if the session was opened here.
func (s *Session) Arrival() string {
	if a := s.residence.arrival; a != nil { // set once
		return a.id
	}
	return ""
}

// Asked records the registry's answer: the node that held the lease, and the epoch before the lease
// was taken. The session then waits for a Transfer; Host.Arrivals bounds the wait. Asked returns
// the Requests that came before, which the caller passes on to previous (R_PASS).
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

// Requested records another node's Request for an arriving session, which is overtaken from then
// on. It returns the node to which the caller passes the Request on; that is zero while the node is
// not known. arriving is false if the session is not arriving.
func (s *Session) Requested(q bus.Request) (asked registry.Node, arriving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.arrives() {
		return registry.Node{}, false
	}
	s.residence.request(q)
	return s.residence.arrival.asked, true
}

// Outcome is the result of an arrival.
type Outcome uint8

// Outcomes of an arrival, as Arrived returns them.
const (
	Landed    Outcome = iota // the session is here; Resume reports whether it continues
	Overtaken                // another node has requested it
	Unlanded                 // it did not arrive
	Undecided                // the context ended first
)

// Arrived waits until an arrival is decided or ctx ends, and returns its outcome.
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

// Landing is the work that a landed session leaves to its caller.
type Landing struct {
	// Rows are to be marked.
	Rows []tidemark.PendingDelivery
	// Requests were kept for the session. The caller serves them as if they came now (R_PASS).
	Requests []bus.Request
}

// Land makes an arriving session live with the state of a Transfer. It returns false if the
// Transfer is not for this arrival; the caller then marks what the snapshot leaves unacknowledged
// (R_UNLANDED). If the same Transfer arrives again, Land returns true and no work.
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
	// The session expires if no client attaches. Its client may come back later or not at all.
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
