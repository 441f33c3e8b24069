// Package server is the delivery core: what happens to a message between its sender and its readers, whatever carries it and whatever stores it.
// It knows no transport and no database. docs/internals/delivery.md is its specification, with the rules named R_….
//
// # The life of a message
//
// Send (send.go) has storage append the message: idempotency key, membership, sequence and message in one step. The message is encoded once and put into
// the tail of its chat (internal/feed). The members' leases are looked up; the nodes of those who are online get one publication each, which wakes their
// sessions; the others get a pending row, and whoever came online meanwhile is found by looking up again. Then the sender is told.
//
// A session (internal/session) is one device's place in the stream. Nothing is queued in it: a wake puts the chat into its wake set, and its connection's
// Next serves the chats of the set in turn, a page each, from the tail or from storage. Every event has a number; the session remembers
// runs of them, so that a client that comes back with the last number it saw continues, over any transport.
//
// An open (open.go) looks for what is pending: by the user's pending rows if a proof says that they are complete, else by comparing the heads of his chats with
// his watermarks. A close (close.go) detaches, marks what is not acknowledged, releases the lease and leaves the proof.
//
// An acknowledgement raises a watermark and clears the row: coalesced if it came on a stream, at once for callers that wait (delivery.go). What moved is
// pushed to the members as status updates (both in internal/ticks); a session that caught up gets a snapshot.
//
// What could not be done for a stored message is owed and tried again (debts.go, internal/debts).
//
// A node is one of several (internal/pulse): it says that it lives, learns who else does, and lets its sessions compare when somebody died or it may have missed something. A session
// whose client comes back to another node goes on there (move.go, internal/moves).
//
// # The files
//
// chats.go, members.go, history.go, delivery.go and sync.go are what callers ask for; send.go, open.go, close.go and debts.go are the protocol of delivery.md §4;
// move.go is how a session goes on on another node; server.go starts and stops it all.
//
// # Goroutines and locks
//
// Start starts nine goroutines, named there, and Stop waits for them. Nothing else is started, but what shares the work of a call, which waits for it. Every lock guards the fields below it in its struct, is taken last
// or before those that its package names, and is not held across I/O.
package server
