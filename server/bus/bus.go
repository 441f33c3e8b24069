// Package bus is the contract for events between nodes. A publication may be late, doubled or
// reordered, which costs only latency. It may be lost only in two cases. Either its publisher gets
// an error, or the node that missed it joins the registry again, which raises the epoch
// (Subscriber.Missed).
//
// bus/local serves one process, bus/redis several nodes. bustest is the suite that every bus
// passes.
package bus

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/tracing"
)

// Event is a message from one node to another. Exactly one of the pointers is set. An Event is
// immutable.
type Event struct {
	// To has the leases of the sessions that the event is for. All belong to the receiving node.
	// Presence, Request, Transfer, Seek, End, Done, Survey, Report and Access have none.
	To []registry.Lease

	Notification *Notification
	Status       *Status
	Own          *Own
	Membership   *Membership
	Update       *Update
	// Typing says that a user is typing. It may be dropped under load.
	Typing   *tidemark.Typing
	Presence *Presence
	Request  *Request
	Transfer *Transfer
	Seek     *Seek
	End      *End
	Done     *Done
	Survey   *Survey
	Report   *Report
	Access   *Access
}

// Repeated reports whether nothing is missed if the event is lost. It is a question that its
// publisher repeats until it is answered, the answer to one, or an event that may be dropped.
func (e *Event) Repeated() bool {
	return e.Seek != nil || e.End != nil || e.Done != nil || e.Typing != nil || e.Survey != nil ||
		e.Report != nil || e.Presence != nil && e.Presence.Look != nil
}

// Notification says that a chat has a message for the sessions.
type Notification struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
	// Message is the message, or nil. With it the node need not read the message from storage. It
	// is nil for an edit or a redaction, and for a message that was changed: nodes read these from
	// storage.
	Message *tidemark.Message
	// Relation says that the message is an edit or a redaction: what the node has of the chat's
	// earlier messages may be outdated (R_WIPE).
	Relation bool
	// Encoded is the JSON of Message, or nil.
	Encoded []byte
	// Marked says that the users may have a pending row, which their acknowledgement has to clear.
	Marked bool
	// Trace is the span under which the message is published, if it is traced, else zero.
	Trace tracing.Context
}

// Status says that boundaries of members have risen.
type Status struct {
	Updates []tidemark.StatusUpdate
	// Version is the membership version from which the receivers were taken.
	Version uint64
}

// Own says that the own state of the sessions' user in a chat has changed (tidemark.OwnState).
// Without a chat, it says that the user has changed who sees what they read (storage.Receipts).
type Own struct{ Chat tidemark.ChatID }

// Membership says that members joined or left. The receiving node drops cached rosters with an
// older version.
type Membership struct {
	Changes []tidemark.MembershipChange
	// Version is the membership version after the change.
	Version uint64
	// Members is how many members the chat has, if users were added to it. Else it is 0.
	Members int
}

// Update says that the name, the metadata or the policy of a chat changed.
type Update struct {
	tidemark.ChatUpdate
	// MembersVersion is the membership version from which the receivers were taken.
	MembersVersion uint64
	// Receipts says that it may have changed who sees what the members read. The sessions read that
	// again.
	Receipts bool
}

// Presence says what happened on a node in a second: which users came and left, and whether
// sessions of it look at chats.
type Presence struct {
	// From is the node that says it.
	From registry.Node
	// Looking says that sessions of the node look at chats. It asks for Presence of the others for
	// a minute.
	Looking bool
	// At is when it was said.
	At tidemark.Millis
	// Came has users whose first session on the node began, and Left those whose last one ended.
	Came, Left []tidemark.UserID
	// Changed has users who hid themselves, or no longer do. It is stored already.
	Changed []tidemark.UserID
	// Look is what a client shows, whose session is on the receiving node, or nil. The answer is
	// Done.
	Look *Look
}

// Look says which chats the client of a session shows.
type Look struct {
	// ID names the question. Done repeats it.
	ID      string
	Session tidemark.SessionID
	User    tidemark.UserID
	Chats   []tidemark.ChatID
}

