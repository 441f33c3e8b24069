package tidemark

import "time"

// EventType is the type of an event of the stream. It is the same over every transport.
type EventType string

// The types of events, and the payload of each.
const (
	// EventSession is always the first event of a connection. It carries a SessionStart.
	EventSession EventType = "session"
	// EventMessage carries a Message.
	EventMessage EventType = "message"
	// EventGap carries a Gap. A client counts the gap as received.
	EventGap EventType = "gap"
	// EventStatus carries a StatusUpdate.
	EventStatus EventType = "status_update"
	// EventOwnState carries an OwnState.
	EventOwnState EventType = "own_state"
	// EventMembership carries a MembershipChange.
	EventMembership EventType = "membership"
	// EventChatUpdated carries a ChatUpdate.
	EventChatUpdated EventType = "chat_updated"
	// EventCaughtUp says that everything that was pending at open has been sent. Its payload is {}.
	EventCaughtUp EventType = "caught_up"
	// EventReset says that the server does not know the client's position. It carries a Reset.
	// The client answers with its cursors.
	EventReset EventType = "reset"
	// EventTyping is ephemeral: it has no id, and is dropped under pressure. It carries a Typing.
	EventTyping EventType = "typing"
	// EventPresence is ephemeral: it has no id. It carries a Presence. Only sessions that look at a
	// chat get it.
	EventPresence EventType = "presence"
	// EventConfirmation carries a Confirmation of a message that the client sent over this
	// connection. With an id it stands for the message's event, if the client asks for that.
	EventConfirmation EventType = "send_message_ack"
	// EventProblem has no id. It carries a Problem.
	EventProblem EventType = "problem"
)

// Event is one item of a session's stream.
type Event struct {
	// ID counts the events of the session, from 1. It never goes back, not even after a rewind.
	// An ephemeral event has the ID 0.
	ID   uint64
	Type EventType
	// RequestID is the id that the client gave its request, if the event answers one, or "".
	RequestID string
	// Payload is JSON without a newline. Sessions share it, so it must not be changed.
	Payload []byte
}

// Confirmation is the payload of EventConfirmation: the message is stored.
type Confirmation struct {
	Message *Message
	// Duplicate says that an earlier send stored it.
	Duplicate bool
}

// SessionStart is the payload of EventSession.
type SessionStart struct {
	Session SessionID
	// User is whose session it is, as the server knows them.
	User UserID
	// Resumed reports whether the session continues at the client's position.
	Resumed bool
	// EventID precedes the ids of the events of this connection.
	EventID uint64
	// Heartbeat is the longest time for which the server sends nothing.
	Heartbeat time.Duration
	// Resume is how long the session outlives its connection.
	Resume time.Duration
	// Incarnation is that of the data. All events of the session are of this incarnation.
	Incarnation Incarnation
	// Attachments reports whether the server keeps the files that messages name.
	Attachments bool
}

// StatusUpdate is the payload of EventStatus: the exposed boundary of one member.
// If UserID is empty, it is the least boundary of all members.
type StatusUpdate struct {
	ChatID ChatID
	UserID UserID
	Boundary
}

// OwnState is the payload of EventOwnState: what a user has received, read and not read of a chat.
// Only their own sessions get it, because another device or a backend moved it.
type OwnState struct {
	DeliveryState
	// Unread counts the messages that are not read, and Mentions those that name the user.
	Unread, Mentions int64
}

// Change says what happened to a membership.
type Change string

// The changes.
const (
	Added   Change = "added"
	Removed Change = "removed"
	// RoleChanged also stands for a change of the role and the metadata at once.
	RoleChanged     Change = "role_changed"
	MetadataChanged Change = "metadata_changed"
)

// MembershipChange is the payload of EventMembership.
type MembershipChange struct {
	ChatID ChatID
	UserID UserID
	Change Change
	// Role is the user's role after the change. It is empty if they are no member any more.
	Role Role
	// Version is the version of the chat's membership after the change.
	Version uint64
}

// ChatUpdate is the payload of EventChatUpdated: the name, the metadata or the Policy of a chat
// changed.
type ChatUpdate struct {
	ChatID ChatID
	// Version is Chat.Version after the change.
	Version uint64
}

// ResetReason says why a client must send its cursors.
type ResetReason string

// The reasons.
const (
	// ResetUnknownSession: the session has expired, belongs to another user, or never existed.
	ResetUnknownSession ResetReason = "unknown_session"
	// ResetUnknownPosition: the position is older than the session remembers, or was never sent.
	ResetUnknownPosition ResetReason = "unknown_position"
	// ResetAhead: the client's cursor is above the chat's head.
	// It must come from another chat or database.
	ResetAhead ResetReason = "ahead"
	// ResetRestored: the cursor is of an earlier incarnation, and above Reset.Through.
	ResetRestored ResetReason = "restored"
	// ResetOverflow: more happened than the session can remember.
	ResetOverflow ResetReason = "overflow"
)

// Reset is the payload of EventReset. ChatID is set only if the reason is ResetAhead or
// ResetRestored.
type Reset struct {
	Reason ResetReason
	ChatID ChatID
	// Through is set if the reason is ResetRestored. The messages up to it are those that the
	// client has; it drops all above.
	Through Sequence
}

// TypingExpires is how long a typing notice counts (`expires_in_seconds`), unless it is repeated.
const TypingExpires = 6 * time.Second

// Typing is the payload of EventTyping.
type Typing struct {
	ChatID ChatID
	UserID UserID
}

// Presence is the payload of EventPresence: who of a chat is online. A chat of up to
// PresenceMembers has Members, and a larger one has Online.
type Presence struct {
	ChatID ChatID
	// Members has all members when a look begins, and then those of whom something changed.
	Members []MemberPresence
	// Online is how many members are online. It counts only if Members is nil.
	Online int
}

// PresenceMembers is the number of members up to which a chat shows who is online.
const PresenceMembers = 50

// MemberPresence says whether a member is online.
type MemberPresence struct {
	UserID UserID
	Online bool
	// LastSeen is when the last session of a member who is offline ended, or 0 if that is unknown
	// or hidden.
	LastSeen Millis
}

// Problem is the payload of EventProblem.
type Problem struct {
	Code   Code
	Detail string
	// Param is the field that is at fault, or "".
	Param string
}
