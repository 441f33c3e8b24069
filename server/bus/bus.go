// Package bus is the contract by which a node tells another that something happened for sessions that it holds. Publications
// may be late, doubled or reordered, which costs latency and nothing else. One may be lost only if its publisher is told, or if the node that missed it
// joins the registry anew, which raises the epoch: a node whose subscription was interrupted does.
//
// bus/local serves one process; bustest is the suite that every bus passes.
package bus

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Event is one publication to one node. Exactly one of the pointers is set. Events are immutable.
type Event struct {
	Wake       *Wake
	Status     *Status
	Membership *Membership
	Typing     *Typing
}

// Wake hands a new message over to the sessions that hold the leases.
type Wake struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
	// Message, if not nil, is the message, so that the node need not read it from storage.
	Message *tidemark.Message
	// Encoded is the JSON of Message, nil if Message is.
	Encoded []byte
	// Marked reports that a pending row may stand for the users of the leases: their acknowledgement clears it.
	Marked bool
	Leases []registry.Lease
}

// Status tells the sessions of the users that boundaries have moved.
type Status struct {
	Updates []tidemark.StatusUpdate
	// Version is the membership version that the receivers were taken from.
	Version uint64
	Leases  []registry.Lease
}

// Membership tells the sessions of the users that members came or went, and the node to drop what it remembers of older versions.
type Membership struct {
	Changes []tidemark.MembershipChange
	// Version is the membership version after the change.
	Version uint64
	Leases  []registry.Lease
}

// Typing tells the sessions that somebody is typing. It is dropped under pressure.
type Typing struct {
	tidemark.Typing
	Leases []registry.Lease
}

// Handler receives the events of a node. It must not block.
type Handler func(Event)

// Bus carries events to nodes.
type Bus interface {
	// Subscribe delivers the events for a node to its handler, one call at a time or concurrently, until stop is called.
	// After stop has returned, no call begins. One subscription per node.
	Subscribe(ctx context.Context, node registry.Node, handler Handler) (stop func(), err error)
	// Publish sends an event to a node. It returns NotFound if it is known that nobody received it, Unavailable if that is not known;
	// in both cases the caller marks the users concerned. nil says that the handler was called, or will be unless the node joins anew.
	Publish(ctx context.Context, node registry.Node, event Event) error
}
