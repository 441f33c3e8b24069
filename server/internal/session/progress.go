package session

import (
	"math"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// progress is a session's position in one chat.
//
//	state     notified, rewound or found   page ends the chat   acknowledged, no row
//	drained   ready                        -                    forgotten if room is needed
//	ready     ready                        drained              -
//
// A chat is ready exactly if next ≤ last or openEnded. last is head without the messages that are
// held. The grace period is a state of its own:
//
//	            notified  time is over:                                      moved
//	                      all           first not           only later not
//	grace                 acknowledged  acknowledged        acknowledged
//	graceOff    graceOn   -             -                   -               -
//	graceOn     -         graceOff      graceOff and a row  graceOn         graceMoved
//	graceMoved  -         graceOff      graceOff and a row  graceMoved      graceOff and a row
//
// Invariants: start ≤ next. A page that was read before a rewind is discarded (rewinds).
type progress struct {
	chat tidemark.ChatID
	// next is the first sequence that was not sent since the last rewind.
	next tidemark.Sequence
	// start is the lowest sequence that the session must send. A notification of a lower one
	// rewinds (R_MIN). Until ackedRead, the watermark can still lower it.
	start tidemark.Sequence
	// head is the highest sequence that is known to exist.
	head tidemark.Sequence
	// acked is a lower bound of the user's watermark.
	acked tidemark.Sequence
	// backlogTo is the sequence up to which the chat is sent before `caught_up`, if inBacklog.
	backlogTo tidemark.Sequence
	// rewinds counts how often next was set back.
	rewinds uint32
	// firstSeen is when the session learned of the chat, in seconds since 1970. It is 0 if the
	// client gave its cursor. It overflows in 2106.
	firstSeen uint32
	// since is when the first message that is not acknowledged was notified, in seconds since
	// 1970. It is 0 if a grace period was running already. It needs no further reading of the
	// clock, because the grace period reads it.
	since uint32

	grace grace
	// held is how many messages up to head wait for their confirmations (confirmations).
	held uint8
	// queued says that the chat is in chats.ready.
	queued bool
	// openEnded says that storage may have messages above head.
	openEnded bool
	// ackedRead says that acked was read from storage or given by the client.
	ackedRead bool
	// mayBePending says that a pending row may exist.
	mayBePending bool
	// inBacklog says that catchUp.backlog counts the chat.
	inBacklog bool
}

type grace uint8

const (
	graceOff   grace = iota
	graceOn          // Host.Grace has an entry for the chat
	graceMoved       // the same, and the period began again when the session moved here
)

// pending returns the row to be marked for what is not acknowledged. It begins after the watermark,
// or at start if that is higher and the watermark was not read.
func (p *progress) pending(user tidemark.UserID) tidemark.PendingDelivery {
	first := tidemark.First(p.acked)
	if !p.ackedRead {
		//rule:pending_once.row-starts-at-position
		first = max(first, p.start)
	}
	return tidemark.PendingDelivery{UserID: user, ChatID: p.chat, FirstUndelivered: first}
}

// ready reports whether the session may have messages to send in the chat.
func (p *progress) ready() bool { return p.openEnded || p.next <= p.last() }

// last returns the last message that is known to exist and is not held.
func (p *progress) last() tidemark.Sequence { return p.head - tidemark.Sequence(p.held) }

// behind reports whether a known message is not acknowledged.
func (p *progress) behind() bool { return p.head > p.acked }

// unacknowledged reports whether a message that is known or may exist is not acknowledged.
func (p *progress) unacknowledged() bool { return p.openEnded || p.behind() }

// raise records that the chat has messages up to head.
func (p *progress) raise(head tidemark.Sequence) {
	//rule:stats_of_all_nodes.age-begins-with-the-first-message
	if !p.behind() {
		p.since = 0
	}
	p.know(head)
}

// know records that the chat has messages up to head, and holds none of the new ones.
func (p *progress) know(head tidemark.Sequence) {
	//rule:own_confirmation.later-message-ends-waiting
	if head > p.head {
		p.head, p.held = head, 0
	}
}

// hold records that the chat has messages up to head. It holds that one, unless it was known.
func (p *progress) hold(head tidemark.Sequence) {
	held := p.held
	switch at := p.head; {
	case head <= at:
		return
	case head > at+1, held == math.MaxUint8:
		held = 0
	}
	p.raise(head)
	p.held = held + 1
}

// release ends the holding of messages up to a sequence.
func (p *progress) release(through tidemark.Sequence) {
	//rule:own_confirmation.event-without-confirmation
	if through > p.last() {
		p.held = uint8(p.head - min(through, p.head))
	}
}

// waitsSince records since when a message waits for its acknowledgement, unless an earlier one
// does.
func (p *progress) waitsSince(at time.Time) {
	if p.since == 0 {
		p.since = uint32(at.Unix())
	}
}

// waiting returns about since when a message waits for its acknowledgement. The chat is behind.
func (p *progress) waiting(now time.Time) time.Time {
	switch {
	case p.since != 0:
		return time.Unix(int64(p.since), 0)
	case p.grace != graceOff, p.firstSeen == 0:
		return now
	}
	return time.Unix(int64(p.firstSeen), 0)
}

// forgettable reports whether the session can forget the chat and lose nothing.
func (p *progress) forgettable() bool {
	//rule:own_confirmation.keep-chat-of-held-message
	return !p.queued && !p.mayBePending && p.grace == graceOff && !p.inBacklog && p.held == 0 &&
		p.acked+1 >= p.next
}

// reach lowers start to sequence. It changes nothing if the client gave its cursor, which is newer.
// It reports whether the session must rewind to start.
func (p *progress) reach(sequence tidemark.Sequence) (back bool) {
	//rule:sync_position_from_watermark.keep-position-of-client
	if sequence >= p.start || p.firstSeen == 0 {
		return false
	}
	p.start = sequence
	return sequence < p.next
}

// learnAcked records the user's watermark. The first one that is read may lower start to what
// follows it. learnAcked reports whether the session must rewind to start.
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

// rewind sets next back to a sequence.
func (p *progress) rewind(to tidemark.Sequence) {
	p.know(p.next - 1)
	p.next = to
	//rule:session_in_order.void-pages-under-way
	p.rewinds++
}

// seek sets the position to the client's cursor: the client has everything up to it.
func (p *progress) seek(cursor, head tidemark.Sequence) {
	p.ackedRead, p.firstSeen = true, 0
	p.acked = max(p.acked, cursor)
	p.know(max(head, p.next-1))
	//rule:sync_position_from_watermark.start-behind-cursor
	p.start, p.next = tidemark.First(cursor), tidemark.First(cursor)
	p.rewinds++
}

// keep sets the position to the client's cursor in a chat that the user has left. If they return,
// the session goes on from there: another device may have acknowledged what this one never got.
func (p *progress) keep(cursor tidemark.Sequence) {
	p.firstSeen = 0
	if p.head > 0 { // the user has returned in the meantime
		p.know(p.next - 1)
	}
	//rule:resume_lossless.keep-cursor-of-former-member
	p.start, p.next = tidemark.First(cursor), tidemark.First(cursor)
	p.rewinds++
}

// leave records that the user is no longer a member. The chat stays known, because the user may
// rejoin. Another device may then have acknowledged what this one did not get.
func (p *progress) leave() {
	p.head, p.held, p.openEnded, p.backlogTo = 0, 0, false, 0
	p.next = max(min(p.next, tidemark.First(p.acked)), 1)
	p.start = min(p.start, p.next)
	p.rewinds++
}

// served records that a page was sent up to through. end says that the chat ends there.
func (p *progress) served(through tidemark.Sequence, wasOpenEnded, end bool) {
	//rule:session_in_order.continue-behind-page
	p.next = max(p.next, through+1)
	if wasOpenEnded {
		p.openEnded = p.openEnded && !end
		p.know(through)
	}
}

// chats holds a session's progress in all chats that it knows.
type chats struct {
	byID map[tidemark.ChatID]*progress
	// ready has the chats to send, in the order in which they are served.
	ready []*progress
	// full says that a chat was refused because none could be forgotten. An acknowledgement may
	// make room.
	full bool
}

// get returns the progress in a chat, or nil if the session does not know the chat.
func (c *chats) get(chat tidemark.ChatID) *progress { return c.byID[chat] }

// add enters a chat that begins at start. If limit chats are known and none can be forgotten, it
// returns nil and sets full.
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

// forget removes all chats that are forgettable, and reports whether there is room.
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

// requeue removes a chat from the ready list. If the chat is still ready, requeue appends it, so
// that the others are served first.
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
