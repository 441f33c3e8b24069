package session

import (
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
)

// Attach makes a connection the owner of a new session. unknown says that the client named another session, which is not there; poll that it polls.
func (s *Session) Attach(unknown, poll bool) *Connection {
	s.mu.Lock()
	defer s.mu.Unlock()
	if unknown {
		s.reset(tidemark.Reset{Reason: tidemark.ResetUnknownSession})
	}
	return s.attach(false, false)
}

// Resume makes a connection the owner and goes on after a position: whatever was sent after it is sent again, under new numbers. A position that the session
// cannot go on from is answered by reset. poll says that a resumed session begins without `open`; yields, that another connection keeps it. Replaced: one does, or the
// session has gone to one; Gone: it has ended here meanwhile.
func (s *Session) Resume(after uint64, poll, yields bool) (*Connection, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		//rule:resume_lossless.tell-late-connection-of-replacement
		return nil, s.endedBy()
	}
	//rule:resume_lossless.departed-client-takes-nothing
	if yields && s.attached {
		return nil, tidemark.Errorf(tidemark.Replaced, "a newer connection owns the session")
	}
	s.node.Count.Resumes.Add(1)
	//rule:resume_lossless.check-resume-position
	if after < s.log.base || after > s.lastID {
		s.reset(tidemark.Reset{Reason: tidemark.ResetUnknownPosition})
		s.lost, s.caughtUp = true, false
		return s.attach(false, poll), nil
	}
	for _, r := range s.log.rewind(after) {
		//rule:resume_lossless.send-runs-again
		s.sendAgain(r)
	}
	return s.attach(true, poll), nil
}

// sendUnacknowledged goes back to what the user has not acknowledged, in every chat.
func (s *Session) sendUnacknowledged() {
	for _, chat := range slices.Sorted(maps.Keys(s.chats)) {
		p := s.chats[chat]
		if first := max(p.start, tidemark.First(p.acked)); first < p.next {
			s.rewind(p, first)
		}
	}
}

// attach makes a connection the owner of the session.
func (s *Session) attach(resumed, poll bool) *Connection {
	s.generation++
	if s.attached {
		s.node.Count.Replaced.Add(1)
		notify(s.signal) // the older connection finds that it was replaced
	}
	s.attached = true
	s.node.Count.Connections.Add(1)
	c := &Connection{session: s, generation: s.generation, signal: make(chan struct{}, 1)}
	s.signal = c.signal
	notify(s.signal)
	if !poll {
		s.opening = &tidemark.Open{Session: s.ID, Resumed: resumed, Heartbeat: s.node.Heartbeat, Resume: s.node.Resume}
		s.recent = s.recent || s.wantStatuses && !resumed
		s.caughtUp = false
	}
	if !s.caughtUp {
		s.countBacklog()
	}
	return c
}

// sendAgain puts a run that may not have arrived back to where it came from.
func (s *Session) sendAgain(r run) {
	switch r.kind {
	//rule:resume_lossless.send-gaps-again
	case runMessages, runGap:
		last := r.to
		if r.kind == runMessages {
			last = r.sequence + tidemark.Sequence(r.count) - 1
		}
		p := s.at(r.chat, r.sequence)
		if p == nil {
			return
		}
		p.woken = max(p.woken, last)
		//rule:resume_lossless.rewind-for-messages
		if r.sequence < p.next {
			s.rewind(p, r.sequence)
		}
		s.queue(p)
	case runStatus:
		//rule:resume_lossless.send-boundaries-again
		s.snapshot(r.chat)
	case runCaughtUp:
		s.caughtUp = false
	case runControl:
		//rule:resume_lossless.send-memberships-again
		s.control(*r.control)
	}
}

// Place is a device's cursor in a chat, and the chat's head.
type Place struct {
	Chat         tidemark.ChatID
	Cursor, Head tidemark.Sequence
}

// GoingTo is what a device that gives its cursors asks of its session.
type GoingTo struct {
	Places []Place
	// Refused are cursors that were not taken: the stream says so as well.
	Refused []tidemark.Reset
	// Statuses asks for a snapshot.
	Statuses bool
}

// GoTo sets positions to a device's cursors; what follows them is sent. In chats that are not named, what is not acknowledged is sent (again), and they are
// compared. It reports whether the session goes on.
func (s *Session) GoTo(to GoingTo) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.arriving != nil {
		return false
	}
	for _, r := range to.Refused {
		s.reset(r)
	}
	// A client cannot name a chat that it lost with its position.
	//rule:resume_lossless.send-unacknowledged-chats
	s.sendUnacknowledged()
	for _, place := range to.Places {
		p := s.at(place.Chat, tidemark.First(place.Cursor))
		if p == nil {
			break
		}
		p.sure, p.born = true, 0
		p.acked = max(p.acked, place.Cursor)
		p.woken = max(p.woken, place.Head, p.next-1)
		//rule:sync_position_from_watermark.start-behind-cursor
		p.start, p.next = tidemark.First(place.Cursor), tidemark.First(place.Cursor)
		p.rewinds++
		s.served(p)
		if to.Statuses {
			s.snapshot(place.Chat)
		}
	}
	s.recent = s.recent || to.Statuses
	//rule:resume_lossless.compare-after-sync
	s.look.again = true
	s.caughtUp, s.lost = false, false
	s.countBacklog()
	notify(s.signal)
	return true
}

// Confirm takes in that the client has stored a message that it got on this session's stream: it has everything that was sent before, and the session forgets how
// to send that again.
func (c *Connection) Confirm(chat tidemark.ChatID, acked tidemark.Sequence) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	//rule:resume_lossless.confirm-by-current-connection
	if c.generation == s.generation {
		s.log.confirmMessage(chat, acked)
	}
}

// Detach says that the connection is gone. The session waits for its resume window for another one. It does nothing if the
// connection was replaced, and nothing when called again.
func (c *Connection) Detach() {
	c.detach.Do(func() {
		s := c.session
		s.node.Count.Connections.Add(-1)
		s.mu.Lock()
		defer s.mu.Unlock()
		//rule:resume_lossless.detach-by-current-connection
		if c.generation == s.generation && !s.closed {
			s.attached = false
			//rule:pending_or_delivered.end-after-detach-time
			s.node.Expiry.push(Deadline{session: s, generation: s.generation})
		}
	})
}

// Ending says that the session is to be ended with this connection, which has detached, unless another one came.
func (c *Connection) Ending() Ending { return Ending{Session: c.session, generation: c.generation} }
