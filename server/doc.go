// Package server is the delivery core: what happens to a message between its sender and its readers, whatever carries it and whatever stores it.
// It knows no transport and no database. delivery.md is its specification; the rules named R_… are those of the checked model (delivery.pml).
//
// # The life of a message
//
// Send (send.go) has storage append the message: idempotency key, membership, sequence and message in one step. The message is encoded once and put into
// the tail of its chat (hotchat.go, tail.go). The members' leases are looked up; the nodes of those who are online get one publication each, which wakes their
// sessions; the others get a pending row, and whoever came online meanwhile is found by looking up again. Then the sender is told.
//
// A Session (session.go) is one device's place in the stream. Nothing is queued in it: a wake puts the chat into its wake set, and its connection's Next
// (connection.go) serves the chats of the set in turn, a page each (page.go), from the tail or from storage. Every event has a number; the session remembers
// runs of them (runs.go), so that a client that comes back with the last number it saw continues, over any transport (open.go).
//
// An open looks for what is pending (look.go): by the user's pending rows if a proof says that they are complete, else by comparing the heads of his chats with
// his watermarks. A close (close.go) detaches, marks what is not acknowledged, releases the lease and leaves the proof.
//
// An acknowledgement raises a watermark and clears the row (acks.go for streams, coalesced; delivery.go for callers that wait). What moved is pushed to the
// members as status updates (statuses.go); a session that caught up gets a snapshot (snapshot.go).
//
// What could not be done for a stored message is owed and tried again (debts.go).
//
// # Goroutines and locks
//
// Start starts six goroutines, named in server.go, and Stop waits for them. Nothing else is started. Locks are taken in the order Session.mu, then those of
// hotChats, acks, statuses, debts and deadlines, of which none is held while another is taken, then that of known. No lock is held across I/O.
package server
