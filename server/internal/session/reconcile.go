package session

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// phase is what a reconciliation reads. It reads page by page, between pages of messages.
type phase uint8

const (
	idle       phase = iota // nothing
	readRows                // the user's pending rows
	readLarge               // heads and watermarks of the chats that write no rows
	readMissed              // those of all chats, and which were active lately
	readAll                 // heads and watermarks of all chats
)

// scope is how much a queued reconciliation reads. A higher scope includes the lower ones.
type scope uint8

const (
	nothing     scope = iota
	allChats          // readAll
	missedChats       // readMissed
)

// reconcile is a session's search in storage for what it has still to send (delivery.md §4, Open).
//
//	phase        page with more   last page
//	readRows     readRows         readLarge if a chat without rows was found, else idle
//	readLarge    readLarge        idle
//	readMissed   readMissed       idle
//	readAll      readAll          idle
//
// After a clean close with a proof it begins with readRows; without one, with readAll (R_PROOF,
// R_LAST). After a lost lease or a new epoch it begins with readMissed. Messages may then be
// missing that another device has acknowledged, and watermarks do not show those. So readMissed
// also reads which chats were active since the session was last certain (R_EPOCH).
//
// While a reconciliation is under way, or the session has no room, another one is queued. The
// session is complete exactly if the phase is idle and nothing is queued (R_COMPLETE).
type reconcile struct {
	phase  phase
	queued scope
	// order is the number of this reconciliation. A page that was read for an earlier one is
	// discarded.
	order uint32
	// after is the chat with which the last page ended.
	after tidemark.ChatID
	// rowless says that readRows found a chat that writes no rows.
	rowless bool
	// epoch is the epoch in which the reconciliation began. The proof of a clean close names it.
	epoch registry.Epoch
	// began is when this reconciliation began. since is the value of certain at that time.
	began, since time.Time
	// certain is when the session last knew everything that it had to send.
	certain time.Time
}

// begin begins a reconciliation and discards any other.
func (r *reconcile) begin(first phase, epoch registry.Epoch, now time.Time) {
	*r = reconcile{
		phase: first, order: r.order + 1, epoch: epoch,
		began: now, since: r.certain, certain: r.certain,
	}
}

// queue requests another reconciliation after the current one.
func (r *reconcile) queue(s scope) { r.queued = max(r.queued, s) }

// beginQueued begins the queued reconciliation, in the same epoch.
func (r *reconcile) beginQueued(now time.Time) {
	first := readAll
	if r.queued == missedChats {
		first = readMissed
	}
	r.begin(first, r.epoch, now)
}

// complete reports whether the session knows everything that it has to send.
func (r *reconcile) complete() bool {
	//rule:R_COMPLETE.failed-look-is-incomplete
	return r.phase == idle && r.queued == nothing
}

// due reports whether there is a page to read. A queued reconciliation waits until there is room.
func (r *reconcile) due(full bool) bool {
	return r.phase != idle || r.queued != nothing && !full
}

// reads reports whether page is the next page to read.
func (r *reconcile) reads(page reconcile) bool {
	return r.order == page.order && r.phase == page.phase && r.after == page.after
}

// advance records that a page was read, which ended with the chat last. more says that the phase
// has more pages.
func (r *reconcile) advance(last tidemark.ChatID, more bool) {
	r.after = last
	//rule:R_PROOF.read-all-pages-of-rows
	if more {
		return
	}
	r.after = ""
	if r.phase == readRows && r.rowless {
		r.phase = readLarge
		return
	}
	r.phase, r.certain = idle, r.began
}
