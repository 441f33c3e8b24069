package checker

import "slices"

// Verify compares what clients did, were told and have with what is stored. Nothing may be under way meanwhile.
func (l *Ledger) Verify(t Truth, logs []*Log) {
	at := l.verifySequences(t)
	l.verifySends(at)
	l.verifyBoundaries(t)
	for _, d := range logs {
		d.verify(t)
	}
}

// verifySequences: the messages of a chat are exactly 1..head (sequence_gapless), and each send is stored once (send_idempotent). It returns where each is.
func (l *Ledger) verifySequences(t Truth) map[key]int64 {
	at := map[key]int64{}
	for name, chat := range t.Chats {
		for i, m := range chat.Messages {
			if m.Sequence != int64(i)+1 {
				l.Complain(Gap, "%s: %d is stored where %d is due", name, m.Sequence, i+1)
				break
			}
			k := key{name, m.Sender, m.ID}
			if first, there := at[k]; there {
				l.Complain(Twice, "%s of %s is stored in %s at %d and at %d",
					m.ID, m.Sender, name, first, m.Sequence)
			}
			at[k] = m.Sequence
		}
		if chat.Head != int64(len(chat.Messages)) {
			l.Complain(Gap, "%s has the head %d and %d messages",
				name, chat.Head, len(chat.Messages))
		}
	}
	return at
}

// verifySends: what was confirmed is stored where it was confirmed (confirmed_is_durable), and what is stored was sent.
func (l *Ledger) verifySends(at map[key]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, s := range l.sends {
		if s.Sequence != 0 && at[k] != s.Sequence {
			l.complainLocked(Lost,
				"%s of %s in %s was confirmed as %d, and is stored as %d (0: not at all)", k.id,
				k.user, k.chat, s.Sequence, at[k])
		}
	}
	for k, sequence := range at {
		if l.sends[k] == nil {
			l.complainLocked(Foreign, "%s of %s is stored in %s at %d, and nobody has sent it",
				k.id, k.user, k.chat, sequence)
		}
	}
}

// Unconfirmed counts the sends that are stored and were never confirmed.
func (l *Ledger) Unconfirmed(t Truth) (stored int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, chat := range t.Chats {
		for _, m := range chat.Messages {
			if s := l.sends[key{name, m.Sender, m.ID}]; s != nil && s.Confirmed.IsZero() {
				stored++
			}
		}
	}
	return stored
}

// verifyBoundaries: what anybody was told of a user is stored, is not beyond the head, and not beyond what he said or wrote.
func (l *Ledger) verifyBoundaries(t Truth) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, state := range t.States {
		if chat := t.Chats[m.Chat]; chat == nil || state.Acked > chat.Head || state.Read > chat.Head {
			l.complainLocked(Beyond, "%s has %v of %s, beyond the head", m.User, state, m.Chat)
		}
		k := key{chat: m.Chat, user: m.User}
		l.explainLocked(t, k, claim{state, l.said[k]}, "is stored")
	}
	for k, told := range l.told {
		state := t.States[Member{k.chat, k.user}]
		if told.Acked > max(state.Acked, state.Read) || told.Read > state.Read {
			l.complainLocked(Back, "somebody was told that %s has %v of %s, and %v is stored",
				k.user, told, k.chat, state)
		}
	}
	for k, claims := range l.unsaid {
		for _, c := range claims {
			l.explainLocked(t, k, c, "was told")
		}
	}
}

// explainLocked: between what the devices of a user had said and his boundary there is nothing but messages of his own, and messages that he may not see. To reply is to read what was delivered.
func (l *Ledger) explainLocked(t Truth, k key, c claim, what string) {
	chat := t.Chats[k.chat]
	if chat == nil {
		l.complainLocked(Foreign, "a boundary of %s %s in %s, which is no chat",
			k.user, what, k.chat)
		return
	}
	explained := func(to int64) bool {
		for n := c.said.most() + 1; n <= min(to, int64(len(chat.Messages))); n++ {
			if chat.Messages[n-1].Sender != k.user && chat.Members[k.user].sees(n) {
				return false
			}
		}
		return true
	}
	replied := slices.ContainsFunc(chat.Messages,
		func(m Message) bool { return m.Sequence > c.told.Read && m.Sender == k.user })
	if !explained(c.told.Acked) || !explained(c.told.Read) ||
		c.told.Read > c.said.Read && !replied {
		l.complainLocked(Beyond, "the boundary %v of %s in %s %s, and his devices had said %v",
			c.told, k.user, k.chat, what, c.said)
	}
}

// verify: a device has exactly the messages that are stored, everything that its user may see (resume_lossless), and nothing else (nothing_outside_membership).
func (d *Log) verify(t Truth) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, c := range d.chats {
		chat := t.Chats[name]
		if chat == nil {
			if c.stored() > 0 {
				d.ledger.Complain(Foreign, "%s has messages of %s, which is no chat", d.Name, name)
			}
			continue
		}
		member := chat.Members[d.User]
		for i, digest := range c.digests {
			sequence := int64(i) + 1
			switch {
			case sequence > int64(len(chat.Messages)):
				d.ledger.Complain(Lost, "%s has %d of %s, whose head is %d",
					d.Name, sequence, name, chat.Head)
			case digest == 0 && member.sees(sequence):
				d.ledger.Complain(Gap, "%s was told that it may not see %d of %s, and it may",
					d.Name, sequence, name)
			case digest == 0:
			case !member.sees(sequence):
				d.ledger.Complain(Foreign, "%s has %d of %s, and %s was no member then: %v",
					d.Name, sequence, name, d.User, member.Ranges)
			case digest != digestOf(chat.Messages[i].Sender, chat.Messages[i].ID):
				d.ledger.Complain(Foreign, "%s has another message %d of %s than is stored",
					d.Name, sequence, name)
			}
		}
	}
	for name, chat := range t.Chats {
		if member := chat.Members[d.User]; member.Current && d.chatLocked(name).stored() < chat.Head {
			d.ledger.Complain(Unwhole, "%s has %d of %d of %s",
				d.Name, d.chatLocked(name).stored(), chat.Head, name)
		}
	}
}

// Behind returns the members who have not acknowledged the head of a chat, and of those the ones that no row names: the next open of such a user has to compare.
func (t Truth) Behind() (behind, unmarked []Member) {
	for name, chat := range t.Chats {
		for user, member := range chat.Members {
			m := Member{name, user}
			acked := t.States[m].Acked
			if !member.Current || acked >= chat.Head || own(chat, user, acked) {
				continue
			}
			behind = append(behind, m)
			if first, there := t.Pending[m]; !there || first > acked+1 {
				unmarked = append(unmarked, m)
			}
		}
	}
	return behind, unmarked
}

// own reports whether everything after a sequence is the user's own, or not for him.
func own(chat *Chat, user string, after int64) bool {
	for _, m := range chat.Messages[after:] {
		if m.Sender != user && chat.Members[user].sees(m.Sequence) {
			return false
		}
	}
	return true
}
