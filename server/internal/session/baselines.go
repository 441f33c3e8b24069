package session

import (
	"maps"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
)

// sight says what a user sees of others' marks in a chat.
type sight uint8

const (
	seesAll sight = iota
	// seesNoReads is that of a user who hides what they read.
	seesNoReads
)

func sightOf(st tidemark.DeliveryState) sight {
	if st.Hides {
		return seesNoReads
	}
	return seesAll
}

// baselines is what was read of chats before their statuses are sent, since the session came to
// this node, or the user's settings or the chat's policy changed.
type baselines struct {
	// members has the members whose boundaries were read.
	members map[tidemark.ChatID]*chat.Roster
	// hides has whether the user hides what they read in a chat, also in a large one. Then they do
	// not see what others read.
	hides map[tidemark.ChatID]sight
	// told has what was sent of others in such chats. A client that sees no reads gets no event
	// when somebody reads.
	told map[statusKey]tidemark.Watermark
}

// learn records what was read. If too much is known already, it forgets that first.
func (s *statuses) learn(read baselines) {
	b := &s.baselines
	// Every chat of members is also in hides.
	//rule:shown_within_real.forget-all-or-nothing
	if len(b.hides) >= maxStatuses {
		s.forget()
	}
	if b.hides == nil {
		b.members = make(map[tidemark.ChatID]*chat.Roster)
		b.hides = make(map[tidemark.ChatID]sight)
	}
	maps.Copy(b.members, read.members)
	maps.Copy(b.hides, read.hides)
}

// forget drops all baselines. What is queued waits until its baseline was read again.
func (s *statuses) forget() {
	s.baselines = baselines{}
	for _, key := range s.order {
		if p := s.pending[key]; p.state == ready {
			p.state = needBaseline
			s.pending[key] = p
			s.unread = append(s.unread, key)
		}
	}
}

// mask returns what the user may see of a boundary. If they hide what they read in the chat, that
// is nothing of what others read. news reports that it is more than they were sent.
func (b *baselines) mask(
	u tidemark.StatusUpdate, of tidemark.UserID,
) (masked tidemark.Boundary, news bool) {
	if u.UserID == of || b.hides[u.ChatID] == seesAll {
		return u.Boundary, true
	}
	key := statusKey{u.ChatID, u.UserID}
	//rule:shown_within_real.no-event-of-reads-to-who-hides
	news = u.Acked > b.told[key]
	if b.told == nil || len(b.told) >= maxStatuses {
		b.told = make(map[statusKey]tidemark.Watermark)
	}
	b.told[key] = max(b.told[key], u.Acked)
	//rule:shown_within_real.mask-of-streams
	return u.Boundary.Unread(), news
}

// leave drops everything about a chat.
func (b *baselines) leave(chat tidemark.ChatID) {
	delete(b.members, chat)
	delete(b.hides, chat)
	for key := range b.told {
		if key.chat == chat {
			delete(b.told, key)
		}
	}
}

// receiptsChanged makes the session read again whether the user hides what they read. Clients that
// asked for statuses get those of the recent chats.
func (s *statuses) receiptsChanged() {
	// What is being read now may be from before the change.
	//rule:shown_within_real.void-baselines-under-way
	s.left++
	s.forget()
	if s.snapshot {
		s.members = 0
		s.list(forStatuses, atOnce)
	}
}

// policyChanged makes the session read again whether what is read in a chat is hidden. Clients that
// asked for statuses get those of the chat.
func (s *statuses) policyChanged(chat tidemark.ChatID) {
	// What is being read now may be from before the change.
	//rule:shown_within_real.void-baselines-of-a-chat
	s.left++
	s.baselines.leave(chat)
	for _, key := range s.order {
		if p := s.pending[key]; key.chat == chat && p.state == ready {
			p.state = needBaseline
			s.pending[key] = p
			s.unread = append(s.unread, key)
		}
	}
	if s.snapshot {
		s.refreshChat(chat)
	}
}

// PolicyChanged makes the session read again whether what is read in a chat is hidden, and with it
// the statuses of the chat.
func (s *Session) PolicyChanged(chat tidemark.ChatID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.residence.final() {
		s.statuses.policyChanged(chat)
		s.attachment.flag.Set()
	}
}
