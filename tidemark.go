// Package tidemark is the vocabulary of a messaging-delivery server and the pure rules that hold
// whatever stores or carries the messages. It answers three questions about a message: is it stored,
// has it reached them, have they read it.
//
// A chat is a sequence of messages, numbered 1, 2, 3, … without gaps. A device that has stored every
// message up to n acknowledges n; one watermark per user and chat says what is delivered, a second one
// what is read. From the two numbers every tick is derived, and none is stored.
//
// The package imports the standard library only, does no I/O, and is safe for concurrent use: all its
// functions are pure, and its types are values.
//
// The words here are the vocabulary of the project. docs/internals/adr-008.md maps the names of
// other documents to them.
package tidemark

import "fmt"

// The names of things. Each is 1 to MaxIDLength bytes of [A-Za-z0-9_.:-]; ValidID says so.
type (
	// ChatID names a chat: a direct chat of two users or a group.
	ChatID string
	// UserID names a user. User ids are the deployment's own and need no registration.
	UserID string
	// DeviceID names one device (an app install, a browser tab) of a user.
	DeviceID string
	// MessageID names a message for ever, across chats. It is a UUIDv7 given by the server.
	MessageID string
	// NodeID names one server process.
	NodeID string
	// SessionID names one device's place in the stream. It has at most 22 characters and no dot.
	SessionID string
)

// Sequence is a position in one chat: 1 is the first message, 0 is "nothing yet". Sequences are assigned
// by the step that stores the message, without gaps (delivery.md §2), and are comparable only within a chat.
type Sequence uint64

// Limits of the contract, the same on every backend: those of the weakest one (items of 400 KB).
const (
	// MaxIDLength is the greatest length of an id in bytes.
	MaxIDLength = 128
	// MaxSequence is the highest sequence: one below 2^53, so that JavaScript can hold it exactly.
	MaxSequence Sequence = 1<<53 - 1
	// MaxContent is the greatest size of a message's content in bytes.
	MaxContent = 65_536
	// MaxAttachment is the greatest size of an attachment object in bytes of JSON.
	MaxAttachment = 4_096
	// MaxContentType is the greatest length of a content type in bytes.
	MaxContentType = 128
	// MaxChatName is the greatest length of a chat's name in bytes.
	MaxChatName = 256
	// MaxMembers is the greatest number of current members of a chat.
	MaxMembers = 10_000
	// MaxMembersPerCall is the greatest number of users that one call adds to a chat, or creates it with.
	MaxMembersPerCall = 1_000
	// MaxIntervals is the greatest number of times that one user can join one chat.
	MaxIntervals = 100
	// PendingFanoutLimit is the number of members above which a chat marks no pending rows any more
	// (Chat.Large): opening a session compares the chat's head instead (delivery.md §4).
	PendingFanoutLimit = 500
	// StatusFanoutLimit is the number of members above which status updates carry the group's minimum
	// instead of each member's boundaries.
	StatusFanoutLimit = 50
)

// ValidID reports whether s can be an id: 1 to MaxIDLength bytes, each one of [A-Za-z0-9_.:-].
func ValidID[T ~string](s T) bool {
	if len(s) == 0 || len(s) > MaxIDLength {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '.', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

// CheckID returns an Invalid error that names the field, unless s is a valid id.
func CheckID[T ~string](field string, s T) error {
	if ValidID(s) {
		return nil
	}
	return Errorf(Invalid, "%s must be 1 to %d characters of A-Z a-z 0-9 _ . : -, got %s", field, MaxIDLength, abbreviate(string(s)))
}

func abbreviate(s string) string {
	const most = 40
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
}
