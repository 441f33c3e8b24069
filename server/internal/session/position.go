package session

import (
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// position is a session's place in one chat.
type position struct {
	chat tidemark.ChatID
	// next is the first sequence that was not sent since the last rewind.
	next tidemark.Sequence
	// start is the lowest sequence that the session has to send; a wake below it rewinds to it (R_MIN).
	start tidemark.Sequence
	// woken is the highest sequence known to exist; toEnd says that there may be more, as storage will tell.
	woken tidemark.Sequence
	toEnd bool
	// acked is a lower bound of the user's watermark. Until sure, it was not read, and start may be too high.
	acked tidemark.Sequence
	sure  bool
	// row says that a pending row may stand.
	row bool
	// queued says that the position is in the wake set: exactly if next ≤ woken or toEnd.
	queued bool
	// graced says that the grace queue has an entry for the position; carried, that its time began anew when the session moved here.
	graced, carried bool
	// backlog says that the position counts in Session.backlog, until next is above backlogTo and toEnd is false.
	backlog   bool
	backlogTo tidemark.Sequence
	// rewinds grows whenever next goes back, so that a page read before is not taken for one read after.
	rewinds uint32
	// born is when the session first heard of the chat, in seconds of the time of day; 0 if its client has said where it is.
	born uint32
}

// pending returns the row that stands for what is unacknowledged. As long as the watermark was not read, it begins where the session does.
func (p *position) pending(user tidemark.UserID) tidemark.PendingDelivery {
	first := tidemark.First(p.acked)
	if !p.sure {
		//rule:pending_once.row-starts-at-position
		first = max(first, p.start)
	}
	return tidemark.PendingDelivery{UserID: user, ChatID: p.chat, FirstUndelivered: first}
}

func (p *position) unserved() bool { return p.toEnd || p.next <= p.woken }

// unacknowledged reports whether the position has something sent, or only woken, that the user has not acknowledged.
func (p *position) unacknowledged() bool { return p.toEnd || p.woken > p.acked }

// at returns the session's place in a chat: a new one that begins at start, if it has none. It returns nil if the map is full.
func (s *Session) at(chat tidemark.ChatID, start tidemark.Sequence) *position {
	if p := s.chats[chat]; p != nil {
		return p
	}
	//rule:bounded_use.limit-chats-of-a-session
	if len(s.chats) >= s.node.Chats && !s.forget() {
		s.node.Count.Overflows.Add(1)
		//rule:R_COMPLETE.incomplete-when-full
		s.full, s.look.again, s.complete = true, true, false
		return nil
	}
	p := &position{chat: chat, next: start, start: start, born: uint32(s.node.Now().Unix())} // until the year 2106
	if s.chats == nil {
		s.chats = make(map[tidemark.ChatID]*position)
	}
	s.chats[chat] = p
	if acked, ok := s.node.Known.Acked(storage.StateKey{User: s.User, Chat: chat}); ok {
		s.ackedIs(p, acked)
	}
	return p
}

// touch enters a wake into the session: the chat has something at sequence. It returns nil if the map is full.
func (s *Session) touch(chat tidemark.ChatID, sequence tidemark.Sequence) *position {
	p := s.reach(chat, sequence)
	if p != nil {
		p.woken = max(p.woken, sequence)
		s.queue(p)
	}
	return p
}

// reach lets the session begin a chat no higher than at sequence, unless its client has said where it is: what says otherwise is older. It returns nil if the map is full.
func (s *Session) reach(chat tidemark.ChatID, sequence tidemark.Sequence) *position {
	p := s.at(chat, sequence)
	if p == nil {
		return nil
	}
	//rule:R_MIN.lower-start
	if sequence < p.start && p.born != 0 {
		p.start = sequence
		if sequence < p.next {
			s.rewind(p, sequence)
		}
	}
	return p
}

// ackedIs takes in that the user's watermark is at least acked, read or given by whoever woke the chat. A chat starts no higher than what follows it.
func (s *Session) ackedIs(p *position, acked tidemark.Sequence) {
	p.acked = max(p.acked, acked)
	if p.sure {
		return
	}
	p.sure = true
	//rule:R_MIN.lower-start-to-watermark
	if first := tidemark.First(acked); first < p.start {
		p.start = first
		if first < p.next {
			s.rewind(p, first)
		}
	}
}

// rewind goes back to a sequence.
func (s *Session) rewind(p *position, to tidemark.Sequence) {
	p.woken = max(p.woken, p.next-1)
	p.next = to
	//rule:session_in_order.void-pages-under-way
	p.rewinds++
	s.node.Count.Rewinds.Add(1)
	s.queue(p)
}

// queue puts the position into the wake set if it has something to send.
func (s *Session) queue(p *position) {
	//rule:pending_or_delivered.queue-every-wake
	if !p.queued && p.unserved() {
		p.queued = true
		s.wakes = append(s.wakes, p)
	}
}

// served moves on after a page: the position leaves the wake set, or goes to its end so that the other chats get their turn.
func (s *Session) served(p *position) {
	if i := slices.Index(s.wakes, p); i >= 0 {
		s.wakes = slices.Delete(s.wakes, i, i+1)
	}
	p.queued = false
	//rule:pending_or_delivered.queue-until-served
	s.queue(p)
	if p.backlog && !p.toEnd && p.next > p.backlogTo {
		p.backlog = false
		s.backlog--
	}
	if len(s.wakes) == 0 && cap(s.wakes) > 64 {
		s.wakes = nil
	}
}

// countBacklog makes caught_up wait for everything that is in the wake set now.
func (s *Session) countBacklog() {
	for _, p := range s.wakes {
		if !p.backlog {
			p.backlog = true
			s.backlog++
		}
		p.backlogTo = max(p.backlogTo, p.woken)
	}
}

// room lets a session whose map was full try again: a position may be forgotten now.
func (s *Session) room() {
	if s.full {
		s.full = false
		notify(s.signal)
	}
}

// forget removes positions that hold nothing which could not be had again, and reports whether there is room now.
func (s *Session) forget() bool {
	for chat, p := range s.chats {
		if !p.queued && !p.row && !p.graced && !p.backlog && p.acked+1 >= p.next {
			delete(s.chats, chat)
		}
	}
	return len(s.chats) < s.node.Chats
}
