// Package server is the delivery core: what happens to a message between its sender and its
// readers. It knows no transport and no database. docs/internals/delivery.md is its specification,
// with the rules named R_…. A comment //rule:NAME.label marks the code that keeps a rule
// (CONTRIBUTING.md).
//
// # Layers
//
// Each package imports only packages below it. Nothing calls upward: results are return values.
//
//	server              the API; builds the layers; dispatches events of the bus
//	internal/sessions   opens, resumes, closes, moves; owns the loops
//	internal/receipts   writes acknowledgements, publishes statuses
//	internal/delivery   appends, notifies, marks, retries
//	internal/presence   who looks at which chats, and who of their members is online
//	internal/leases     leases of the node and its sessions; look-ups; trust in rosters
//	internal/session    one device's stream: nine values behind one lock; what it has missed
//	internal/ackbuffer  raises of watermarks until they are written; no I/O
//	internal/retry      failed work until it is retried; no I/O
//	internal/chat       a cache of rosters and recent messages
//	internal/watermark  a cache of known and announced boundaries
//	internal/pagetoken  cursors of lists
//
// # The life of a message
//
// Send completes the draft and passes it to delivery. Storage appends it: key, membership, sequence
// and message are one step. Delivery encodes it once, puts it into the chat cache, and looks up the
// leases of the members. Each of their nodes gets one publication, which notifies its sessions.
// Members without a session get a pending row. Then delivery looks them up again, because they may
// have come online in the meantime (R_RELOOK). Only then Send returns. In a Large chat messages
// write no rows; each open compares its head.
//
// A session queues no messages. A notification makes a chat ready, and the reader's Next reads a
// page of each ready chat in turn, from the cache or from storage. Every event has a number. The
// session remembers runs of them, so that its client can resume over any transport.
//
// # The life of an acknowledgement
//
// An acknowledgement on a stream waits in ackbuffer until the writer is free; there are at least
// 50 ms between two writes. One by REST is written at once. Receipts raises the watermark, and
// clears the pending row: after a call of REST always, else if a session knows that one may exist.
// If the raise crosses a message of another member, it publishes the new boundary to the other
// members as a status update, at most every 100 ms for a member and chat. The user's own sessions
// get one later, which confirms the write.
//
// # Opening and closing a session
//
// A session takes a lease and reconciles. A user's last session that closes cleanly leaves a
// proof: the pending rows name every chat with unacknowledged messages. A session that gets a
// proof reads only those rows. Otherwise it compares the heads of the user's chats with the
// watermarks (R_PROOF). It does so in its reader's Next: session/reconcile.go has the order,
// session/pages.go the reads. Session.LeaseAnswered chooses the first phase. Closing detaches the
// session, marks what is not acknowledged, and releases the lease with a new proof, in this order
// (R_ORDER).
//
// # Many nodes
//
// A heartbeat refreshes the leases and returns a report. The report names sessions that lost
// theirs. It also says whether all sessions have to reconcile, because a node died or publications
// may have been lost (R_EPOCH).
//
// A client may resume on another node. That node enters an arriving session, takes over the lease
// of the first node, and sends that node a Request. The first node freezes the session and sends it
// in a Transfer. The arriving session lands, and continues with what was published in the meantime.
// Without a Transfer it ends after a second. Files: session/arrival.go, session/snapshot.go (what
// moves); sessions/arrive.go at the new node; sessions/transfer.go at the first, and the landing.
// A session with too many unacknowledged chats does not move (session.Freeze). A sync for a session
// on another node sends a Seek (sessions/seek.go).
//
// # Goroutines and locks
//
// Start starts the loops, and Stop waits for them. They serve acknowledgements, statuses and
// retries. In package sessions they serve heartbeats, repair of leases, requests to reconcile,
// lists of recent chats, grace periods, confirmations, resume windows, arrivals and Requests. A
// lock guards the fields below it and is not held across I/O. First come Session.mu, the lock of
// ackbuffer.Buffer and that of the statuses in receipts. Under one of them a leaf may be taken:
// Deadlines, watermark.Cache, or chat.Cache and then one of its entries.
package server
