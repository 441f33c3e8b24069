package session

import "github.com/tidemark-im/tidemark"

// number gives an event its number and remembers it.
func (s *Session) number(kind tidemark.EventType, payload []byte, r run) tidemark.Event {
	s.lastID++
	r.event, r.count = s.lastID, 1
	s.log.add(r)
	return tidemark.Event{ID: s.lastID, Type: kind, Payload: payload}
}

// openEvent has a number of its own, which is the position after which the connection's other events follow. It is not sent again.
func (s *Session) openEvent() tidemark.Event {
	o := s.opening
	s.opening = nil
	s.lastID++
	o.Position = s.lastID
	return tidemark.Event{ID: s.lastID, Type: tidemark.EventOpen, Payload: o.AppendJSON(nil)}
}

func (s *Session) sendControls(buf []tidemark.Event) []tidemark.Event {
	for i := range s.controls {
		kept := s.controls[i]
		buf = append(buf, s.number(kept.kind, kept.payload, run{kind: runControl, control: &kept}))
	}
	s.controls = s.controls[:0]
	return buf
}

// sendStatuses sends boundaries that wait, until buf has so many events.
func (s *Session) sendStatuses(buf []tidemark.Event, until int) []tidemark.Event {
	left := s.statusOrder[:0]
	for _, key := range s.statusOrder {
		//rule:tick_monotone.wait-for-other-boundaries
		if len(buf) >= until || !s.statuses[key].heard {
			left = append(left, key)
			continue
		}
		b := s.statuses[key].Boundary
		delete(s.statuses, key)
		buf = s.sendStatus(buf, tidemark.StatusUpdate{ChatID: key.chat, UserID: key.user, Boundary: b}, false)
	}
	s.statusOrder = left
	return buf
}

// sendStatus sends one boundary. An aggregate never falls: not when a member joins, either. One that did not rise is sent only if it is asked for: the
// client may have lost it.
func (s *Session) sendStatus(buf []tidemark.Event, u tidemark.StatusUpdate, asked bool) []tidemark.Event {
	if u.UserID == "" {
		before, there := s.least[u.ChatID]
		//rule:tick_monotone.merge-last-sent
		u.Boundary = u.Boundary.Merge(before)
		//rule:tick_monotone.repeat-on-request
		if u.Boundary == before && !asked {
			return buf
		}
		if s.least == nil {
			s.least = make(map[tidemark.ChatID]tidemark.Boundary)
		}
		if there || len(s.least) < maxLeast {
			s.least[u.ChatID] = u.Boundary
		}
	}
	return append(buf, s.number(tidemark.EventStatus, u.AppendJSON(nil), run{kind: runStatus, chat: u.ChatID}))
}

func (s *Session) sendTyping(buf []tidemark.Event) []tidemark.Event {
	for _, t := range s.typing {
		buf = append(buf, tidemark.Event{Type: tidemark.EventTyping, Payload: t.AppendJSON(nil)})
	}
	s.typing = s.typing[:0]
	return buf
}

func size(events []tidemark.Event) int {
	n := 0
	for i := range events {
		n += len(events[i].Payload)
	}
	return n
}
