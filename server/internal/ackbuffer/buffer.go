// Package ackbuffer holds the raises of watermarks until they are written together: the
// acknowledgements that came on streams, and those that authors imply by what they write. It does no
// I/O; package receipts writes what Take returns.
package ackbuffer

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// maxKeys bounds the users and chats that wait. Acknowledgements beyond it are dropped, and sent
	// again by their clients.
	maxKeys = 200_000
	// maxLower bounds the candidates below the highest.
	maxLower = 4
)

// Buffer is bounded, and safe for concurrent use. A raise is in one of these places:
//
//	waiting   Add, Authored, or Requeue when its time has come; Take moves it on
//	flying    it is being written; Landed ends that
//	later     a run that did not join its watermark waits to be tried once more
type Buffer struct {
	watermarks *watermark.Cache
	flag       signal.Flag

	mu      sync.Mutex
	waiting map[storage.StateKey]*raises
	flying  map[storage.StateKey]*raises
	later   []retry
	// state says whether somebody still writes what waits.
	state bufferState
}

type bufferState uint8

const (
	open   bufferState = iota
	closed             // nothing is taken on any more
)

// New returns an empty Buffer. watermarks tells how far a watermark is known to be.
func New(watermarks *watermark.Cache) *Buffer {
	return &Buffer{
		watermarks: watermarks, flag: signal.New(), waiting: make(map[storage.StateKey]*raises),
	}
}

// raises is what waits to be written for one user and chat.
type raises struct {
	acked, read candidates
	runs        []run
}

// candidates is the highest sequence that was given for a watermark, and the last few below it. If
// the highest turns out to be beyond the head, it must not take a good one with it.
type candidates struct {
	top   tidemark.Sequence
	lower []tidemark.Sequence
}

func (c *candidates) add(n tidemark.Sequence) {
	//rule:multi_device_highest_wins.keep-highest
	if n > c.top {
		n, c.top = c.top, n
	}
	if n == 0 || n == c.top {
		return
	}
	if len(c.lower) == maxLower {
		c.lower = append(c.lower[:0], c.lower[1:]...)
	}
	c.lower = append(c.lower, n)
}

// within returns the highest candidate that is not above the head, 0 if there is none.
func (c *candidates) within(head tidemark.Sequence) tidemark.Sequence {
	best := tidemark.Sequence(0)
	//rule:ack_cumulative.try-lower-after-refusal
	for _, n := range append([]tidemark.Sequence{c.top}, c.lower...) {
		if n <= head {
			best = max(best, n)
		}
	}
	return best
}

// run is consecutive messages that a user wrote (delivery.md §6).
//
//	state     written              did not join                  no room, or closed
//	fresh     gone                 retried, after a pause        a row, if covered
//	retried   gone                 a row, if covered             a row, if covered
type run struct {
	from, to tidemark.Sequence
	// seen is the highest sequence that the author states to have been shown; 0 if none.
	seen tidemark.Sequence
	// covered says that no row was marked for the author, because the run was expected to raise the
	// watermark.
	covered bool
	state   runState
}

type runState uint8

const (
	fresh runState = iota
	retried
)

// retry is a run that is tried once more.
type retry struct {
	due time.Time
	key storage.StateKey
	run run
}

// covers returns how far a watermark at top will rise by what waits.
func (r *raises) covers(top tidemark.Sequence) tidemark.Sequence {
	if r == nil {
		return top
	}
	top = max(top, r.acked.top)
	for _, run := range r.runs {
		if run.from <= top+1 {
			top = max(top, run.to)
		}
	}
	return top
}

// atLocked returns what waits for a user and chat, nil if there is no room.
func (b *Buffer) atLocked(key storage.StateKey) *raises {
	r := b.waiting[key]
	//rule:pending_or_delivered.not-covered-after-end
	if r == nil && b.state == open && len(b.waiting) < maxKeys {
		r = &raises{}
		b.waiting[key] = r
	}
	return r
}

// Flag is set when something waits.
func (b *Buffer) Flag() signal.Flag { return b.flag }

