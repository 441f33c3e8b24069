// Package tidemark defines the words of a messaging-delivery server, and its pure rules.
// The rules hold for every storage and every transport.
// They answer three questions about a message: is it stored, has it reached its recipients,
// have they read it?
//
// A chat is a sequence of messages, numbered 1, 2, 3, … without gaps.
// A device that has stored every message up to n acknowledges n.
// Each user has two watermarks per chat: one says what is delivered, the other what is read.
// Every tick is derived from these two numbers, and no tick is stored.
//
// The package imports only the standard library and does no I/O.
// Its functions are pure and its types are values, so concurrent use is safe.
//
// These doc comments define the project's words. docs/internals/adr-008.md maps the names of other
// documents to them.
package tidemark

import (
	"fmt"
	"strings"
	"time"
)

// The ids. Each is 1 to MaxIDLength bytes of [A-Za-z0-9_.:-], as ValidID checks.
type (
	// ChatID names a chat: a direct chat of two users or a group.
	ChatID string
	// UserID names a user. User ids come from the deployment and need no registration.
	UserID string
	// DeviceID names one device (an app install, a browser tab) of a user.
	DeviceID string
	// MessageID names a message permanently, across chats. It is a UUIDv7 from the server.
	MessageID string
	// NodeID names one server process.
	NodeID string
	// SessionID names one device's place in the stream. It has at most 22 characters and no dot.
	SessionID string
	// Incarnation names one life of the data of a server. A restored backup begins a new one, since
	// it gives out again the sequences that it lacks. Only equality counts.
	Incarnation string
)

// Sequence is a position in one chat: 1 is the first message, 0 means "nothing yet".
// The step that stores a message assigns its sequence, without gaps (delivery.md §2).
// Sequences of different chats cannot be compared.
type Sequence uint64

// The limits of the contract. They are the same on every storage backend, and fit the one with the
// smallest items (400 KB).
const (
	// MaxIDLength is the greatest length of an id in bytes.
	MaxIDLength = 128
	// MaxSequence is the highest sequence: 2^53 − 1, which a JavaScript number holds exactly.
	MaxSequence Sequence = 1<<53 - 1
	// MaxContent is the greatest size of a message's content in bytes.
	MaxContent = 65_536
	// MaxAttachments is the greatest number of attachments of a message, and MaxAttachmentBytes
	// their greatest size together, in bytes of JSON.
	MaxAttachments     = 10
	MaxAttachmentBytes = 8_192
	// MaxMentions is the greatest number of users that a message may name.
	MaxMentions = 20
	// MaxMetadata is the greatest size of the metadata of a message or chat, in bytes of JSON.
	MaxMetadata = 4_096
	// MaxMemberMetadata is the greatest size of the metadata of a member, in bytes of JSON.
	MaxMemberMetadata = 1_024
	// MaxDepth is how deep objects and arrays may nest in attachments and metadata.
	// Common JSON libraries read that.
	MaxDepth = 32
	// MaxSendBy is how far ahead Draft.SendBy may be. A key is kept for longer, so a message that
	// has a SendBy is never stored twice, however late its sender tries again.
	MaxSendBy = 6 * 24 * time.Hour
	// MaxContentType is the greatest length of a content type in bytes.
	MaxContentType = 128
	// MaxChatName is the greatest length of a chat's name in bytes.
	MaxChatName = 256
	// MaxMembers is the greatest number of current members of a chat.
	MaxMembers = 10_000
	// MaxBans is the greatest number of users who are banned from a chat.
	MaxBans = 10_000
	// MaxBlocks is the greatest number of users whom a user has blocked.
	MaxBlocks = 10_000
	// MaxMembersPerCall is the greatest number of users that one call adds to a new or existing
	// chat.
	MaxMembersPerCall = 1_000
	// MaxIntervals is the greatest number of times that one user can join one chat.
	MaxIntervals = 100
	// PendingFanoutLimit is the number of members above which a chat becomes Large.
	// Its messages then mark no pending rows, and an opening session compares the chat's head
	// (delivery.md §4).
	PendingFanoutLimit = 500
	// StatusFanoutLimit is the number of members above which a status update carries the least
	// boundary of the group, instead of one boundary per member. It is a default, which operators
	// can change.
	StatusFanoutLimit = 50
)

// reservedIDs is the prefix of ids that replace the id of an erased user.
const reservedIDs = "erased:"

// ValidID reports whether s can be an id: 1 to MaxIDLength bytes, each one of [A-Za-z0-9_.:-]. "."
// and ".." are no ids, because clients and proxies resolve them in a path. Ids that begin with
// "erased:" are reserved.
func ValidID[T ~string](s T) bool {
	//rule:bounded_input.reserved-ids
	if strings.HasPrefix(string(s), reservedIDs) {
		return false
	}
	//rule:bounded_input.no-dots-as-id
	if len(s) == 0 || len(s) > MaxIDLength || s == "." || s == ".." {
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

// CheckID returns nil if s is a valid id, else an Invalid error that names the field.
func CheckID[T ~string](field string, s T) error {
	if ValidID(s) {
		return nil
	}
	return BadParam(Invalid, field,
		"must be 1 to %d characters of A-Z a-z 0-9 _ . : -, not only one or two dots, and not "+
			"begin with %s, which is reserved; got %s",
		MaxIDLength, reservedIDs, abbreviate(string(s)))
}

func abbreviate(s string) string {
	const most = 40
	if len(s) <= most {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:most], len(s))
}
