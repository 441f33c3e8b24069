// Package ackbuffer collects raises of watermarks so that they are written together. They are
// acknowledgements from streams, and the raises that authors imply by sending. It does no I/O;
// package receipts writes what Take returns.
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
	// maxKeys bounds the users and chats in a Buffer. Acknowledgements beyond it are dropped, and
	// their clients repeat them.
	maxKeys = 200_000
	// maxLower is how many candidates below the highest are kept.
	maxLower = 4
)

// Buffer collects raises. It is bounded, and safe for concurrent use. A raise is in one of these
// places:
//
//	waiting   added by Add, Authored or Requeue; Take moves it on
//	writing   being written, until Written
//	later     an author run that did not join its watermark, until its retry is due
type Buffer struct {
	watermarks *watermark.Cache
	flag       signal.Flag

	mu      sync.Mutex
	waiting map[storage.StateKey]*raises
	writing map[storage.StateKey]*raises
	later   []retry
	// state says whether the Buffer accepts raises.
	state bufferState
}

type bufferState uint8

const (
	open   bufferState = iota
	closed             // it accepts nothing
)

// New returns an empty Buffer. watermarks has the known watermarks.
func New(watermarks *watermark.Cache) *Buffer {
	return &Buffer{
		watermarks: watermarks, flag: signal.New(), waiting: make(map[storage.StateKey]*raises),
	}
}

// raises is what has to be written for one user and chat.
type raises struct {
	acked, read candidates
	// reader is the session that gave the highest read. It knows what it has read.
	reader tidemark.SessionID
	runs   []run
}

// candidates has the highest sequence that was given for a watermark, and the last few below it. If
// the highest is beyond the head, a lower one is written.
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

// within returns the highest candidate that is at most head, or 0.
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

// run is a series of consecutive messages by one author (delivery.md §6).
//
//	state     written              did not join                  no room, or closed
//	fresh     removed              retried, after a pause        a row, if covered
//	retried   removed              a row, if covered             a row, if covered
type run struct {
	from, to tidemark.Sequence
	// seen is what the author's client says it had shown.
	seen tidemark.Seen
	// covered says that the run was expected to raise the author's watermark, so no row was marked
	// for the author.
	covered bool
	state   runState
}

type runState uint8

const (
	fresh runState = iota
	retried
)

// retry is a run that is to be tried once more.
type retry struct {
	due time.Time
	key storage.StateKey
	run run
}

// covers returns how far a watermark at top will rise when r is written.
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

// atLocked returns the waiting raises of a user and chat, or nil if there is no room.
func (b *Buffer) atLocked(key storage.StateKey) *raises {
	r := b.waiting[key]
	//rule:pending_or_delivered.not-covered-after-end
	if r == nil && b.state == open && len(b.waiting) < maxKeys {
		r = &raises{}
		b.waiting[key] = r
	}
	return r
}

// Flag returns a flag that is set when raises wait.
func (b *Buffer) Flag() signal.Flag { return b.flag }

// Add adds an acknowledgement by a session. A sequence of 0 leaves that watermark as it is. Add
// returns false if there is no room.
func (b *Buffer) Add(
	key storage.StateKey, by tidemark.SessionID, acked, read tidemark.Sequence,
) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.atLocked(key)
	if r == nil {
		return false
	}
	r.acked.add(acked)
	if read > r.read.top {
		r.reader = by
	}
	r.read.add(read)
	//rule:delivered_is_eventually_consistent.signal-writer
	b.flag.Set()
	return true
}

// Authored adds the raise that a user's own message implies. seen is what the user's client says it
// had shown. covered reports whether the message will join the watermark, as far as is known; its
// author then needs no row.
func (b *Buffer) Authored(
	user tidemark.UserID, chat tidemark.ChatID, sequence tidemark.Sequence,
	seen tidemark.Seen,
) (covered bool) {
	key := storage.StateKey{User: user, Chat: chat}
	b.mu.Lock()
	defer b.mu.Unlock()
	// Read under the lock: a raise is removed from writing only after the watermark is known.
	top, _ := b.watermarks.Acked(key)
	r := b.atLocked(key)
	if r == nil {
		return false
	}
	//rule:pending_or_delivered.covered-without-hole
	covered = sequence <= r.covers(b.writing[key].covers(top))+1
	last := slices.IndexFunc(r.runs,
		func(r run) bool { return r.to+1 == sequence && r.state == fresh })
	//rule:read_implies_delivered.declined-apart
	if last >= 0 && r.runs[last].covered == covered &&
		r.runs[last].seen.Stated == seen.Stated &&
		r.runs[last].seen.Declined() == seen.Declined() {
		r.runs[last].to, r.runs[last].seen = sequence, furthest(r.runs[last].seen, seen)
	} else {
		r.runs = append(r.runs, run{from: sequence, to: sequence, seen: seen, covered: covered})
	}
	b.flag.Set()
	return covered
}