// Add takes an acknowledgement. A zero leaves its watermark. It reports false if there is no room.
func (b *Buffer) Add(key storage.StateKey, acked, read tidemark.Sequence) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.atLocked(key)
	if r == nil {
		return false
	}
	r.acked.add(acked)
	r.read.add(read)
	//rule:delivered_is_eventually_consistent.signal-writer
	b.flag.Set()
	return true
}

// Authored takes the raise that a user's own message implies; seen is what the user states to have
// been shown, or 0. It reports whether the message joins the watermark, as far as is known, so that
// its author needs no row.
func (b *Buffer) Authored(
	user tidemark.UserID, chat tidemark.ChatID, sequence, seen tidemark.Sequence,
) (covered bool) {
	key := storage.StateKey{User: user, Chat: chat}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Under the lock: what is written leaves flying only after the watermark is known.
	top, _ := b.watermarks.Acked(key)
	r := b.atLocked(key)
	if r == nil {
		return false
	}
	//rule:pending_or_delivered.covered-without-hole
	covered = sequence <= r.covers(b.flying[key].covers(top))+1
	last := slices.IndexFunc(r.runs,
		func(r run) bool { return r.to+1 == sequence && r.state == fresh })
	if last >= 0 && r.runs[last].covered == covered {
		r.runs[last].to, r.runs[last].seen = sequence, max(r.runs[last].seen, seen)
	} else {
		r.runs = append(r.runs, run{from: sequence, to: sequence, seen: seen, covered: covered})
	}
	b.flag.Set()
	return covered
}

// Requeue lets runs wait whose second try is due, and returns when the next one is; the zero time if
// there is none. rows are to be marked: those of runs for which there is no room.
func (b *Buffer) Requeue(now time.Time) (next time.Time, rows []tidemark.PendingDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for n < len(b.later) && !b.later[n].due.After(now) {
		n++
	}
	due := slices.Clone(b.later[:n])
	b.later = append(b.later[:0], b.later[n:]...)
	if len(b.later) > 0 {
		next = b.later[0].due
	}
	for _, r := range due {
		rows = append(rows, b.waitLocked(r.key, []run{r.run})...)
	}
	return next, rows
}

// waitLocked lets runs wait again. Without room for them, it returns their rows.
func (b *Buffer) waitLocked(key storage.StateKey, runs []run) []tidemark.PendingDelivery {
	if len(runs) == 0 {
		return nil
	}
	r := b.atLocked(key)
	if r == nil {
		return rowsOf(key, runs)
	}
	r.runs = append(r.runs, runs...)
	b.flag.Set()
	return nil
}

// rowsOf returns the rows of runs for which none was marked.
func rowsOf(key storage.StateKey, runs []run) []tidemark.PendingDelivery {
	var rows []tidemark.PendingDelivery
	for _, r := range runs {
		//rule:pending_or_delivered.row-for-covered-message
		if r.covered {
			rows = append(rows, tidemark.PendingDelivery{
				UserID: key.User, ChatID: key.Chat, FirstUndelivered: r.from,
			})
		}
	}
	return rows
}

// Item is one raise of a batch: what was given for one user and chat, and the author's runs that it
// stands for.
type Item struct {
	Advance storage.Advance
	// given is nil if the raise was folded under a head.
	given *raises
	runs  []run
}

// ByAuthor says that the raise stands for messages that its user wrote.
func (it *Item) ByAuthor() bool { return len(it.runs) > 0 }

// Explicit says that a device of the user acknowledged, so that a row may be cleared.
func (it *Item) Explicit() bool {
	//rule:pending_or_delivered.keep-row-of-author
	return it.given == nil || it.given.acked.top > 0
}

// Refoldable says that a lower candidate may be within the head if this one is not.
func (it *Item) Refoldable() bool { return it.given != nil }

// Joined reports whether a watermark covers all that the raise stands for.
func (it *Item) Joined(acked tidemark.Sequence) bool {
	return len(it.runs) == 0 || acked >= it.runs[len(it.runs)-1].to
}

