// Package server is the delivery core: what happens to a message between its sender and its
// readers. It knows no transport and no database. docs/internals/delivery.md is its specification,
// with the rules named R_….
//
// # Layers
//
// Each package imports only packages below it. Nothing calls upward: results are return values.
//
//	server              the API; builds the layers; dispatches events of the bus
//	internal/sessions   opens, resumes, closes, moves; owns the loops
//	internal/receipts   writes acknowledgements, publishes statuses
//	internal/delivery   appends, notifies, marks, retries
//	internal/leases     leases of the node and its sessions; look-ups
//	internal/session    one device's stream: eight values behind one lock
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
// have come online in the meantime (R_RELOOK). Only then Send returns.
//
// A session queues no messages. A notification makes a chat ready, and the reader's Next reads a
// page of each ready chat in turn, from the cache or from storage. Every event has a number. The
// session remembers runs of them, so that its client can resume over any transport.
//
// # The life of an acknowledgement
//
// An acknowledgement on a stream waits in ackbuffer for some milliseconds; one by REST is written
// at once. Receipts raises the watermark, and clears the pending row if one may exist. It publishes
// the new boundary to the members as a status update, at most every 100 ms for a member and chat.
//
// # Opening and closing a session
//
// A session takes a lease and reconciles. If a proof of a clean close says that the user's pending
// rows are complete, it reads those. Otherwise it compares the heads of the user's chats with the
// watermarks (R_PROOF). Closing detaches the session, marks what is not acknowledged, and releases
// the lease with a new proof, in this order (R_ORDER).
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
// Without a Transfer it ends after a second (session/arrival.go, sessions/arrive.go).
//
// # Goroutines and locks
//
// Start starts the loops, and Stop waits for them. They serve acknowledgements, statuses and
// retries. In package sessions they serve heartbeats, repair of leases, reconciliation, grace
// periods, resume windows, arrivals and Requests. A lock guards the fields below it and is not held
// across I/O. Session.mu is taken before the locks of Deadlines, chat.Cache and watermark.Cache; no
// other lock is held while one is taken.
package server
