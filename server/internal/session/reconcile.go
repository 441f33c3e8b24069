package session

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// phase is what a reconciliation reads, page by page, between pages of messages.
type phase uint8

const (
	idle       phase = iota // nothing is read
	readRows                // the user's pending rows
	readLarge               // heads and watermarks of the chats that write no rows
	readKnown               // heads of the chats that the session knows
	readRecent              // chats that it does not know and that were active lately
	readAll                 // heads and watermarks of all chats
)

// scope is how much a queued reconciliation has to read. The greater includes the lesser.
type scope uint8

const (
	nothing    scope = iota
	allChats         // readAll
	knownChats       // readKnown, readRecent, readAll
)

// reconcile is a session's search in storage for what it has still to send (delivery.md §4, Open).
//
//	phase        page with more   last page
//	readRows     readRows         readLarge if a chat without rows was met, else idle
//	readLarge    readLarge        idle
//	readKnown    readKnown        readRecent
//	readRecent   readRecent       readAll
//	readAll      readAll          idle
//
// A clean close with its proof orders readRows; anything else orders readAll (R_PROOF, R_LAST). A
// lease that was lost, or a new epoch, orders readKnown: what was not published to this session may
// have been acknowledged by another device, so that watermarks do not show it (R_EPOCH).
//
// While one is under way, or the session has no room, another is queued. The session is complete
// exactly if the phase is idle and nothing is queued (R_COMPLETE).
type reconcile struct {
	phase  phase
	queued scope
	// order tells reconciliations apart: a page that was read for an earlier one is discarded.
	order uint32
	// after is the chat that the last page ended with; activity is the other half of the position
	// in readRecent.
	after    tidemark.ChatID
	activity time.Time
	// rowless says that readRows met a chat that writes no rows.
	rowless bool
	// epoch is the one to which the result belongs: the proof of a clean close names it.
	epoch registry.Epoch
	// began is when this reconciliation was ordered, since what was certain then.
	began, since time.Time
	// certain is when the session last knew everything that there was for it.
	certain time.Time
}

// order begins a reconciliation in place of any other.
func (r *reconcile) begin(first phase, epoch registry.Epoch, now time.Time) {
	*r = reconcile{
		phase: first, order: r.order + 1, epoch: epoch, began: now, since: r.certain, certain: r.certain,
	}
}

// queue asks for another reconciliation, after the one under way.
func (r *reconcile) queue(s scope) { r.queued = max(r.queued, s) }

// beginQueued begins what is queued, in the same epoch.
func (r *reconcile) beginQueued(now time.Time) {
	first := readAll
	if r.queued == knownChats {
		first = readKnown
	}
	r.begin(first, r.epoch, now)
}

// complete reports whether the session knows everything that waits for it.
func (r *reconcile) complete() bool {
	//rule:R_COMPLETE.failed-look-is-incomplete
	return r.phase == idle && r.queued == nothing
}

// due reports whether there is something to do. A queued one waits while the session has no room.
func (r *reconcile) due(full bool) bool {
	return r.phase != idle || r.queued != nothing && !full
}

// reads reports whether a page that was ordered as page is the one that comes next.
func (r *reconcile) reads(page reconcile) bool {
	return r.order == page.order && r.phase == page.phase && r.after == page.after
}

// advance moves on after a page that ended with a chat; more says that the phase goes on.
func (r *reconcile) advance(last tidemark.ChatID, activity time.Time, more bool) {
	r.after, r.activity = last, activity
	//rule:R_PROOF.read-all-pages-of-rows
	if more {
		return
	}
	r.after, r.activity = "", time.Time{}
	switch {
	case r.phase == readRows && r.rowless:
		r.phase = readLarge
	case r.phase == readKnown:
		//rule:R_EPOCH.look-at-quiet-chats
		r.phase = readRecent
	case r.phase == readRecent:
		r.phase = readAll
	default:
		r.phase, r.certain = idle, r.began
	}
}
