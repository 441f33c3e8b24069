package session

import (
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// At says where a connection continues.
type At struct {
	// After is the number of the last event that the client has.
	After uint64
	// Announce sends `session` first. Long-poll sends it only for a new session.
	Announce bool
	// Yield refuses the connection if another one reads the session. The client of this connection
	// has closed its side and may have come back through the other.
	Yield bool
}

// Attach makes a connection the reader of a new session. If reset is set, a reset event tells the
// client why it did not get the session that it named.
func (s *Session) Attach(reset tidemark.ResetReason) *Reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset != "" {
		s.reset(tidemark.Reset{Reason: reset})
	}
	return s.attach(true, false)
}

// Resume makes a connection the reader. It sends again what followed a position, with new numbers.
// If the session cannot resume from the position, the client gets a reset instead.
//
// Errors: Gone, Replaced or Unavailable if the session has ended here; Replaced if at yields to
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
		return nil, tidemark.Errorf(tidemark.Replaced,
			"a newer connection owns the session; do not reconnect automatically")
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
	flag := signal.New()
	if s.attachment.attach(flag) {
		s.host.Count.Replaced.Add(1)
	}
	s.dropConfirmations()
	flag.Set()
	s.host.Count.Connections.Add(1)
	if announce {
		s.looks.restart()
		s.log.opening = &tidemark.SessionStart{
			Session: s.ID(), User: s.User(), Resumed: resumed,
			Heartbeat: s.host.Heartbeat, Resume: s.host.Resume,
			Incarnation: s.host.Incarnation, Attachments: s.host.Start.Attachments,
		}
		if s.statuses.snapshot && !resumed {
			s.statuses.list(forStatuses, atOnce)
		}
		s.catchUp.restart()
	}
	if s.catchUp.state != caughtUp {
		s.expectReady()
	}
	return &Reader{
		session: s, generation: s.attachment.generation, flag: flag,
	}
}

// sendAgain makes the session send a run again, since the client may not have received it.
func (s *Session) sendAgain(r run) {
	switch r.kind {
	//rule:resume_lossless.send-gaps-again
	case runMessages, runGap:
		p := s.chat(r.chat, r.sequence)
		if p == nil {
			return
		}
		p.know(r.lastSequence())
		//rule:resume_lossless.rewind-for-messages
		if r.sequence < p.next {
			s.rewind(p, r.sequence)
		}
		s.chats.queue(p)
	case runStatus:
		//rule:resume_lossless.send-boundaries-again
		s.statuses.refreshChat(r.chat)
	case runOwn:
		//rule:resume_lossless.send-own-states-again
		s.statuses.refreshOwn(r.chat)
	case runCaughtUp:
		s.catchUp.restart()
	case runControl:
		//rule:resume_lossless.send-memberships-again
		s.control(*r.control)
	}
}

// Position is a device's cursor in a chat, with the chat's head.
type Position struct {
	Chat         tidemark.ChatID
	Cursor, Head tidemark.Sequence
	// Former says that the user is no member now. Head is 0, and the cursor acknowledges nothing.
	Former bool
}

// Positions is what a device sends with its cursors. It travels between nodes as JSON.
type Positions struct {
	Positions []Position
	// Refused has the cursors that were not accepted. The client gets a reset for each.
	Refused []tidemark.Reset
	// Statuses asks for the statuses of the named chats and of the recent ones.
	Statuses bool
}

// Seek moves the session to a device's cursors, and sends what follows them. In chats that are not
// named it sends again what is not acknowledged. It then reconciles. A call with the id of the last
// one changes nothing. It returns false if the session is not served here.
func (s *Session) Seek(id string, to Positions) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.serves() {
		return false
	}
	// A Seek from another node is repeated until its answer arrives.
	//rule:resume_lossless.seek-once
	if s.sought == id {
		return true
	}
	s.sought = id
	for _, r := range to.Refused {
		s.reset(r)
	}
	// Chats that the client lost with its cursors are not named.
	//rule:resume_lossless.send-unacknowledged-chats
	s.sendUnacknowledged()
	for _, position := range to.Positions {
		p := s.chat(position.Chat, tidemark.First(position.Cursor))
		if p == nil {
			break
		}
		if position.Former {
			p.keep(position.Cursor)
			s.requeue(p)
			continue
		}
		p.seek(position.Cursor, position.Head)
		s.requeue(p)
		if to.Statuses {
			s.statuses.refreshChat(position.Chat)
		}
	}
	if to.Statuses {
		//rule:own_state_reaches_devices.after-sync
		s.statuses.list(forStatuses|forOwn, atOnce)
	}
	//rule:resume_lossless.compare-after-sync
	s.reconcile.queue(allChats)
	s.catchUp.state = catching
	s.expectReady()
	s.attachment.flag.Set()
	return true
}

// sendUnacknowledged rewinds every chat to its first unacknowledged message.
func (s *Session) sendUnacknowledged() {
	for _, id := range slices.Sorted(maps.Keys(s.chats.byID)) {
		p := s.chats.get(id)
		if first := max(p.start, tidemark.First(p.acked)); first < p.next {
			s.rewind(p, first)
		}
	}
}
