// Package debts remembers what must still happen for messages that are stored: rows to be marked, sessions to be woken, sends whose outcome is
// unknown. It decides nothing and does no I/O: the core takes what is owed, and owes again what it could not do.
package debts

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Bounds of what the node owes. Beyond one the node gives up its claim to know: Owed.Lost says so once, and the core voids all proofs by joining the
// registry anew, as if it had crashed, so that every open compares.
const (
	maxRows  = 200_000
	maxBytes = 64 << 20
)

// Send is a message to be sent again by the node itself: its append has an unknown outcome, or it was not handed over. Both are resolved by its
// idempotency key.
type Send struct {
	Draft tidemark.Draft
	// Seen is the sequence that the sender stated to have seen.
	Seen tidemark.Sequence
}

func (s Send) size() int { return 512 + len(s.Draft.Content) + len(s.Draft.Attachment) }

// Owed is everything that is owed at one moment.
type Owed struct {
	// Marks are rows to be written; Wakes are rows that were written, for sessions that could not be told.
	Marks, Wakes []tidemark.PendingDelivery
	Sends        []Send
	// Lost says that a bound was exceeded: there is more than is remembered.
	Lost bool
}

// Debts is what must happen and has not. It is bounded, and safe for concurrent use; no method blocks.
type Debts struct {
	// Taken counts what was taken on; it only grows.
	Taken  atomic.Int64
	signal chan struct{}

	mu sync.Mutex
	// marks and wakes have the smallest sequence of each user and chat.
	marks, wakes map[storage.StateKey]tidemark.Sequence
	sends        []Send
	bytes        int
	lost         bool
}

// New returns a Debts that owes nothing.
func New() *Debts {
	return &Debts{signal: make(chan struct{}, 1), marks: map[storage.StateKey]tidemark.Sequence{}, wakes: map[storage.StateKey]tidemark.Sequence{}}
}

// Signal has a value after something was taken on.
func (d *Debts) Signal() <-chan struct{} { return d.signal }

// Mark takes on rows to be marked.
func (d *Debts) Mark(rows []tidemark.PendingDelivery) { d.addRows(d.marks, rows) }

// Wake takes on rows that are marked, and whose users' sessions are to be told.
func (d *Debts) Wake(rows []tidemark.PendingDelivery) { d.addRows(d.wakes, rows) }

func (d *Debts) addRows(to map[storage.StateKey]tidemark.Sequence, rows []tidemark.PendingDelivery) {
	if len(rows) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, row := range rows {
		key := storage.StateKey{User: row.UserID, Chat: row.ChatID}
		first, there := to[key]
		switch {
		//rule:bounded_use.limit-rows-to-retry
		case !there && len(to) >= maxRows:
			d.lost = true
		//rule:pending_or_delivered.keep-lowest-row
		case !there || row.FirstUndelivered < first:
			to[key] = row.FirstUndelivered
		}
	}
	d.notify(len(rows))
}

// Send takes on a message to be sent again.
func (d *Debts) Send(s Send) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bytes+s.size() > maxBytes {
		//rule:R_EPOCH.raise-epoch-after-overflow
		d.lost = true
	} else {
		d.bytes += s.size()
		d.sends = append(d.sends, s)
	}
	d.notify(1)
}

// Lose takes on having lost something: what is owed is not known, or the registry could not be told.
func (d *Debts) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = true
	d.notify(1)
}

func (d *Debts) notify(n int) {
	d.Taken.Add(int64(n))
	select {
	case d.signal <- struct{}{}:
	default:
	}
}

// Take returns everything that is owed, and owes nothing any more.
func (d *Debts) Take() Owed {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed := Owed{Marks: rows(d.marks), Wakes: rows(d.wakes), Sends: d.sends, Lost: d.lost}
	d.sends, d.bytes, d.lost = nil, 0, false
	return owed
}

// rows empties a map of rows.
func rows(m map[storage.StateKey]tidemark.Sequence) []tidemark.PendingDelivery {
	all := make([]tidemark.PendingDelivery, 0, len(m))
	for key, first := range m {
		all = append(all, tidemark.PendingDelivery{UserID: key.User, ChatID: key.Chat, FirstUndelivered: first})
	}
	clear(m)
	Sort(all)
	return all
}

// Sort puts the rows of one message together, for which one publication to each node does.
func Sort(rows []tidemark.PendingDelivery) {
	slices.SortFunc(rows, func(a, b tidemark.PendingDelivery) int {
		return cmp.Or(cmp.Compare(a.ChatID, b.ChatID), cmp.Compare(a.FirstUndelivered, b.FirstUndelivered), cmp.Compare(a.UserID, b.UserID))
	})
}

// Len returns how much is owed; having lost something counts as one.
func (d *Debts) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.marks) + len(d.wakes) + len(d.sends)
	if d.lost {
		n++
	}
	return n
}