// MaxHops is how often a Request is passed on at most.
const MaxHops = 3

// Request asks a node for a session that is arriving at another node (delivery.md §4, Transfer). It
// goes to the previous holder of the session's lease. If the session is arriving there too, that
// node passes the Request on.
type Request struct {
	// ID names the arrival. The Transfer repeats it.
	ID      string
	Session tidemark.SessionID
	// User is the user of the client that resumes. A session of another user is not given.
	User tidemark.UserID
	// To is the node on which the session arrives.
	To registry.Node
	// Hops is how often the Request was passed on.
	Hops uint8
}

// Transfer is the state of a session, for the node that requested it.
type Transfer struct {
	// ID is the ID of the Request.
	ID string
	// Snapshot is the JSON of a session.Snapshot.
	Snapshot []byte
}

// Seek sets the positions of a session on the node that serves it. The answer is Done.
type Seek struct {
	// ID names the question. Done repeats it.
	ID      string
	Session tidemark.SessionID
	User    tidemark.UserID
	// From is the node that gets the answer.
	From registry.Node
	// Positions is the JSON of a session.Positions.
	Positions []byte
}

// End ends a session on the node that serves it, because its user wants that. The answer is Done.
type End struct {
	// ID names the question. Done repeats it.
	ID      string
	Session tidemark.SessionID
	User    tidemark.UserID
	// From is the node that gets the answer.
	From registry.Node
}

// Done says that the Seek, End or Look with this ID was done.
type Done struct{ ID string }

// Survey asks a node for its figures. The answer is Report. An operator waits for it, so it may be
// dropped under load.
type Survey struct {
	// ID names the question. Report repeats it.
	ID string
	// From is the node that gets the answer.
	From registry.Node
}

// Report answers a Survey.
type Report struct {
	// ID is the ID of the Survey.
	ID string
	// Node is the node that answers.
	Node registry.Node
	// Figures is a text that only the asker reads.
	Figures []byte
}

// Access says that a user was suspended, may use the server again, or has signed out. It is stored
// already. The receiving node forgets what it knows of that, and ends the sessions which may not go
// on.
type Access struct{ User tidemark.UserID }

// Subscriber receives events for a node. Its functions must not block.
type Subscriber struct {
	// Receive handles an event. It may be called concurrently.
	Receive func(Event)
	// Missed is called when publications may have been lost because the subscription was
	// interrupted. By then new publications arrive again. The node joins the registry again, so
	// that all sessions reconcile. Missed may be nil.
	Missed func()
}

// Publication is an event for a node.
type Publication struct {
	Node  registry.Node
	Event Event
}

// Bus carries events to nodes. If its subscriptions can be interrupted, it also has a method
// Check(context.Context) error. Check does not block, and returns Unavailable during an
// interruption.
type Bus interface {
	// Subscribe calls s with the events for a node until stop is called. After stop has returned,
	// there are no calls. A node can have one subscription; a second one is a Conflict. If the bus
	// is unreachable, Subscribe returns no error, keeps trying, and calls Missed when it succeeds.
	Subscribe(ctx context.Context, node registry.Node, s Subscriber) (stop func(), err error)
	// Publish sends events to nodes, and returns one error for each. nil means that the subscriber
	// was called, or will be unless its node joins the registry again. NotFound means that no
	// subscriber received the event, and Unavailable that this is not known. In both cases the
	// caller marks the users.
	Publish(ctx context.Context, publications []Publication) []error
}

// Complainer is a Bus that complains in the registry about nodes that a publication may not have
// reached, unless all its events are Repeated. The publisher's next heartbeat writes the complaint.
// The next heartbeat of the other node finds it. That node then trusts nothing that it has cached,
// and reconciles its sessions. Once it is reached, it joins the registry again. So the publisher
// need not join again, and no failed publication to a dead node raises the epoch.
type Complainer interface {
	Bus
	// Complains only marks the type. It does nothing.
	Complains()
}

// PublishOne publishes one event.
func PublishOne(ctx context.Context, b Bus, node registry.Node, event Event) error {
	return b.Publish(ctx, []Publication{{Node: node, Event: event}})[0]
}
