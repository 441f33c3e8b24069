package tidemark

import "time"

// EventType is the type of an event of the stream, the same over every transport.
type EventType string

// The types of events, and the payload of each.
const (
	// EventOpen is always the first event of a connection: Open.
	EventOpen EventType = "open"
	// EventMessage carries a Message.
	EventMessage EventType = "message"
	// EventGap carries a Gap, which counts as received.
	EventGap EventType = "gap"
	// EventStatus carries a StatusUpdate.
	EventStatus EventType = "status_update"
	// EventMembership carries a MembershipChange.
	EventMembership EventType = "membership"
	// EventCaughtUp says that everything that was pending at open has been sent. Its payload is {}.
	EventCaughtUp EventType = "caught_up"
	// EventReset says that the position given is unknown; the client sends its cursors: Reset.
	EventReset EventType = "reset"
	// EventTyping is ephemeral: without id, dropped under pressure. It carries Typing.
	EventTyping EventType = "typing"
	// EventError has no id. It carries Problem.
	EventError EventType = "error"
)

// Event is what a session yields.
type Event struct {
	// ID counts within the session, from 1, and never goes back, also after a rewind. It is 0 on an ephemeral event.
	ID   uint64
	Type EventType
	// Payload is JSON without a newline. It is shared between sessions and must not be changed.
	Payload []byte
}

// Open is the payload of EventOpen.
type Open struct {
	Session SessionID
	// Resumed reports whether the session went on where the client's position was.
	Resumed bool
	// Position is the number after which the events of this connection follow.
	Position uint64
	// Heartbeat is the longest silence of the server.
	Heartbeat time.Duration
	// Resume is how long the session outlives its connection.
	Resume time.Duration
}

// StatusUpdate is the payload of EventStatus: the exposed boundary of a member, or, with an empty UserID, the
// least one of all members.
type StatusUpdate struct {
	ChatID ChatID
	UserID UserID
	Boundary
}

// Change says what happened to a membership.
type Change string

// The changes.
const (
	Added   Change = "added"
	Removed Change = "removed"
)

// MembershipChange is the payload of EventMembership.
type MembershipChange struct {
	ChatID ChatID
	UserID UserID
	Change Change
}

// ResetReason says why a client has to send its cursors.
type ResetReason string

// The reasons.
const (
	// ResetUnknownSession: the session has expired, is someone else's, or was never here.
	ResetUnknownSession ResetReason = "unknown_session"
	// ResetUnknownPosition: the position is older than the session remembers, or was never sent.
	ResetUnknownPosition ResetReason = "unknown_position"
	// ResetAhead: the client's cursor is above the chat's head: it belongs to another chat or database.
	ResetAhead ResetReason = "ahead"
	// ResetOverflow: more happened than the session can remember.
	ResetOverflow ResetReason = "overflow"
)

// Reset is the payload of EventReset. ChatID is set with ResetAhead only.
type Reset struct {
	Reason ResetReason
	ChatID ChatID
}

// Typing is the payload of EventTyping.
type Typing struct {
	ChatID ChatID
	UserID UserID
}

// Problem is the payload of EventError.
type Problem struct {
	Code      Code
	Detail    string
	RequestID string
}
