// Package bus is the contract by which a node tells another that something happened for sessions that it holds. Publications
// may be late, doubled or reordered, which costs latency and nothing else. One may be lost only if its publisher is told, or if the node that missed it
// joins the registry anew, which raises the epoch: a node whose subscription was interrupted does (Subscriber.Missed).
//
// bus/local serves one process, bus/redis many; bustest is the suite that every bus passes.
package bus

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Event is what one node tells another. Exactly one of the pointers is set. Events are immutable.
type Event struct {
	// To are the leases of the sessions that the event is for, all of the node that it goes to. What is
	// about the move of a session has none.
	To []registry.Lease

	Notification *Notification
	Status       *Status
	Membership   *Membership
	// Typing says that somebody is typing. It is dropped under pressure.
	Typing   *tidemark.Typing
	Request  *Request
	Transfer *Transfer
	Seek     *Seek
	Sought   *Sought
}

// Notification says that a chat has a message for the sessions.
type Notification struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
	// Message, if not nil, is the message, so that the node need not read it from storage.
	Message *tidemark.Message
	// Encoded is the JSON of Message, nil if Message is.
	Encoded []byte
	// Marked says that a pending row may stand for the users: their acknowledgement clears it.
	Marked bool
}

// Status tells the sessions of the users that boundaries have moved.
type Status struct {
	Updates []tidemark.StatusUpdate
	// Version is the membership version that the receivers were taken from.
	Version uint64
}

// Membership tells the sessions of the users that members came or went, and the node to drop what it remembers of older versions.
type Membership struct {
	Changes []tidemark.MembershipChange
	// Version is the membership version after the change.
	Version uint64
}

// MaxHops is how often a Request is passed on.
const MaxHops = 3

// Request asks a node for a session that arrives at another one (delivery.md §4, Transfer). It goes to
// the previous holder of the session's lease. A node on which the session is arriving as well passes
// it on.
type Request struct {
	// ID names the arrival. The Transfer repeats it.
	ID      string
	Session tidemark.SessionID
	// User is whose client has come back: another user's session is not given.
	User tidemark.UserID
	// To is the node on which the session arrives.
	To registry.Node
	// Hops is how often the Request was passed on.
	Hops uint8
}

// Transfer is a session on its way to the node that asked for it.
type Transfer struct {
	// ID is that of the Request.
	ID string
	// Snapshot is the session, as package session writes it.
	Snapshot []byte
}

// Seek sets the positions of a session on the node that serves it. It is the one event with an
// answer.
type Seek struct {
	// ID names the question. Sought repeats it.
	ID      string
	Session tidemark.SessionID
	User    tidemark.UserID
	// From is where the answer goes.
	From registry.Node
	// Positions are the new ones, as package session writes them.
	Positions []byte
}

// Sought says that a Seek was done.
type Sought struct{ ID string }

// Subscriber is a node's end of the bus. Its functions must not block.
type Subscriber struct {
	// Receive takes an event. It may be called concurrently.
	Receive func(Event)
	// Missed is called when publications to the node may have been lost, since its subscription was interrupted; after it, they arrive again.
	// The node joins the registry anew, so that everybody compares. nil: it is of no interest.
	Missed func()
}

// Publication is an event and the node that it goes to.
type Publication struct {
	Node  registry.Node
	Event Event
}

// Bus carries events to nodes. One whose subscription can be interrupted also has a method Check(context.Context) error, which returns Unavailable at
// once while it is.
type Bus interface {
	// Subscribe delivers the events for a node, until stop is called. After stop has returned, no call begins. One subscription per
	// node: a second one is a Conflict. A bus that cannot be reached is no error: Subscribe goes on trying, and calls Missed when it has succeeded.
	Subscribe(ctx context.Context, node registry.Node, s Subscriber) (stop func(), err error)
	// Publish sends events to nodes, and returns one error for each: NotFound if it is known that nobody received it, Unavailable if that is not known;
	// in both cases the caller marks the users concerned. nil says that the subscriber was called, or will be unless the node joins anew.
	Publish(ctx context.Context, publications []Publication) []error
}

// PublishOne is Bus.Publish for one event.
func PublishOne(ctx context.Context, b Bus, node registry.Node, event Event) error {
	return b.Publish(ctx, []Publication{{Node: node, Event: event}})[0]
}
