// Package outlet is the contract between the engine (reach) and the leaves that speak to receivers.
package outlet

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Type says what happened.
type Type string

// The types of events.
const (
	MessagePersisted Type = "message.persisted"
	MemberChanged    Type = "member.changed"
	ChatUpdated      Type = "chat.updated"
	// ChatDeleted is the last event of a chat. Outlets that ask for ChatUpdated get it, too.
	ChatDeleted Type = "chat.deleted"
	// DeliveryUpdated and ReadUpdated say how far a member has received and read a chat. Of their
	// states, the last one comes.
	DeliveryUpdated Type = "delivery.updated"
	ReadUpdated     Type = "read.updated"
	// PendingCreated says that a member has missed a message, and none before it.
	PendingCreated Type = "pending.created"
	// EventParked and OutletDisabled are notices about another outlet. They have no chat.
	EventParked    Type = "event.parked"
	OutletDisabled Type = "outlet.disabled"
)

// Event is one thing that an outlet gets. Its repetitions are equal byte for byte, except Again and
// AsOf, and except for messages that were edited or redacted in between.
type Event struct {
	// ID identifies what happened, and is that of each repetition (EventID).
	ID   string
	Type Type
	// Chat is "" if the event belongs to none.
	Chat tidemark.ChatID
	// User is whom a MemberChanged, DeliveryUpdated, ReadUpdated or PendingCreated is about, else
	// "".
	User tidemark.UserID `json:",omitempty"`
	// Sequence is that of a message, also of one that was missed, the version of a chat, the
	// version of its members at which a member changed, or the watermark that rose.
	Sequence uint64 `json:",omitempty"`
	// Time is when it happened, with millisecond precision.
	Time time.Time
	// Data is a JSON object.
	Data json.RawMessage
	// Again says that the event is replayed, or waited for this outlet. It may have come before.
	Again bool `json:"-"`
	// AsOf is when Data of a message was read. If it is zero, Data must be read again.
	AsOf time.Time `json:"-"`
}

// EventID returns the id of the event of a type about a subject: "evt_" and lower-case base32. The
// same subject has the same id. Other parts have another id, also if they are divided differently.
func EventID(t Type, subject ...string) string {
	h := sha256.New()
	for _, part := range append([]string{string(t)}, subject...) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	code := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil))
	return "evt_" + strings.ToLower(code)
}

// Client delivers events to one receiver. It is safe for concurrent use.
type Client interface {
	// Deliver delivers 1 to Limits().Events events. The events of one chat ascend. It returns how
	// many of them the receiver has accepted, from the first on. If these are not all, refused says
	// why not the next one. It ends in bounded time.
	Deliver(ctx context.Context, events []Event) (accepted int, refused *Refusal)
	// Limits returns the maximum size of a delivery. One event may be larger than Limits.Bytes.
	Limits() Limits
	// Close ends idle connections.
	Close() error
}

// Each is a Client that accepts and refuses each event for itself.
type Each interface {
	Client
	// DeliverEach is Deliver, and returns for each event why it was refused, or nil. If an event is
	// refused, all later ones of its chat are.
	DeliverEach(ctx context.Context, events []Event) []*Refusal
}

// Limits are the maximum size of a delivery.
type Limits struct {
	Events int
	// Bytes bounds the sum of the lengths of Event.Data.
	Bytes int
}

// Refusal says why a receiver has not accepted an event, and what to do.
type Refusal struct {
	Action Action
	// After is the least time until the next attempt, if the receiver has named one.
	After time.Duration
	// Status is the status of the answer, 0 if there was none.
	Status int
	// Detail says what happened, for an operator.
	Detail string
	// Waits, if it is not nil, returns for how long a Later goes on, 0 if it is over. While it goes
	// on, the events are not read again, unless the chat has further ones. It must not block.
	Waits func() time.Duration
}

// Action says what to do after a refusal.
type Action int

// The actions.
const (
	// Retry means to try again later.
	Retry Action = iota
	// Split means to try a part of the events. For a single event it is Retry.
	Split
	// Disable means that the receiver wants no more events.
	Disable
	// Later means that it is too early for the event and those of its chat after it. It is no
	// failure. After is when to ask again. Events of other chats in the delivery may follow.
	Later
)
