package session

import (
	"slices"

	"github.com/tidemark-im/tidemark"
)

// maxConfirmations is how many confirmations of a session wait for its reader.
const maxConfirmations = 64

// confirmations are for a client that sends messages over its connection, and wants their
// confirmations in place of their events (delivery.md §4, Own messages).
//
//	message   Sending   Notify         Sent                         step
//	-         sending   -              -                            -
//	sending   -         it is held     queued, or refused           -
//	queued    -         -              -                            sent, and no longer held
//	refused   -         -              -                            -
//
// A message that is held is not sent as an event yet (progress.held). It is held until its
// confirmation is sent or refused, or until a later message of somebody else comes. So a message
// may be sent as an event all the same. Then its confirmation has no ID.
type confirmations struct {
	// sending has the messages that the client is sending.
	sending []sendKey
	// queued has the confirmations for the newest reader.
	queued []queuedConfirmation
}

// sendKey names a message that is being sent.
type sendKey struct {
	chat            tidemark.ChatID
	clientMessageID string
}

func keyOf(d *tidemark.Draft) sendKey { return sendKey{d.ChatID, d.ClientMessageID} }

type queuedConfirmation struct {
	chat tidemark.ChatID
	Confirmation
}

// Confirmation confirms that a message is stored. The zero value confirms nothing.
type Confirmation struct {
	Sequence tidemark.Sequence
	// Event is what the client gets. It has no ID.
	Event tidemark.Event
}

// awaits reports whether a message of the session's user is being sent. Others may give theirs the
// same id.
func (c *confirmations) awaits(user tidemark.UserID, m *tidemark.Message) bool {
	//rule:own_confirmation.hold-own-messages-only
	return m != nil && m.SenderID == user &&
		slices.Contains(c.sending, sendKey{m.ChatID, m.ClientMessageID})
}

// Sending records that the reader's client sends messages, and wants their confirmations in place
// of their events. The caller calls Sent with the same drafts afterwards.
func (r *Reader) Sending(drafts []tidemark.Draft) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.attachment.confirmations
	for i := range drafts {
		c.sending = append(c.sending, keyOf(&drafts[i]))
	}
}

// Sent takes the confirmations of drafts. taken says which of them Next will return. The caller
// answers the others itself: nothing was confirmed, too many confirmations wait, or another
// connection has the session.
func (r *Reader) Sent(drafts []tidemark.Draft, all []Confirmation) (taken []bool) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.attachment.confirmations
	taken = make([]bool, len(drafts))
	for i := range drafts {
		d := &drafts[i]
		if at := slices.Index(c.sending, keyOf(d)); at >= 0 {
			c.sending = slices.Delete(c.sending, at, at+1)
		}
		//rule:own_confirmation.to-current-connection-only
		taken[i] = all[i].Sequence != 0 && len(c.queued) < maxConfirmations && s.ownedBy(r) == nil
		if taken[i] {
			c.queued = append(c.queued, queuedConfirmation{d.ChatID, all[i]})
		} else {
			s.releaseAll(d.ChatID)
		}
	}
	s.attachment.flag.Set()
	return taken
}

// releaseAll makes the session send the messages of a chat that it held.
func (s *Session) releaseAll(chat tidemark.ChatID) {
	if p := s.chats.get(chat); p != nil {
		p.release(p.head)
		s.chats.queue(p)
	}
}

// dropConfirmations forgets the confirmations that an older reader did not take. The session sends
// the messages as events.
func (s *Session) dropConfirmations() {
	for _, c := range s.attachment.confirmations.queued {
		//rule:own_confirmation.event-after-lost-connection
		s.releaseAll(c.chat)
	}
	s.attachment.confirmations.queued = nil
}

// sendConfirmations appends the queued confirmations. If the session has sent everything before a
// message, and not the message itself, the confirmation gets an ID, and is the message's event.
func (s *Session) sendConfirmations(buf []tidemark.Event) []tidemark.Event {
	all := &s.attachment.confirmations
	for _, c := range all.queued {
		p := s.chats.get(c.chat)
		if p == nil {
			buf = append(buf, c.Event)
			continue
		}
		//rule:own_confirmation.in-order-and-once
		if p.ackedRead && p.next == c.Sequence && c.Sequence <= p.head {
			c.Event.ID = s.log.number(c.Event.Type, nil,
				run{kind: runMessages, chat: c.chat, sequence: c.Sequence}).ID
			p.served(c.Sequence, false, false)
		}
		buf = append(buf, c.Event)
		p.release(c.Sequence)
		s.requeue(p)
	}
	all.queued = all.queued[:0]
	return buf
}
