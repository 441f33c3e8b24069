package sqlite

import "github.com/tidemark-im/tidemark"

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
	kind     tidemark.ChatType
	history  tidemark.HistoryMode
	head     tidemark.Sequence
	activity int64
	members  int
	version  uint64
	large    bool
	// moved reports that head and activity are not in the database yet.
	moved bool
	// senders holds some of the current members. Other users may be members, too.
	senders map[tidemark.UserID]struct{}
}

// chat returns a chat, or nil if there is none.
func (w *writer) chat(id tidemark.ChatID) (*chat, error) {
	if c := w.chats[id]; c != nil {
		return c, nil
	}
	s, err := w.c.prepared(`SELECT key, type, history, head, activity_at, member_count,
			members_version, large
		FROM chats WHERE id = ?`)
	if err != nil {
		return nil, err
	}
	s.string(1, string(id))
	c := &chat{id: id}
	found, err := s.one(func(row *stmt) {
		c.key = row.integerAt(0)
		c.kind = tidemark.ChatType(row.stringAt(1))
		c.history = tidemark.HistoryMode(row.stringAt(2))
		c.head, c.activity = tidemark.Sequence(row.integerAt(3)), row.integerAt(4)
		c.members, c.version = int(row.integerAt(5)), uint64(row.integerAt(6))
		c.large = row.integerAt(7) != 0
	})
	if err != nil || !found {
		return nil, err
	}
	w.chats[id] = c
	return c, nil
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

// flush writes the heads that moved: one statement per chat and commit.
func (w *writer) flush() error {
	if len(w.moved) == 0 {
		return nil
	}
	s, err := w.c.prepared(`UPDATE chats SET head = ?, activity_at = ? WHERE key = ?`)
	if err != nil {
		return err
	}
	for _, c := range w.moved {
		s.integer(1, int64(c.head))
		s.integer(2, c.activity)
		s.integer(3, c.key)
		if err := s.run(); err != nil {
			return err
		}
		c.moved = false
	}
	w.moved = w.moved[:0]
	return nil
}

// isMember reports whether the user is a current member.
func (w *writer) isMember(c *chat, user tidemark.UserID) (bool, error) {
	if _, ok := c.senders[user]; ok {
		return true, nil
	}
	s, err := w.c.prepared(`SELECT current FROM members WHERE chat = ? AND user_id = ?`)
	if err != nil {
		return false, err
	}
	s.integer(1, c.key)
	s.string(2, string(user))
	current := false
	_, err = s.one(func(row *stmt) { current = row.integerAt(0) != 0 })
	if err != nil || !current {
		return false, err
	}
	if c.senders == nil || len(c.senders) >= maxSenders {
		c.senders = make(map[tidemark.UserID]struct{})
	}
	c.senders[user] = struct{}{}
	return true, nil
}
