package sqlite

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

// Expire implements storage.Retention. The floor and the messages change in one transaction, so no
// message is ever left below the floor. secure_delete overwrites the texts in the file (configure).
func (s *Store) Expire(
	ctx context.Context, id tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	if err := storage.CheckExpire(before, limit); err != nil {
		return storage.Expired{}, err
	}
	var done storage.Expired
	err := s.change(ctx, func(w *writer) error {
		c, err := w.existing(id)
		if err == nil {
			err = w.notOnHold(c)
		}
		if err != nil {
			return err
		}
		old, err := w.aged(c, before.UnixMilli(), limit)
		if err != nil {
			return err
		}
		done = storage.Expired{Floor: c.floor + tidemark.Sequence(old.messages),
			Removed: old.messages}
		if old.messages == 0 {
			return nil
		}
		return w.remove(c, old, done.Floor)
	})
	if err != nil {
		return storage.Expired{}, err
	}
	return done, nil
}

// notOnHold returns nil if something of a chat may be removed.
func (w *writer) notOnHold(c *chat) error {
	q, err := w.c.prepared(`SELECT keep_days, hold, read_receipts FROM chats WHERE key = ?`)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	var policy tidemark.Policy
	if _, err := q.one(func(row *stmt) { policy = scanPolicy(row, 0) }); err != nil {
		return err
	}
	//rule:held_is_kept.nothing-expires-in-sqlite
	return storage.OnHold(c.id, policy)
}

// Policies implements storage.Retention.
func (s *Store) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Policy, error) {
	if err := checkBatch(len(chats)); err != nil || len(chats) == 0 {
		return nil, err
	}
	policies := make([]tidemark.Policy, 0, len(chats))
	err := s.read(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT c.keep_days, c.hold, c.read_receipts FROM json_each(?) AS j
			LEFT JOIN chats AS c ON c.id = j.value`)
		if err != nil {
			return err
		}
		q.string(1, jsonArray(chats))
		return q.each(func(row *stmt) bool {
			policies = append(policies, scanPolicy(row, 0))
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return policies, nil
}

// aged are the first messages of a chat, as far as they are old.
type aged struct {
	messages int
	// sent has the number of those that count, by their senders.
	sent map[string]int64
	// named has whom they name. If changed is set, some of them have named others before.
	named   map[string]bool
	changed bool
}

// aged reads at most limit of the first messages of a chat, as far as they were created before a
// time in milliseconds.
func (w *writer) aged(c *chat, before int64, limit int) (aged, error) {
	old := aged{sent: make(map[string]int64), named: make(map[string]bool)}
	q, err := w.c.prepared(`SELECT sequence, created_at, sender_id, kind_mentions FROM messages
		WHERE chat = ? AND sequence >= ? ORDER BY sequence LIMIT ?`)
	if err != nil {
		return old, err
	}
	q.integer(1, c.key)
	q.integer(2, int64(c.floor))
	q.integer(3, int64(limit))
	var bad error
	err = q.each(func(row *stmt) bool {
		next := c.floor + tidemark.Sequence(old.messages)
		if tidemark.Sequence(row.integerAt(0)) != next {
			bad = health.Missing(c.id, next)
			return false
		}
		//rule:floor_recorded.stop-at-the-first-younger-message-in-sqlite
		if row.integerAt(1) >= before {
			return false
		}
		old.messages++
		bad = old.note(row.stringAt(2), row, 3)
		return bad == nil
	})
	return old, cmp.Or(err, bad)
}

// note notes whom a message with the column kind_mentions at i names, and who has sent it.
func (a *aged) note(sender string, row *stmt, i int) error {
	m := tidemark.Message{Kind: tidemark.KindMessage}
	if !row.nullAt(i) {
		if err := parseKindMentions(&m, row.stringAt(i)); err != nil {
			return err
		}
	}
	if !m.Kind.Counts() {
		return nil
	}
	//rule:unread_exact.count-own-that-expire-in-sqlite
	a.sent[sender]++
	a.changed = a.changed || m.Revision != nil
	for _, name := range m.Mentions.Users {
		a.named[string(name)] = true
	}
	if m.Mentions.All {
		a.named[unread.Everyone] = true
	}
	return nil
}

// remove raises the floor of a chat, and removes what is below it.
func (w *writer) remove(c *chat, old aged, floor tidemark.Sequence) error {
	if err := w.forget(c); err != nil {
		return err
	}
	for _, text := range []string{
		`UPDATE chats SET floor = ?2 WHERE key = ?1`,
		`DELETE FROM messages WHERE chat = ?1 AND sequence < ?2`,
		// The last one stays: its ordinal says how many there are below the floor.
		`DELETE FROM uncounted WHERE chat = ?1 AND sequence < (SELECT max(sequence)
			FROM uncounted WHERE chat = ?1 AND sequence < ?2)`,
		//rule:annotations_counted.reactions-expire-in-sqlite
		`DELETE FROM reactions WHERE chat = ?1 AND target < ?2`,
		//rule:annotations_counted.pins-expire-in-sqlite
		`DELETE FROM pins WHERE chat = ?1 AND target < ?2`,
	} {
		q, err := w.c.prepared(text)
		if err != nil {
			return err
		}
		q.integer(1, c.key)
		q.integer(2, int64(floor))
		if err := q.run(); err != nil {
			return err
		}
	}
	for sender, n := range old.sent {
		q, err := w.c.prepared(`UPDATE members SET expired = expired + ?
			WHERE chat = ? AND user_id = ?`)
		if err != nil {
			return err
		}
		q.integer(1, n)
		q.integer(2, c.key)
		q.string(3, sender)
		if err := q.run(); err != nil {
			return err
		}
	}
	return w.removeMentions(c, old, floor)
}

// removeMentions removes the mentions below the floor. A message that was changed does not say any
// more whom it named first. Then all mentions of the chat are looked at.
func (w *writer) removeMentions(c *chat, old aged, floor tidemark.Sequence) error {
	text, names := `DELETE FROM mentions WHERE chat = ?1 AND sequence < ?2 AND user_id = ?3`,
		old.named
	if old.changed {
		text, names = strings.TrimSuffix(text, " AND user_id = ?3"), map[string]bool{"": true}
	}
	for name := range names {
		q, err := w.c.prepared(text)
		if err != nil {
			return err
		}
		q.integer(1, c.key)
		q.integer(2, int64(floor))
		if name != "" {
			q.string(3, name)
		}
		if err := q.run(); err != nil {
			return err
		}
	}
	return nil
}