// Take returns one raise for each user and chat that waits, in the order of their keys: nodes whose
// storage locks row by row do not wait for each other in a circle, and a run of the simulation can
// be repeated. Everything that waited is flying until Landed. rows are to be marked.
func (b *Buffer) Take(now time.Time) (items []Item, rows []tidemark.PendingDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting, b.flying = make(map[storage.StateKey]*raises), taken
	items = make([]Item, 0, len(taken))
	for key, r := range taken {
		it, ok, more := b.foldLocked(key, r, tidemark.MaxSequence, now)
		rows = append(rows, more...)
		if ok {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(a.Advance.User, b.Advance.User),
			cmp.Compare(a.Advance.Chat, b.Advance.Chat))
	})
	return items, rows
}

// Landed says that what Take returned has been written, or has failed.
func (b *Buffer) Landed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying = nil
}

// foldLocked makes one raise of what waits for a user and chat. ok is false if nothing is raised.
func (b *Buffer) foldLocked(
	key storage.StateKey, r *raises, head tidemark.Sequence, now time.Time,
) (it Item, ok bool, rows []tidemark.PendingDelivery) {
	raise, runs, left := fold(r, head)
	rows = b.waitLocked(key, left)
	advance := storage.Advance{User: key.User, Chat: key.Chat, Now: now, Raise: raise}
	return Item{given: r, runs: runs, Advance: advance}, raise != (tidemark.Raise{}), rows
}

// fold makes one raise of everything that waits for a user and chat, bounded by a head: the
// acknowledgement, and the runs that join it or each other. A run that joins nothing is a raise of
// its own, with a condition. What it leaves waits for the next batch.
func fold(r *raises, head tidemark.Sequence) (raise tidemark.Raise, runs, left []run) {
	raise.Acked, raise.Read = r.acked.within(head), r.read.within(head)
	for _, run := range r.runs {
		switch {
		case raise.Acked == 0 && raise.Read == 0:
			raise = tidemark.ImplicitRead(run.to, run.seen)
			raise.Acked, raise.AckedFrom = run.to, run.from
		//rule:ack_cumulative.join-without-hole
		case raise.Acked > 0 && raise.Acked+1 >= run.from &&
			(raise.AckedFrom == 0 || raise.ReadWithinAcked == (run.seen == 0)):
			// If the raise takes effect without the run, it does with it, and read is bounded alike.
			raise.Acked = max(raise.Acked, run.to)
			raise.Read = max(raise.Read, tidemark.ImplicitRead(run.to, run.seen).Read)
		default:
			left = append(left, run)
			continue
		}
		runs = append(runs, run)
	}
	return raise, runs, left
}

// Refold folds refused items anew, each bounded by the head of its chat. rows are to be marked.
func (b *Buffer) Refold(
	refused []Item, heads []tidemark.Sequence, now time.Time,
) (items []Item, rows []tidemark.PendingDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, it := range refused {
		again := *it.given
		again.runs = it.runs
		key := storage.StateKey{User: it.Advance.User, Chat: it.Advance.Chat}
		folded, ok, more := b.foldLocked(key, &again, heads[i], now)
		rows = append(rows, more...)
		if ok {
			folded.given = nil
			items = append(items, folded)
		}
	}
	return items, rows
}

// Failed lets the runs of an item be tried once more, at a time. Runs that fail again leave their
// messages to be acknowledged by the author's devices: rows are to be marked for them.
func (b *Buffer) Failed(it Item, again time.Time) (rows []tidemark.PendingDelivery) {
	key := storage.StateKey{User: it.Advance.User, Chat: it.Advance.Chat}
	b.mu.Lock()
	defer b.mu.Unlock()
	var over []run
	for _, r := range it.runs {
		//rule:ack_cumulative.retry-failed-run-once
		if r.state == retried || len(b.later) >= maxKeys {
			over = append(over, r)
			continue
		}
		r.state = retried
		b.later = append(b.later, retry{due: again, key: key, run: r})
	}
	b.flag.Set()
	//rule:pending_or_delivered.give-up-to-row
	return rowsOf(key, over)
}

// Close takes nothing on any more, because nobody writes it. It returns the rows of the runs that
// wait. No later message is covered.
func (b *Buffer) Close() (rows []tidemark.PendingDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.later {
		rows = append(rows, rowsOf(r.key, []run{r.run})...)
	}
	for key, r := range b.waiting {
		rows = append(rows, rowsOf(key, r.runs)...)
	}
	b.later, b.waiting, b.state = nil, make(map[storage.StateKey]*raises), closed
	return rows
}
