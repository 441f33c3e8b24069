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

var _ storage.Erasures = (*Store)(nil)

// chatsNaming looks each chat up in the tables that have something of a user in it.
const chatsNaming = `SELECT c.id,
		EXISTS (SELECT 1 FROM members WHERE chat = c.key AND user_id = ?3)
		OR EXISTS (SELECT 1 FROM delivery_state WHERE chat = c.key AND user_id = ?3)
		OR EXISTS (SELECT 1 FROM mentions WHERE chat = c.key AND user_id = ?3)
		OR EXISTS (SELECT 1 FROM bans WHERE chat = c.key AND user_id = ?3)
	FROM chats AS c WHERE c.id > ?1 ORDER BY c.id LIMIT ?2`

// ChatsNaming implements storage.Erasures.
func (s *Store) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return nil, "", false, err
	}
	type place struct {
		chat  tidemark.ChatID
		named bool
	}
	places, more, err := page(ctx, s, chatsNaming, limit, func(q *stmt) {
		q.string(1, string(after))
		q.integer(2, int64(limit)+1)
		q.string(3, string(user))
	}, func(row *stmt) place {
		return place{tidemark.ChatID(row.stringAt(0)), row.integerAt(1) != 0}
	})
	for _, p := range places {
		if next = p.chat; p.named {
			chats = append(chats, p.chat)
		}
	}
	if !more {
		next = ""
	}
	return chats, next, more, err
}

// CloseDirect implements storage.Erasures.
func (s *Store) CloseDirect(
	ctx context.Context, id tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	var removed storage.Removed
	err := s.change(ctx, func(w *writer) error {
		c, err := w.alive(id)
		if err != nil {
			return err
		}
		m, _, err := w.member(c, user)
		switch {
		case err != nil:
			return err
		case c.kind != tidemark.Direct:
			return storage.NotDirect(id)
		case !m.Intervals.Open():
			return notMember(id, user)
		}
		r, err := roster(w.c, id)
		if err != nil {
			return err
		}
		for _, other := range r.Members {
			if other.UserID == user {
				other.Intervals, other.Metadata = m.Intervals.Left(c.head), nil
			} else {
				other = storage.AsReader(other)
			}
			if err := w.putMember(c, other, 0, c.version+1); err != nil {
				return err
			}
		}
		if err := w.unmark(c, user); err != nil {
			return err
		}
		removed = storage.Removed{Version: c.version + 1, Head: c.head}
		if err := w.setMembership(c, c.members-1); err != nil {
			return err
		}
		return w.of(c, `UPDATE chats SET direct_key = NULL WHERE key = ?1`, 0)
	})
	if err != nil {
		return storage.Removed{}, err
	}
	return removed, nil
}

// erasable returns a chat of which something may be erased.
func (w *writer) erasable(id tidemark.ChatID) (*chat, error) {
	c, err := w.alive(id)
	if err == nil {
		//rule:held_is_kept.nothing-is-erased-in-sqlite
		err = w.notOnHold(c)
	}
	return c, err
}

// EraseMessages implements storage.Erasures. secure_delete overwrites the old texts in the file
// (configure).
func (s *Store) EraseMessages(
	ctx context.Context, id tidemark.ChatID, e tidemark.Erasure, p storage.ErasePage,
) (storage.ErasedPage, error) {
	if err := storage.CheckErase(p.Limit); err != nil {
		return storage.ErasedPage{}, err
	}
	e.At = timeOf(e.At.UnixMilli())
	var done storage.ErasedPage
	err := s.change(ctx, func(w *writer) error {
		c, err := w.erasable(id)
		if err != nil {
			return err
		}
		first := max(p.After+1, c.floor)
		done = storage.ErasedPage{
			Through: min(c.head, first+tidemark.Sequence(p.Limit)-1),
		}
		done.Done = done.Through == c.head
		messages, err := w.between(c, first, done.Through)
		if err != nil {
			return err
		}
		for i := range messages {
			erased, touched := messages[i].Erase(e, c.head)
			if done.Count(touched); touched == tidemark.Untouched {
				continue
			}
			if err := w.erase(c, &messages[i], &erased, e); err != nil {
				return err
			}
		}
		return w.about(c, e, `DELETE FROM mentions
			WHERE chat = ?1 AND user_id = ?2 AND sequence BETWEEN ?4 AND ?5`,
			int64(first), int64(done.Through))
	})
	if err != nil {
		return storage.ErasedPage{}, err
	}
	return done, nil
}

// between reads the messages from one to another, both included.
func (w *writer) between(
	c *chat, first, last tidemark.Sequence,
) (messages []tidemark.Message, err error) {
	q, err := w.c.prepared(rangeUp)
	if err != nil {
		return nil, err
	}
	q.integer(1, c.key)
	q.integer(2, int64(first))
	q.integer(3, int64(last))
	q.integer(4, storage.MaxErased)
	var bad error
	err = q.each(func(row *stmt) bool {
		next := first + tidemark.Sequence(len(messages))
		var m tidemark.Message
		if m, bad = scanMessage(row, c.id, ""); bad == nil && m.Sequence != next {
			bad = health.Missing(c.id, next)
		}
		messages = append(messages, m)
		return bad == nil
	})
	return messages, cmp.Or(err, bad)
}