// furthest returns the higher of two statements, or neither if the client does not say.
func furthest(a, b tidemark.Seen) tidemark.Seen {
	if b.Through > a.Through {
		return b
	}
	return a
}

// Requeue moves the author runs whose retry is due back to waiting. It returns when the next retry
// is due, or zero, and the rows of the runs for which there is no room. The caller marks these
// rows.
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

// waitLocked adds runs to the waiting raises. If there is no room, it returns their rows.
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

// rowsOf returns the rows of covered runs.
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

// Item is one raise of a batch. It has the raises of one user and chat from which it was made.
type Item struct {
	Advance storage.Advance
	// Reader is the session whose read is that of the raise, or "".
	Reader tidemark.SessionID
	// given is nil if the raise was made by Refold.
	given *raises
	runs  []run
}

// ByAuthor reports whether the raise covers messages that its user sent.
func (it *Item) ByAuthor() bool { return len(it.runs) > 0 }

// Explicit reports whether a device of the user acknowledged, so that a row may be cleared.
func (it *Item) Explicit() bool {
	//rule:pending_or_delivered.keep-row-of-author
	return it.given == nil || it.given.acked.top > 0
}

// Refoldable reports whether a lower candidate may be within the head.
func (it *Item) Refoldable() bool { return it.given != nil }

// Joined reports whether a watermark at acked covers all runs of the raise.
func (it *Item) Joined(acked tidemark.Sequence) bool {
	return len(it.runs) == 0 || acked >= it.runs[len(it.runs)-1].to
}

// Take returns one raise for each user and chat, sorted by key. The order avoids deadlocks in a
// storage that locks row by row, and makes a run of the simulation repeatable. The raises are in
// writing until Written. The caller marks rows.
func (b *Buffer) Take(now time.Time) (items []Item, rows []tidemark.PendingDelivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.waiting
	b.waiting, b.writing = make(map[storage.StateKey]*raises), taken
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

// Written records that the writes of the last Take have ended, with or without errors.
func (b *Buffer) Written() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writing = nil
}

// foldLocked makes an Item of the raises of one user and chat. ok is false if nothing is raised.
func (b *Buffer) foldLocked(
	key storage.StateKey, r *raises, head tidemark.Sequence, now time.Time,
) (it Item, ok bool, rows []tidemark.PendingDelivery) {
	raise, runs, left := fold(r, head)
	rows = b.waitLocked(key, left)
	advance := storage.Advance{User: key.User, Chat: key.Chat, Now: now, Raise: raise}
	it = Item{given: r, runs: runs, Advance: advance}
	if raise.Read == r.read.top {
		it.Reader = r.reader
	}
	return it, raise != (tidemark.Raise{}), rows
}

// fold makes one raise, at most to head, from the acknowledgement and the runs that join it or each
// other. If there is no acknowledgement, the first run becomes a raise with AckedFrom: it counts
// only if the stored watermark has reached the message before the run. left has the runs that
// remain for the next batch.
func fold(r *raises, head tidemark.Sequence) (raise tidemark.Raise, runs, left []run) {
	raise.Acked, raise.Read = r.acked.within(head), r.read.within(head)
	for _, run := range r.runs {
		switch {
		case raise.Acked == 0 && raise.Read == 0:
			raise = tidemark.ImplicitRead(run.from, run.to, run.seen)
			raise.Acked, raise.AckedFrom = run.to, run.from
		//rule:ack_cumulative.join-without-hole
		case raise.Acked > 0 && raise.Acked+1 >= run.from &&
			(raise.AckedFrom == 0 || raise.ReadWithinAcked != run.seen.Stated):
			// The raise covers the run whenever it takes effect, and bounds read in the same way.
			raise.Acked = max(raise.Acked, run.to)
			raise.Read = max(raise.Read, tidemark.ImplicitRead(run.from, run.to, run.seen).Read)
		default:
			left = append(left, run)
			continue
		}
		runs = append(runs, run)
	}
	return raise, runs, left
}

// Refold makes new Items of refused ones, each at most to the head of its chat. The caller marks
// rows.
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

// Failed schedules a retry of an item's runs at the time again. Runs that failed before are given
// up: the caller marks rows, and the author's devices acknowledge the messages.
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

// Close makes the Buffer accept nothing more. It returns the rows of the runs in it. Later messages
// are not covered.
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
