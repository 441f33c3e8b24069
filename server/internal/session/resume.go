package session

import (
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
)

// At says where a connection goes on.
type At struct {
	// After is the number of the last event that the client has.
	After uint64
	// Announce sends `open` first; long-poll has no use for it in a session that exists.
	Announce bool
	// Yield leaves the session to another connection that reads it: the client of this one has
	// closed its side, and may have come back by the other.
	Yield bool
}

// Attach makes a connection the reader of a new session. reset, if not empty, tells the client why
// it did not get the session that it named.
func (s *Session) Attach(reset tidemark.ResetReason) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset != "" {
		s.reset(tidemark.Reset{Reason: reset})
	}
	return s.attach(true, false)
}

// Resume makes a connection the reader and goes on after a position: what was sent after it is sent
// again, under new numbers. A position from which the session cannot go on is answered by a reset.
//
// Errors: those of an ended session (Gone, Replaced, Unavailable), and Replaced if at yields to
// another connection.
func (s *Session) Resume(at At) (*Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() {
		//rule:resume_lossless.tell-late-connection-of-replacement
		return nil, s.residence.readable()
	}
	//rule:resume_lossless.departed-client-takes-nothing
	if at.Yield && s.attachment.state == attached {
		return nil, tidemark.Errorf(tidemark.Replaced, "a newer connection owns the session")
	}
	s.host.Count.Resumes.Add(1)
	if !s.log.continues(at.After) {
		s.reset(tidemark.Reset{Reason: tidemark.ResetUnknownPosition})
		s.catchUp.state = awaitingCursors
		return s.attach(at.Announce, false), nil
	}
	for _, r := range s.log.rewind(at.After) {
		//rule:resume_lossless.send-runs-again
		s.sendAgain(r)
	}
	return s.attach(at.Announce, true), nil
}

// attach makes a connection the reader.
func (s *Session) attach(announce, resumed bool) *Reader {
	if s.attachment.attach() {
		s.host.Count.Replaced.Add(1)
	}
	s.attachment.flag.Set()
	s.host.Count.Connections.Add(1)
	if announce {
		s.log.opening = &tidemark.Open{
			Session: s.ID(), Resumed: resumed, Heartbeat: s.host.Heartbeat, Resume: s.host.Resume,
		}
		if s.statuses.snapshot && !resumed {
			s.statuses.listRecent = true
		}
		s.catchUp.restart()
	}
	if s.catchUp.state != caughtUp {
		s.expectReady()
	}
	return &Reader{
		session: s, generation: s.attachment.generation, flag: s.attachment.flag,
	}
}

// sendAgain puts a run that may not have arrived back to where it came from.
func (s *Session) sendAgain(r run) {
	switch r.kind {
	//rule:resume_lossless.send-gaps-again
	case runMessages, runGap:
		p := s.chat(r.chat, r.sequence)
		if p == nil {
			return
		}
		p.head = max(p.head, r.lastSequence())
		//rule:resume_lossless.rewind-for-messages
		if r.sequence < p.next {
			s.rewind(p, r.sequence)
		}
		s.chats.queue(p)
	case runStatus:
		//rule:resume_lossless.send-boundaries-again
		s.statuses.refreshChat(r.chat)
	case runCaughtUp:
		s.catchUp.restart()
	case runControl:
		//rule:resume_lossless.send-memberships-again
		s.control(*r.control)
	}
}

// Position is a device's cursor in a chat, and the chat's head.
type Position struct {
	Chat         tidemark.ChatID
	Cursor, Head tidemark.Sequence
}

// Positions is what a device that gives its cursors asks of its session. It is sent between nodes as
// JSON.
type Positions struct {
	Positions []Position `json:"Places"`
	// Refused are cursors that were not taken: the stream says so as well.
	Refused []tidemark.Reset
	// Statuses asks for the statuses of the named and the recent chats.
	Statuses bool
}

// Seek sets the session's positions to a device's cursors: what follows them is sent. In chats that
// are not named, what is not acknowledged is sent again, and they are reconciled. It reports false
// if the session is not served here.
func (s *Session) Seek(to Positions) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.serves() {
		return false
	}
	for _, r := range to.Refused {
		s.reset(r)
	}
	// A client cannot name a chat that it lost with its position.
	//rule:resume_lossless.send-unacknowledged-chats
	s.sendUnacknowledged()
	for _, position := range to.Positions {
		p := s.chat(position.Chat, tidemark.First(position.Cursor))
		if p == nil {
			break
		}
		p.seek(position.Cursor, position.Head)
		s.requeue(p)
		if to.Statuses {
			s.statuses.refreshChat(position.Chat)
		}
	}
	if to.Statuses {
		s.statuses.listRecent = true
	}
	//rule:resume_lossless.compare-after-sync
	s.reconcile.queue(allChats)
	s.catchUp.state = catching
	s.expectReady()
	s.attachment.flag.Set()
	return true
}

// sendUnacknowledged goes back to what the user has not acknowledged, in every chat.
func (s *Session) sendUnacknowledged() {
	for _, id := range slices.Sorted(maps.Keys(s.chats.byID)) {
		p := s.chats.get(id)
		if first := max(p.start, tidemark.First(p.acked)); first < p.next {
			s.rewind(p, first)
		}
	}
}
