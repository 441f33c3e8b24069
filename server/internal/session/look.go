package session

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// look is a session's search for what its user has still to receive: a listing of his pending rows if there is proof that they name every
// chat, else a comparison of heads with watermarks (delivery.md §4, Open). It goes page by page, between pages of messages.
type look struct {
	mode lookMode
	// after is the chat that the last page ended with.
	after tidemark.ChatID
	// large says that the listing met a chat which writes no rows.
	large bool
	// again says that another comparison is needed when this look is done; missed, that it is one of what the session may have missed as well.
	again, missed bool
	// activity is the other half of the position of a page of quiet chats.
	activity time.Time
	// began is when the look was ordered; since is when the session knew for certain what there was.
	began, since time.Time
	// order tells looks apart: a page read for an earlier one is thrown away.
	order uint32
}

type lookMode uint8

const (
	lookDone    lookMode = iota
	lookListing          // pending rows
	lookLarge            // heads of the chats that write no rows, after the listing
	lookMissed           // heads of the chats in the map, and then lookQuiet
	lookQuiet            // chats that are not in the map and were active, and then lookCompare
	lookCompare          // heads of all chats
)

// lookPage is how many chats one page of a look asks for.
const lookPage = 256

// done says that nothing is left to be looked for; a look that waits for room in the map is neither done nor due.
func (l look) done() bool { return l.mode == lookDone && !l.again }

func (s *Session) lookDue() bool { return s.look.mode != lookDone || s.look.again && !s.full }

// Leased takes in the registry's answer to an open, and orders the look that it asks for. epoch is what the registry said before the lease was taken;
// proven says that a proof of a clean close names it and that the user had no other lease (R_PROOF, R_LAST). A session whose lease could not be taken
// compares, and leaves no proof. It reports false if the session has ended: then the caller releases the lease.
func (s *Session) Leased(leased, proven bool, epoch registry.Epoch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_EPOCH.compare-after-lost-lease
	again := s.registered
	s.leased, s.registered = leased, true
	if s.closed {
		return false
	}
	mode := lookCompare
	switch {
	case again: // it had a lease, or should have had
		mode = lookMissed
	//rule:R_PROOF.rows-with-lease-and-proof-only
	case leased && proven:
		mode = lookListing
	}
	s.orderLook(mode, epoch)
	notify(s.signal)
	return true
}

// Compare orders a comparison if the registry's epoch is another one than the session knows (R_EPOCH), or, with always, in any case; one that is under way then goes
// to its end first. What was not handed over to this session may have reached another device of the user, who has acknowledged it: hence it looks at the heads of
// its chats, whatever the user's watermark is.
func (s *Session) Compare(epoch registry.Epoch, always bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return
	case s.arriving != nil: // when it is here
		s.epoch = epoch
		return
	//rule:R_EPOCH.compare-on-new-epoch
	case s.epoch != epoch || always && s.look.done():
		s.recent = s.recent || s.wantStatuses && s.epoch != epoch // ticks may have been missed, too
		//rule:R_EPOCH.look-for-missed-messages
		s.orderLook(lookMissed, epoch)
	case always:
		s.look.again, s.look.missed, s.complete = true, true, false
	default:
		return
	}
	notify(s.signal)
}

// Proof returns what the session may leave when it releases its lease: the epoch, if its open has finished looking; nil otherwise. asked says that the registry
// was asked for a lease, or is being asked: then there is one to be released, or may be.
func (s *Session) Proof() (proof *registry.Epoch, asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:R_COMPLETE.proof-after-complete-look
	if s.complete && s.leased {
		epoch := s.epoch
		proof = &epoch
	}
	//rule:R_ADDR.release-possible-lease
	return proof, s.leased || s.registered
}

// orderLook begins a look. The proof that the session leaves at its close will name epoch.
func (s *Session) orderLook(mode lookMode, epoch registry.Epoch) {
	s.look = look{mode: mode, order: s.look.order + 1, began: s.node.Now(), since: s.certain}
	//rule:R_COMPLETE.failed-look-is-incomplete
	s.epoch, s.complete = epoch, false
}