// erase writes an erased message, and what stands beside it.
func (w *writer) erase(
	c *chat, before, after *tidemark.Message, e tidemark.Erasure,
) error {
	q, err := w.c.prepared(`UPDATE messages SET sender_id = ?, client_message_id = ?
		WHERE chat = ? AND sequence = ?`)
	if err != nil {
		return err
	}
	q.string(1, string(after.SenderID))
	q.string(2, after.ClientMessageID)
	q.integer(3, c.key)
	q.integer(4, int64(after.Sequence))
	if err := q.run(); err != nil {
		return err
	}
	if kindMentions(after) != string(tidemark.KindMessage) {
		if err := w.revise(c, after); err != nil {
			return err
		}
	}
	if before.SenderID != e.User {
		return nil
	}
	switch {
	case before.Kind == tidemark.KindReact && !before.Redacted():
		//rule:erased_nowhere.reactions-in-sqlite
		if err := w.unannotate(c, before); err != nil {
			return err
		}
	case before.Kind == tidemark.KindPin:
		//rule:erased_nowhere.pins-in-sqlite
		err := w.about(c, e, `UPDATE pins SET user_id = ?3
			WHERE chat = ?1 AND user_id = ?2 AND target = ?4 AND sequence = ?5`,
			int64(before.Relation.Sequence), int64(before.Sequence))
		if err != nil {
			return err
		}
	}
	names := before.Mentions.Users
	if before.Mentions.All {
		names = []tidemark.UserID{unread.Everyone}
	}
	for _, name := range names {
		by := tidemark.Erasure{User: name, Alias: e.Alias}
		err := w.about(c, by, `UPDATE mentions SET sender_id = ?3
			WHERE chat = ?1 AND user_id = ?2 AND sequence = ?4`, int64(before.Sequence))
		if err != nil {
			return err
		}
	}
	return nil
}

// about runs a statement about a user of a chat. Its parameters are the key, the user, the alias,
// and then numbers.
func (w *writer) about(
	c *chat, e tidemark.Erasure, text string, numbers ...int64,
) error {
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.string(2, string(e.User))
	if strings.Contains(text, "?3") {
		q.string(3, string(e.Alias))
	}
	for i, n := range numbers {
		q.integer(4+i, n)
	}
	return q.run()
}

// eraseSome are statements that handle at most ?4 rows of a user ?2 in a chat ?1. When they find no
// more, those of eraseLast come. All rows of a user in a chat are listed here, beside those of
// EraseMessages.
var (
	eraseSome = []string{
		`UPDATE mentions SET sender_id = ?3 WHERE chat = ?1 AND (user_id, sequence) IN (
			SELECT user_id, sequence FROM mentions WHERE chat = ?1 AND sender_id = ?2 LIMIT ?4)`,
		`DELETE FROM mentions WHERE chat = ?1 AND user_id = ?2 AND sequence IN (
			SELECT sequence FROM mentions WHERE chat = ?1 AND user_id = ?2 LIMIT ?4)`,
	}
	eraseLast = []string{
		`DELETE FROM delivery_state WHERE chat = ?1 AND user_id = ?2`,
		//rule:erased_nowhere.bans-in-sqlite
		`DELETE FROM bans WHERE chat = ?1 AND user_id = ?2`,
		//rule:erased_nowhere.membership-in-sqlite
		`DELETE FROM members WHERE chat = ?1 AND user_id = ?2`,
	}
)

// EraseMember implements storage.Erasures.
func (s *Store) EraseMember(
	ctx context.Context, id tidemark.ChatID, e tidemark.Erasure, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	err = s.change(ctx, func(w *writer) error {
		c, err := w.erasable(id)
		if err != nil {
			return err
		}
		m, was, err := w.member(c, e.User)
		if err != nil {
			return err
		}
		if m.Intervals.Open() {
			return storage.StillMember(id, e.User)
		}
		done = true
		for _, text := range eraseSome {
			if err := w.about(c, e, text, int64(limit)); err != nil {
				return err
			}
			done = done && w.c.Changes() < limit
		}
		if !done {
			return nil
		}
		if was {
			// It also forgets what is cached of the chat, in which the user may be a sender.
			if err := w.setMembership(c, c.members); err != nil {
				return err
			}
		}
		for _, text := range eraseLast {
			if err := w.about(c, e, text); err != nil {
				return err
			}
		}
		return w.unmark(c, e.User)
	})
	return done && err == nil, err
}

// eraseRows are statements that remove at most ?2 rows of a user ?1. All tables with rows of a user
// that belong to no chat are listed here.
var eraseRows = []string{
	`DELETE FROM pending_deliveries WHERE user_id = ?1 AND chat_id IN (
		SELECT chat_id FROM pending_deliveries WHERE user_id = ?1 LIMIT ?2)`,
	`DELETE FROM receipts WHERE user_id = ?1 AND chat IN (
		SELECT chat FROM receipts WHERE user_id = ?1 LIMIT ?2)`,
	`DELETE FROM blocks WHERE user_id = ?1 AND blocked_id IN (
		SELECT blocked_id FROM blocks WHERE user_id = ?1 LIMIT ?2)`,
	//rule:erased_nowhere.blocks-of-the-erased-in-sqlite
	`DELETE FROM blocks WHERE blocked_id = ?1 AND user_id IN (
		SELECT user_id FROM blocks WHERE blocked_id = ?1 LIMIT ?2)`,
}

// EraseUser implements storage.Erasures.
func (s *Store) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	err = s.change(ctx, func(w *writer) error {
		done = true
		for _, text := range eraseRows {
			err := w.do(text, func(q *stmt) {
				q.string(1, string(user))
				q.integer(2, int64(limit))
			})
			if err != nil {
				return err
			}
			done = done && w.c.Changes() < limit
		}
		return nil
	})
	return done && err == nil, err
}
