// Package retry holds work that failed for stored messages: rows to mark, sessions to notify, and
// sends whose outcome is unknown. It does no I/O: package delivery takes the work, and queues it
// again if it fails again.
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

// Limits of a Queue. Beyond them work is lost. Due.Overflow then reports that once, and the node
// joins the registry again, as after a crash, so that all sessions reconcile.
const (
	maxRows  = 200_000
	maxBytes = 64 << 20
)

// Due is the content of a Queue.
type Due struct {
	// Marks has rows to write. Notify has rows whose users' sessions have to be notified; a row of
	// a Large chat is never written.
	Marks, Notify []tidemark.PendingDelivery
	// Follow has notifications for sessions that may have moved from this node.
	Follow []Follow
	// Sends has drafts whose append has an unknown outcome, or whose message was not handed over.
	// Their idempotency keys resolve both.
	Sends []tidemark.Draft
	// Overflow says that work was lost.
	Overflow bool
}

// Follow is a notification for a lease that had no session here. Its message has a row, or its chat
// is Large (R_FOLLOW).
type Follow struct {
	Lease    registry.Lease
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

// followKey identifies an entry of Queue.follow.
type followKey struct {
	lease registry.Lease
	chat  tidemark.ChatID
}

// Queue holds failed work. It is bounded, and safe for concurrent use. No method blocks.
type Queue struct {
	// Count counts queued entries. It only grows.
	Count atomic.Int64
	flag  signal.Flag

	mu sync.Mutex
	// marks and notify have the lowest sequence of each user and chat.
	marks, notify map[storage.StateKey]tidemark.Sequence
	// follow has the lowest sequence of each lease and chat.
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

// Flag returns a flag that is set when work is queued.
func (q *Queue) Flag() signal.Flag { return q.flag }

// Mark queues rows to write.
func (q *Queue) Mark(rows []tidemark.PendingDelivery) { q.addRows(q.marks, rows) }

// Notify queues rows whose users' sessions have to be notified. Rows of Large chats are never
// written.
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

// Follow queues notifications for sessions that have to be looked up.
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

// Send queues a draft to be sent again.
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

// size returns about how many bytes a draft takes in memory.
func size(d tidemark.Draft) int { return 512 + d.Size() }

// Overflow records that work was lost, or that joining the registry after such a loss failed. The
// node must join again (R_EPOCH).
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

// Take empties the queue and returns its content.
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

// take empties a map and returns its rows, sorted.
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

// takeFollow empties a map and returns its notifications, sorted.
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

// Sort sorts rows so that those of one message are adjacent. Each node then needs one publication
// for them.
func Sort(rows []tidemark.PendingDelivery) {
	slices.SortFunc(rows, func(a, b tidemark.PendingDelivery) int {
		return cmp.Or(cmp.Compare(a.ChatID, b.ChatID),
			cmp.Compare(a.FirstUndelivered, b.FirstUndelivered), cmp.Compare(a.UserID, b.UserID))
	})
}

// Len returns the number of entries. An overflow counts as one.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.marks) + len(q.notify) + len(q.follow) + len(q.sends)
	if q.overflow {
		n++
	}
	return n
}
