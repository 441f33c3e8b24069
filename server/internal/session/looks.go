package session

import (
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
)

// maxTyping bounds the queued typing notices.
const maxTyping = 32

// looks has the chats that the client shows now, and the ephemeral events that wait for it.
//
//	state     look      new stream   move
//	silent    looking   -            -
//	looking   looking   looking      looking
//
// A silent client never said what it shows, as older clients do not. It gets typing notices of all
// its chats. A client that is looking gets typing and presence of the chats that it named, while
// they last. A new stream and a move end what it named, but not the state: the client says it
// again.
type looks struct {
	state looksState
	// until has the chats that the client named, and the end of each look.
	until  map[tidemark.ChatID]time.Time
	typing []tidemark.Typing
	// presence has at most one queued event for each chat.
	presence []queuedPresence
}

type looksState uint8

const (
	silent looksState = iota
	looking
)

// queuedPresence is an event that waits. payload is its JSON, which sessions share, or nil.
type queuedPresence struct {
	*tidemark.Presence
	payload []byte
}

// look records what the client shows until a time. It returns the chats that it did not show
// before, and those that it does not show any more.
func (l *looks) look(
	chats []tidemark.ChatID, now, until time.Time,
) (begun, ended []tidemark.ChatID) {
	l.state = looking
	before := looks{until: l.until}
	l.until = make(map[tidemark.ChatID]time.Time, len(chats))
	for _, chat := range chats {
		l.until[chat] = until
		if !before.at(chat, now) {
			begun = append(begun, chat)
		}
	}
	for chat := range before.until {
		if _, there := l.until[chat]; !there {
			ended = append(ended, chat)
			l.drop(chat)
		}
	}
	return begun, ended
}

// at reports whether the client shows a chat.
func (l *looks) at(chat tidemark.ChatID, now time.Time) bool { return now.Before(l.until[chat]) }

// restart ends what the client named.
func (l *looks) restart() { l.until, l.presence = nil, nil }

// leave ends the look at a chat that the user left, and drops its events.
func (l *looks) leave(chat tidemark.ChatID) {
	delete(l.until, chat)
	l.drop(chat)
}

// drop drops the queued events of a chat.
func (l *looks) drop(chat tidemark.ChatID) {
	//rule:nothing_outside_membership.drop-typing
	l.typing = slices.DeleteFunc(l.typing, func(t tidemark.Typing) bool { return t.ChatID == chat })
	//rule:nothing_outside_membership.drop-presence
	l.presence = slices.DeleteFunc(l.presence,
		func(q queuedPresence) bool { return q.ChatID == chat })
}

// push queues presence. One event of a chat waits at most, with the latest of each member.
func (l *looks) push(p *tidemark.Presence, payload []byte) {
	for i := range l.presence {
		if q := &l.presence[i]; q.ChatID == p.ChatID {
			//rule:bounded_use.one-presence-of-a-chat
			*q = queuedPresence{Presence: merged(q.Presence, p)}
			return
		}
	}
	l.presence = append(l.presence, queuedPresence{p, payload})
}

// merged returns what two events say together. Neither is changed, because sessions share them.
func merged(older, newer *tidemark.Presence) *tidemark.Presence {
	if older.Members == nil || newer.Members == nil {
		return newer
	}
	m := *newer
	m.Members = slices.Clone(newer.Members)
	for _, member := range older.Members {
		if !slices.ContainsFunc(newer.Members,
			func(n tidemark.MemberPresence) bool { return n.UserID == member.UserID }) {
			m.Members = append(m.Members, member)
		}
	}
	return &m
}

// send appends the queued events to buf. They have no number.
func (l *looks) send(buf []tidemark.Event) []tidemark.Event {
	for _, t := range l.typing {
		buf = append(buf, tidemark.Event{Type: tidemark.EventTyping, Payload: t.AppendJSON(nil)})
	}
	for _, q := range l.presence {
		if q.payload == nil {
			q.payload = q.AppendJSON(nil)
		}
		buf = append(buf, tidemark.Event{Type: tidemark.EventPresence, Payload: q.payload})
	}
	l.typing, l.presence = l.typing[:0], nil
	return buf
}

// Typing queues a typing notice. It drops the notice if no connection reads, if the client shows
// other chats, or if maxTyping notices are queued already.
func (s *Session) Typing(t tidemark.Typing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch l := &s.looks; {
	case s.attachment.state != attached || s.residence.final():
	case l.state == looking && !l.at(t.ChatID, time.Now()):
	case slices.Contains(l.typing, t):
	case len(l.typing) >= maxTyping:
		s.host.Count.TypingDropped.Add(1)
	default:
		l.typing = append(l.typing, t)
		s.attachment.flag.Set()
	}
}

// Look records what the client shows for a time, in place of what it named before. It returns the
// chats that it did not show before, and those that it does not show any more. ok is false if the
// session is not served here.
func (s *Session) Look(
	chats []tidemark.ChatID, d time.Duration,
) (begun, ended []tidemark.ChatID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.serves() {
		return nil, nil, false
	}
	now := time.Now()
	begun, ended = s.looks.look(chats, now, now.Add(d))
	return begun, ended, true
}

// LooksAt reports whether the client shows a chat now.
func (s *Session) LooksAt(chat tidemark.ChatID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.residence.final() && s.looks.at(chat, time.Now())
}

// Present queues presence, if the client shows the chat. It reports whether it did. payload is the
// JSON of p. Both are shared and must not be changed.
func (s *Session) Present(p *tidemark.Presence, payload []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.residence.final() || !s.looks.at(p.ChatID, time.Now()) {
		return false
	}
	s.looks.push(p, payload)
	s.attachment.flag.Set()
	return true
}
