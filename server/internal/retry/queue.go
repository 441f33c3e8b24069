// Package retry remembers what must still happen for messages that are stored: rows to be marked,
// sessions to be notified, and sends whose outcome is unknown. It decides nothing and does no I/O:
// package delivery takes what is due, and queues again what it could not do.
package retry

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// Bounds of a Queue. Beyond one the node no longer knows what it has to do: Due.Overflow says so
// once, and the node joins the registry anew, as if it had crashed, so that every session reconciles.
const (
	maxRows  = 200_000
	maxBytes = 64 << 20
)

// Due is everything that has to be tried again.
type Due struct {
	// Marks are rows to be written. Notify are rows that were written, for users whose sessions have
	// not been notified.
	Marks, Notify []tidemark.PendingDelivery
	// Follow are notifications of rows whose sessions may have moved from here.
	Follow []Follow
	// Sends are messages whose append has an unknown outcome, or that were not handed over. Their
	// idempotency keys resolve both.
	Sends []tidemark.Draft
	// Overflow says that there is more than is remembered.
	Overflow bool
}

// Follow is a notification of a row for a lease that no session here held (R_FOLLOW).
type Follow struct {
	Lease    registry.Lease
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

// followKey is what one entry is kept for.
type followKey struct {
	lease registry.Lease
	chat  tidemark.ChatID
}

// Queue is bounded, and safe for concurrent use. No method blocks.
type Queue struct {
	// Count counts what was queued; it only grows.
	Count atomic.Int64
	flag  signal.Flag

	mu sync.Mutex
	// marks and notify hold the smallest sequence of each user and chat.
	marks, notify map[storage.StateKey]tidemark.Sequence
	// follow holds the smallest sequence of each lease and chat.
	follow   map[followKey]tidemark.Sequence
	sends    []tidemark.Draft
	bytes    int
	overflow bool
}

// New returns an empty Queue.
func New() *Queue {
	return &Queue{
		flag:   signal.New(),
		marks:  make(map[storage.StateKey]tidemark.Sequence),
		notify: make(map[storage.StateKey]tidemark.Sequence),
		follow: make(map[followKey]tidemark.Sequence),
	}
}

// Flag is set after something was queued.
func (q *Queue) Flag() signal.Flag { return q.flag }

// Mark queues rows to be marked.
func (q *Queue) Mark(rows []tidemark.PendingDelivery) { q.addRows(q.marks, rows) }

// Notify queues rows that are marked, and whose users' sessions have still to be notified.
func (q *Queue) Notify(rows []tidemark.PendingDelivery) { q.addRows(q.notify, rows) }

func (q *Queue) addRows(
	to map[storage.StateKey]tidemark.Sequence, rows []tidemark.PendingDelivery,
) {
	if len(rows) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, row := range rows {
		addLowest(q, to, storage.StateKey{User: row.UserID, Chat: row.ChatID}, row.FirstUndelivered)
	}
	q.queued(len(rows))
}

// Follow queues notifications whose sessions have to be looked up.
func (q *Queue) Follow(all []Follow) {
	if len(all) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range all {
		addLowest(q, q.follow, followKey{f.Lease, f.Chat}, f.Sequence)
	}
	q.queued(len(all))
}

// addLowest keeps the lowest sequence for a key. The caller holds q.mu.
func addLowest[K comparable](
	q *Queue, to map[K]tidemark.Sequence, key K, sequence tidemark.Sequence,
) {
	lowest, there := to[key]
	switch {
	//rule:bounded_use.limit-rows-to-retry
	case !there && len(to) >= maxRows:
		q.overflow = true
	//rule:pending_or_delivered.keep-lowest-row
	case !there || sequence < lowest:
		to[key] = sequence
	}
}

// Send queues a message to be sent again.
func (q *Queue) Send(d tidemark.Draft) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes+size(d) > maxBytes {
		//rule:R_EPOCH.raise-epoch-after-overflow
		q.overflow = true
	} else {
		q.bytes += size(d)
		q.sends = append(q.sends, d)
	}
	q.queued(1)
}

// size is about what a message takes in memory.
func size(d tidemark.Draft) int { return 512 + len(d.Content) + len(d.Attachment) }

// Overflow records that something is due which is not in the queue, or that the registry could not
// be told so: the node must join anew (R_EPOCH).
func (q *Queue) Overflow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.overflow = true
	q.queued(1)
}

func (q *Queue) queued(n int) {
	q.Count.Add(int64(n))
	q.flag.Set()
}

// Take empties the queue and returns what was in it.
func (q *Queue) Take() Due {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := Due{
		Marks: take(q.marks), Notify: take(q.notify), Follow: takeFollow(q.follow), Sends: q.sends,
		Overflow: q.overflow,
	}
	q.sends, q.bytes, q.overflow = nil, 0, false
	return due
}

// take empties a map of rows.
func take(m map[storage.StateKey]tidemark.Sequence) []tidemark.PendingDelivery {
	all := make([]tidemark.PendingDelivery, 0, len(m))
	for key, first := range m {
		all = append(all, tidemark.PendingDelivery{
			UserID:           key.User,
			ChatID:           key.Chat,
			FirstUndelivered: first,
		})
	}
	clear(m)
	Sort(all)
	return all
}

// takeFollow empties a map of notifications.
func takeFollow(m map[followKey]tidemark.Sequence) []Follow {
	all := make([]Follow, 0, len(m))
	for key, sequence := range m {
		all = append(all, Follow{key.lease, key.chat, sequence})
	}
	clear(m)
	slices.SortFunc(all, func(a, b Follow) int {
		return cmp.Or(cmp.Compare(a.Chat, b.Chat), cmp.Compare(a.Sequence, b.Sequence),
			cmp.Compare(a.Lease.User, b.Lease.User), cmp.Compare(a.Lease.Device, b.Lease.Device),
			cmp.Compare(a.Lease.Session, b.Lease.Session))
	})
	return all
}

// Sort puts the rows of one message together, for which one publication to each node is enough.
func Sort(rows []tidemark.PendingDelivery) {
	slices.SortFunc(rows, func(a, b tidemark.PendingDelivery) int {
		return cmp.Or(cmp.Compare(a.ChatID, b.ChatID),
			cmp.Compare(a.FirstUndelivered, b.FirstUndelivered), cmp.Compare(a.UserID, b.UserID))
	})
}

// Len returns how many things are due; an overflow counts as one.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.marks) + len(q.notify) + len(q.follow) + len(q.sends)
	if q.overflow {
		n++
	}
	return n
}
