package session

import (
	"slices"

	"github.com/tidemark-im/tidemark"
)

// progress is how far a session got in one chat.
//
//	state     notified, rewound, or found   page ends the chat   acknowledged, no row
//	drained   ready                         -                    forgotten if room is needed
//	ready     ready                         drained              -
//
// A chat is ready exactly if next ≤ head, or if it is open-ended. The grace period runs beside it:
//
//	grace       notified   acknowledged   time is over         moved to another node
//	graceOff    graceOn    -              -                    -
//	graceOn     -          graceOff       graceOff, and a row  graceMoved
//	graceMoved  -          graceOff       graceOff, and a row  graceOff, and a row
//
// Invariants: start ≤ next; a page that was read before a rewind is discarded (rewinds).
type progress struct {
	chat tidemark.ChatID
	// next is the first sequence that was not sent since the last rewind.
	next tidemark.Sequence
	// start is the lowest sequence that the session has to send. A notification below it rewinds
	// (R_MIN). It is provisional until ackedRead.
	start tidemark.Sequence
	// head is the highest sequence that is known to exist.
	head tidemark.Sequence
	// acked is a lower bound of the user's watermark.
	acked tidemark.Sequence
	// backlogTo is how far the chat has to be served before `caught_up`, if it is inBacklog.
	backlogTo tidemark.Sequence
	// rewinds grows whenever next goes back.
	rewinds uint32
	// firstSeen is when the session learned of the chat, in seconds since 1970; 0 if its client
	// named its position. It is good until 2106.
	firstSeen uint32

	grace grace
	// queued says that the chat is in the ready list.
	queued bool
	// openEnded says that there may be messages above head: storage tells.
	openEnded bool
	// ackedRead says that acked was read from storage, or given by the client.
	ackedRead bool
	// mayBePending says that a pending row may stand.
	mayBePending bool
	// inBacklog says that the chat counts in catchUp.backlog.
	inBacklog bool
}

type grace uint8

const (
	graceOff   grace = iota
	graceOn          // the queue of grace periods has an entry for the chat
	graceMoved       // the same, and the period began anew when the session moved to this node
)

// pending returns the row for what is not acknowledged. Until the watermark was read, it begins
// where the session does.
func (p *progress) pending(user tidemark.UserID) tidemark.PendingDelivery {
	first := tidemark.First(p.acked)
	if !p.ackedRead {
		//rule:pending_once.row-starts-at-position
		first = max(first, p.start)
	}
	return tidemark.PendingDelivery{UserID: user, ChatID: p.chat, FirstUndelivered: first}
}

// ready reports whether the session has something to send in the chat.
func (p *progress) ready() bool { return p.openEnded || p.next <= p.head }

// behind reports whether a message is known that the user has not acknowledged.
func (p *progress) behind() bool { return p.head > p.acked }

// unacknowledged reports whether there is, or may be, a message that the user has not acknowledged.
func (p *progress) unacknowledged() bool { return p.openEnded || p.behind() }

// forgettable reports whether nothing is lost when the session forgets the chat.
func (p *progress) forgettable() bool {
	return !p.queued && !p.mayBePending && p.grace == graceOff && !p.inBacklog &&
		p.acked+1 >= p.next
}

// reach lets the chat begin no higher than at sequence, unless the client has named its position:
// what says otherwise is older. It reports whether the session has to go back.
func (p *progress) reach(sequence tidemark.Sequence) (back bool) {
	//rule:sync_position_from_watermark.keep-position-of-client
	if sequence >= p.start || p.firstSeen == 0 {
		return false
	}
	p.start = sequence
	return sequence < p.next
}

// learnAcked takes the user's watermark. A chat starts no higher than what follows the first one
// that was read. It reports whether the session has to go back to start.
func (p *progress) learnAcked(acked tidemark.Sequence) (back bool) {
	p.acked = max(p.acked, acked)
	if p.ackedRead {
		return false
	}
	p.ackedRead = true
	//rule:R_MIN.lower-start-to-watermark
	if first := tidemark.First(acked); first < p.start {
		p.start = first
		return first < p.next
	}
	return false
}

// rewind goes back to a sequence.
func (p *progress) rewind(to tidemark.Sequence) {
	p.head = max(p.head, p.next-1)
	p.next = to
	//rule:session_in_order.void-pages-under-way
	p.rewinds++
}

// seek sets the position that the client named: it has everything up to cursor.
func (p *progress) seek(cursor, head tidemark.Sequence) {
	p.ackedRead, p.firstSeen = true, 0
	p.acked = max(p.acked, cursor)
	p.head = max(p.head, head, p.next-1)
	//rule:sync_position_from_watermark.start-behind-cursor
	p.start, p.next = tidemark.First(cursor), tidemark.First(cursor)
	p.rewinds++
}

// leave takes in that the user is not a member any more. The chat stays known: if they come back,
// another device may have acknowledged what this one has not got.
func (p *progress) leave() {
	p.head, p.openEnded, p.backlogTo = 0, false, 0
	p.next = max(min(p.next, tidemark.First(p.acked)), 1)
	p.start = min(p.start, p.next)
	p.rewinds++
}

// served moves on after a page. end says that the chat ends with it.
func (p *progress) served(through tidemark.Sequence, wasOpenEnded, end bool) {
	//rule:session_in_order.continue-behind-page
	p.next = max(p.next, through+1)
	if wasOpenEnded {
		p.openEnded = p.openEnded && !end
		p.head = max(p.head, through)
	}
}

// chats is a session's progress in all chats that it knows.
type chats struct {
	byID map[tidemark.ChatID]*progress
	// ready is the chats with something to send, in the order in which they are served.
	ready []*progress
	// full says that a chat was turned away, because nothing could be forgotten. Whatever is
	// acknowledged makes room.
	full bool
}

// get returns the progress in a chat, nil if the session does not know it.
func (c *chats) get(chat tidemark.ChatID) *progress { return c.byID[chat] }

// add enters a chat that begins at start. It returns nil, and is full, if limit chats are known of
// which none can be forgotten.
func (c *chats) add(
	chat tidemark.ChatID, start tidemark.Sequence, firstSeen uint32, limit int,
) *progress {
	//rule:bounded_use.limit-chats-of-a-session
	if len(c.byID) >= limit && !c.forget(limit) {
		c.full = true
		return nil
	}
	p := &progress{chat: chat, next: start, start: start, firstSeen: firstSeen}
	if c.byID == nil {
		c.byID = make(map[tidemark.ChatID]*progress)
	}
	c.byID[chat] = p
	return p
}

// forget removes what can be had again, and reports whether there is room.
func (c *chats) forget(limit int) bool {
	for chat, p := range c.byID {
		if p.forgettable() {
			delete(c.byID, chat)
		}
	}
	return len(c.byID) < limit
}

// queue puts a chat into the ready list if it has something to send.
func (c *chats) queue(p *progress) {
	//rule:pending_or_delivered.queue-every-wake
	if !p.queued && p.ready() {
		p.queued = true
		c.ready = append(c.ready, p)
	}
}

// requeue takes a chat out of the ready list, or moves it to the end so that the others have their
// turn.
func (c *chats) requeue(p *progress) {
	if i := slices.Index(c.ready, p); i >= 0 {
		c.ready = slices.Delete(c.ready, i, i+1)
	}
	p.queued = false
	//rule:pending_or_delivered.queue-until-served
	c.queue(p)
	if len(c.ready) == 0 && cap(c.ready) > 64 {
		c.ready = nil
	}
}
