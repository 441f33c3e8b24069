package checker

import "slices"

// Verify compares what clients sent, received and stored with the database. No request may be
// running meanwhile.
func (l *Ledger) Verify(t Truth, logs []*Log) {
	at := l.verifySequences(t)
	l.verifySends(at)
	l.verifyBoundaries(t)
	for _, d := range logs {
		d.verify(t)
	}
}

// verifySequences checks that the messages of a chat are exactly 1..head (sequence_gapless), and
// that each send is stored once (send_idempotent). It returns where each send is stored.
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

// verifySends checks that each confirmed send is stored at its sequence (confirmed_is_durable), and
// that each stored message was sent.
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

// verifyBoundaries checks each boundary that the server reported of a user. It is stored, not
// beyond the head, and not beyond what the user acknowledged or wrote.
func (l *Ledger) verifyBoundaries(t Truth) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m, state := range t.States {
		chat := t.Chats[m.Chat]
		if chat == nil || state.Acked > chat.Head || state.Read > chat.Head {
			l.complainLocked(Beyond, "%s has %v of %s, beyond the head", m.User, state, m.Chat)
		}
		k := key{chat: m.Chat, user: m.User}
		l.explainLocked(t, k, claim{state, l.acknowledged[k]}, "is stored")
	}
	for k, reported := range l.reported {
		state := t.States[Member{k.chat, k.user}]
		if reported.Acked > max(state.Acked, state.Read) || reported.Read > state.Read {
			l.complainLocked(Back, "the server reported that %s has %v of %s, and %v is stored",
				k.user, reported, k.chat, state)
		}
	}
	for k, claims := range l.unexplained {
		for _, c := range claims {
			l.explainLocked(t, k, c, "was reported")
		}
	}
}

// explainLocked checks a boundary beyond what the user's devices had acknowledged. Between the two
// there must be only messages of that user, and messages that they may not see. A reply implies
// that its sender has read what was delivered, and the reply.
func (l *Ledger) explainLocked(t Truth, k key, c claim, what string) {
	chat := t.Chats[k.chat]
	if chat == nil {
		l.complainLocked(Foreign, "a boundary of %s %s in %s, which is no chat",
			k.user, what, k.chat)
		return
	}
	explained := func(to int64) bool {
		for n := c.acknowledged.most() + 1; n <= min(to, int64(len(chat.Messages))); n++ {
			if chat.Messages[n-1].Sender != k.user && chat.Members[k.user].sees(n) {
				return false
			}
		}
		return true
	}
	replied := slices.ContainsFunc(chat.Messages,
		func(m Message) bool { return m.Sequence >= c.reported.Read && m.Sender == k.user })
	if !explained(c.reported.Acked) || !explained(c.reported.Read) ||
		c.reported.Read > c.acknowledged.Read && !replied {
		l.complainLocked(Beyond, "the boundary %v of %s in %s %s, and the devices had "+
			"acknowledged %v",
			c.reported, k.user, k.chat, what, c.acknowledged)
	}
}

// verify checks that a device has exactly the stored messages that its user may see
// (resume_lossless), and nothing else (nothing_outside_membership).
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
			case digest == 0 && d.Others && chat.Messages[i].Sender == d.User:
			case digest == 0 && member.sees(sequence):
				d.ledger.Complain(Gap, "%s received that it may not see %d of %s, and it may",
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
		member, stored := chat.Members[d.User], d.chatLocked(name).stored()
		if member.Current && stored < chat.Head {
			d.ledger.Complain(Incomplete, "%s has %d of %d of %s",
				d.Name, d.chatLocked(name).stored(), chat.Head, name)
		}
	}
}

// Behind returns the members who have not acknowledged the head of a chat. unmarked are those of
// them without a pending row: their next open has to compare.
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

// own reports whether every message after a sequence is from the user, or hidden from the user.
func own(chat *Chat, user string, after int64) bool {
	for _, m := range chat.Messages[after:] {
		if m.Sender != user && chat.Members[user].sees(m.Sequence) {
			return false
		}
	}
	return true
}