// lookFor reads one page.
func (s *Session) lookFor(ctx context.Context, c *Connection, l look) error {
	if l.mode == lookDone { // again
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.look.order == l.order {
			mode := lookCompare
			if s.look.missed {
				mode = lookMissed
			}
			s.orderLook(mode, s.epoch)
		}
		return nil
	}
	switch l.mode {
	case lookMissed:
		return s.lookForMissed(ctx, c, l)
	case lookQuiet:
		return s.lookForQuiet(ctx, c, l)
	}
	found, next, more, err := s.readLook(ctx, l)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ownedBy(c); err != nil {
		return err
	}
	if s.look.order != l.order || s.look.after != l.after || s.look.mode != l.mode {
		return nil
	}
	for _, f := range found {
		s.found(f)
	}
	s.look.after = next
	switch {
	//rule:R_PROOF.read-all-pages-of-rows
	case more:
	case s.look.mode == lookListing && s.look.large:
		s.look.mode, s.look.after = lookLarge, ""
	default:
		s.look.mode, s.certain = lookDone, s.look.began
		s.complete = !s.look.again
	}
	return nil
}

// find is a chat that a look found.
type find struct {
	chat         tidemark.ChatID
	first, acked tidemark.Sequence
	// head is 0 if only storage knows where the chat ends.
	head tidemark.Sequence
	// row says that a pending row stands, or may.
	row bool
}

// readLook reads a page of what a look looks at.
func (s *Session) readLook(ctx context.Context, l look) (found []find, next tidemark.ChatID, more bool, err error) {
	if l.mode == lookListing {
		s.node.Count.Listings.Add(1)
		rows, more, err := s.node.Storage.PendingOf(ctx, s.User, l.after, lookPage)
		if err != nil {
			return nil, "", false, err
		}
		for _, row := range rows {
			found = append(found, find{chat: row.ChatID, first: row.FirstUndelivered, acked: row.Acked, row: true})
			next = row.ChatID
		}
		return found, next, more, nil
	}
	s.node.Count.Compares.Add(1)
	lags, next, more, err := s.node.Storage.Behind(ctx, s.User, storage.BehindQuery{
		LargeOnly: l.mode == lookLarge, After: l.after, Limit: lookPage,
	})
	if err != nil {
		return nil, "", false, err
	}
	for _, lag := range lags {
		found = append(found, find{chat: lag.Chat, first: tidemark.First(lag.Acked), acked: lag.Acked, head: lag.Head, row: l.mode == lookCompare})
	}
	return found, next, more, nil
}

// found enters a chat that a look found into the session.
func (s *Session) found(f find) {
	if f.first == 0 { // the listing's word for a chat that writes no rows
		//rule:pending_or_delivered.compare-large-chats
		s.look.large = true
		return
	}
	//rule:pending_or_delivered.row-may-be-above-head
	p := s.reach(f.chat, f.first)
	if p == nil {
		return
	}
	// A row may begin later than behind the watermark: messages before it may still be on their way to be marked.
	//rule:R_MIN.watermark-of-the-chat
	s.ackedIs(p, f.acked)
	p.row = p.row || f.row
	if f.head == 0 {
		//rule:pending_or_delivered.row-reaches-to-the-end
		p.toEnd = true // a row may be above the head: it does not say that its message exists
	} else {
		p.woken = max(p.woken, f.head)
	}
	s.queue(p)
	s.owes(p)
	if s.wantStatuses {
		s.snapshot(f.chat)
	}
}

// owes counts what a look has found in a chat as what has to be sent before caught_up.
func (s *Session) owes(p *position) {
	if !p.queued || s.caughtUp {
		return
	}
	if !p.backlog {
		p.backlog = true
		s.backlog++
	}
	p.backlogTo = max(p.backlogTo, p.woken)
}
