// Package server is the delivery core: what happens to a message between its
// sender and its readers. It knows no transport and no database.
// docs/internals/delivery.md is its specification, with the rules named R_….
//
// # Layers
//
// Each package imports only packages below it. Nothing calls upward: results go
// back as values.
//
//	server              the API; builds the layers; dispatches events of the bus
//	internal/sessions   opens, resumes, closes, moves; owns the loops
//	internal/receipts   writes acknowledgements, publishes statuses
//	internal/delivery   appends, notifies, marks, tries again
//	internal/leases     who is where, and this node among the others
//	internal/session    one device's stream: eight values behind one lock
//	internal/ackbuffer  raises of watermarks until they are written; no I/O
//	internal/retry      what has to be tried again; no I/O
//	internal/chat       rosters and recent messages; may be forgotten
//	internal/watermark  known and announced boundaries; may be forgotten
//	internal/pagetoken  cursors of lists
//
// # The life of a message
//
// Send completes the draft and gives it to delivery. Storage appends it: key,
// membership, sequence and message are one step. Delivery encodes it once, puts
// it into the chat cache, and looks up the leases of the members. Each of their
// nodes gets one publication, which notifies its sessions. Members without a
// session get a pending row. Then delivery looks them up again, because they may
// have come online meanwhile (R_RELOOK). Only then the sender is told.
//
// Nothing is queued in a session. A notification makes a chat ready, and the
// reader's Next reads a page of each ready chat in turn, from the cache or from
// storage. Every event has a number. The session remembers runs of them, so that
// a client that comes back goes on, over any transport.
//
// # The life of an acknowledgement
//
// An acknowledgement on a stream waits in ackbuffer for some milliseconds; one
// by REST is written at once. Receipts raises the watermark, clears the pending
// row if one may stand, and publishes what moved to the members as a status
// update, at most every 100 ms for a member and chat.
//
// # Opening and closing a session
//
// A session takes a lease and reconciles: it reads the user's pending rows if
// a proof of a clean close says that they are complete, else it compares the
// heads of the user's chats with the watermarks (R_PROOF). Closing detaches it,
// marks what is not acknowledged, and releases the lease with a new proof, in
// this order (R_ORDER).
//
// # Many nodes
//
// A heartbeat keeps the leases and returns a report: which sessions lost theirs,
// and whether all sessions have to reconcile, because a node died or because
// publications may have been lost (R_EPOCH).
//
// A client may come back to another node. That node enters an arriving session,
// takes the lease in place of the first node's, and sends that node a Request.
// The first node freezes the session and sends it in a Transfer. The arriving
// session lands, and goes on with what was published meanwhile. Without a
// Transfer it ends after a second (session/arrival.go, sessions/arrive.go).
//
// # Goroutines and locks
//
// Start starts the loops, and Stop waits for them: acknowledgements, statuses,
// retries, and in package sessions heartbeats, repair of leases, reconciliation,
// grace periods, resume windows, arrivals and Requests. A lock guards the fields below it and
// is not held across I/O. Session.mu is taken before the locks of Deadlines,
// chat.Cache and watermark.Cache; all others are leaves.
package server
