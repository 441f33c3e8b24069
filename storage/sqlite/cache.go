package sqlite

import (
	"cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

const (
	// maxChats is the number of chats that the writer caches. Above it, the cache is emptied.
	maxChats = 20_000
	// maxSenders is the number of members of a chat that the writer caches.
	maxSenders = 1_000
)

// chat is the writer's cached row of the table chats, as the running transaction sees it.
type chat struct {
	key      int64
	id       tidemark.ChatID
	state    tidemark.ChatState
	kind     tidemark.ChatType
	history  tidemark.HistoryMode
	head     tidemark.Sequence
	floor    tidemark.Sequence
	activity int64
	members  int
	version  uint64
	large    bool
	// named is the column version, and outbox has those that begin with outbox_.
	named    uint64
	outbox   outbox
	receipts tidemark.ReceiptsPolicy
	// uncounted and lastUncounted are the columns of these names.
	uncounted     int64
	lastUncounted tidemark.Sequence
	// seats has the numbers of the members with the seats 1, 2 and so on.
	seats []*tally
	// moved reports that head, activity, uncounted, seats, and sent are not in the database yet.
	moved bool
	// rows is storage.Appended.RowsVersion.
	rows uint64
	// senders holds some of the current members. Other users may be members, too. sent has those
	// whose numbers are not in the database yet.
	senders map[tidemark.UserID]*sender
	sent    []*sender
}

// sender has the numbers of a member. If they have a seat, the numbers are those of the seat.
type sender struct {
	user tidemark.UserID
	*tally
	seated bool
	// moved reports that the numbers are not in the member's row yet. It is false with a seat.
	moved bool
}

// chat returns a chat, or nil if there is none.
func (w *writer) chat(id tidemark.ChatID) (*chat, error) {
	if c := w.chats[id]; c != nil {
		return c, nil
	}
	s, err := w.c.prepared(`SELECT key, type, history, head, activity_at, member_count,
			members_version, large, uncounted, last_uncounted, seats, version,
			outbox_shard, outbox_sequence, outbox_members, outbox_version, outbox_split, floor,
			state, read_receipts
		FROM chats WHERE id = ?`)
	if err != nil {
		return nil, err
	}
	s.string(1, string(id))
	c := &chat{id: id}
	var bad error
	found, err := s.one(func(row *stmt) {
		c.key = row.integerAt(0)
		c.kind = tidemark.ChatType(row.stringAt(1))
		c.history = tidemark.HistoryMode(row.stringAt(2))
		c.head, c.activity = tidemark.Sequence(row.integerAt(3)), row.integerAt(4)
		c.members, c.version = int(row.integerAt(5)), uint64(row.integerAt(6))
		c.large = row.integerAt(7) != 0
		c.uncounted, c.lastUncounted = row.integerAt(8), tidemark.Sequence(row.integerAt(9))
		c.seats, bad = parseSeats(row.Column(10))
		c.named = uint64(row.integerAt(11))
		c.outbox = outbox{!row.nullAt(12), positionAt(row, 13), row.integerAt(16) != 0}
		c.floor = tidemark.Sequence(row.integerAt(17))
		c.state = tidemark.ChatState(row.stringAt(18))
		c.receipts = tidemark.ReceiptsPolicy(row.stringAt(19))
	})
	if err = cmp.Or(err, bad); err != nil || !found {
		return nil, err
	}
	w.chats[id] = c
	w.rowRemoved(c) // It may have had rows removed while it was not cached.
	return c, nil
}

// rowRemoved gives a chat a RowsVersion that no chat has had. The versions need not be stored: no
// other process writes, and nobody compares them with those of an earlier one.
func (w *writer) rowRemoved(c *chat) {
	w.rows++
	c.rows = w.rows
}

// forget removes a chat from the cache, because another statement than flush's changes its row
// next.
func (w *writer) forget(c *chat) error {
	err := w.flush()
	//rule:nothing_outside_membership.forget-chat-after-removal
	delete(w.chats, c.id)
	return err
}

// moveHead assigns the next sequence.
func (w *writer) moveHead(c *chat, now int64) {
	//rule:sequence_gapless.next-sequence
	c.head, c.activity = c.head+1, now
	if !c.moved {
		c.moved = true
		//rule:confirmed_is_durable.write-moved-head
		w.moved = append(w.moved, c)
	}
}

// count counts the message that has just got its sequence.
func (w *writer) count(c *chat, from *sender, d *tidemark.Draft) error {
	if d.Kind.Counts() {
		//rule:unread_exact.count-own-in-sqlite
		from.sent, from.last = from.sent+1, c.head
		if err := w.note(c, from); err != nil {
			return err
		}
		return w.mention(c, d)
	}
	//rule:unread_exact.number-what-does-not-count
	c.uncounted, c.lastUncounted = c.uncounted+1, c.head
	q, err := w.c.prepared(`INSERT INTO uncounted (chat, sequence, ordinal) VALUES (?, ?, ?)`)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.integer(2, int64(c.head))
	q.integer(3, c.uncounted)
	return q.run()
}

// mention stores whom the last message names. A message to all needs one row only.
func (w *writer) mention(c *chat, d *tidemark.Draft) error {
	names := d.Mentions.Users
	if d.Mentions.All {
		names = []tidemark.UserID{unread.Everyone}
	}
	for _, name := range names {
		q, err := w.c.prepared(`INSERT INTO mentions (chat, user_id, sequence, sender_id)
			VALUES (?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		q.integer(1, c.key)
		q.string(2, string(name))
		q.integer(3, int64(c.head))
		q.string(4, string(d.SenderID))
		if err := q.run(); err != nil {
			return err
		}
	}
	return nil
}

// flush writes the heads that moved, with the numbers of the senders: one statement per chat and
// commit, and one per sender without a seat.
func (w *writer) flush() error {
	if len(w.moved) == 0 {
		return nil
	}
	s, err := w.c.prepared(`UPDATE chats
		SET head = ?, activity_at = ?, uncounted = ?, last_uncounted = ?, seats = ?
		WHERE key = ?`)
	if err != nil {
		return err
	}
	for _, c := range w.moved {
		s.integer(1, int64(c.head))
		s.integer(2, c.activity)
		s.integer(3, c.uncounted)
		s.integer(4, int64(c.lastUncounted))
		//rule:unread_exact.write-seats-in-sqlite
		s.string(5, seatsText(c.seats))
		s.integer(6, c.key)
		if err := s.run(); err != nil {
			return err
		}
		c.moved = false
		if err := w.openBacklog(c); err != nil {
			return err
		}
		if err := w.flushSent(c); err != nil {
			return err
		}
	}
	w.moved = w.moved[:0]
	return nil
}

// flushSent writes the numbers of the senders of a chat who have no seat.
func (w *writer) flushSent(c *chat) error {
	if len(c.sent) == 0 {
		return nil
	}
	s, err := w.c.prepared(`UPDATE members SET sent = ?, last_sent = ?
		WHERE chat = ? AND user_id = ?`)
	if err != nil {
		return err
	}
	for _, from := range c.sent {
		s.integer(1, from.sent)
		s.integer(2, int64(from.last))
		s.integer(3, c.key)
		s.string(4, string(from.user))
		if err := s.run(); err != nil {
			return err
		}
		from.moved = false
	}
	c.sent = c.sent[:0]
	return nil
}

// sender returns a current member who may send, or nil for any other user.
func (w *writer) sender(c *chat, user tidemark.UserID) (*sender, error) {
	if from := c.senders[user]; from != nil {
		return from, nil
	}
	if len(c.senders) >= maxSenders {
		//rule:unread_exact.write-before-forgetting
		if err := w.flush(); err != nil {
			return nil, err
		}
		c.senders = nil
	}
	from, sends, err := w.former(c, user)
	if err != nil || !sends {
		return nil, err
	}
	if c.senders == nil {
		c.senders = make(map[tidemark.UserID]*sender)
	}
	c.senders[user] = from
	return from, nil
}

// former returns the numbers of a user, who need not be a member, and whether they may send.
func (w *writer) former(
	c *chat, user tidemark.UserID,
) (from *sender, sends bool, err error) {
	if from := c.senders[user]; from != nil {
		return from, true, nil
	}
	s, err := w.c.prepared(`SELECT current, seat, sent, last_sent, role FROM members
		WHERE chat = ? AND user_id = ?`)
	if err != nil {
		return nil, false, err
	}
	s.integer(1, c.key)
	s.string(2, string(user))
	from = &sender{user: user, tally: &tally{}}
	var bad error
	_, err = s.one(func(row *stmt) {
		//rule:caller_does_only_what_they_may.readers-never-append-in-sqlite
		sends = row.integerAt(0) != 0 && tidemark.Role(row.stringAt(4)).MaySend()
		if seat := int(row.integerAt(1)); seat != 0 {
			if seat > len(c.seats) {
				bad = badSeats(seatsText(c.seats))
				return
			}
			from.seated, from.tally = true, c.seats[seat-1]
			return
		}
		from.sent, from.last = row.integerAt(2), tidemark.Sequence(row.integerAt(3))
	})
	return from, sends, cmp.Or(err, bad)
}
