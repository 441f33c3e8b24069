package sqlite

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	return s.change(ctx, func(w *writer) error {
		c, err := w.existing(id)
		if err != nil {
			return err
		}
		changes, err := storage.Finishes(id, c.state)
		if err != nil || !changes {
			return err
		}
		//rule:importing_is_closed.forget-the-state-in-sqlite
		if err := w.setMembership(c, c.members); err != nil {
			return err
		}
		state := tidemark.ChatLive
		if c.kind == tidemark.Direct {
			if state, err = w.closingOf(c); err != nil {
				return err
			}
		}
		q, err := w.c.prepared(`UPDATE chats SET state = nullif(?, '') WHERE key = ?`)
		if err != nil {
			return err
		}
		q.string(1, string(state))
		q.integer(2, c.key)
		return q.run()
	})
}

// DeleteChat implements storage.Deletions. The same transaction ends the memberships and removes
// the pending rows. So reads that begin with these need not check the state.
func (s *Store) DeleteChat(
	ctx context.Context, id tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	var deleted storage.Deleted
	err := s.change(ctx, func(w *writer) error {
		c, err := w.existing(id)
		if err == nil {
			err = w.flush()
		}
		if err != nil {
			return err
		}
		chat, _, err := oneChat(w.c, chatByID, string(id))
		if err != nil {
			return err
		}
		if chat.State == tidemark.ChatDeleted {
			deleted = storage.DeletedOf(&chat)
			return nil
		}
		//rule:held_is_kept.no-deletion-in-sqlite
		if err := storage.OnHold(id, chat.Policy); err != nil {
			return err
		}
		chat = storage.Delete(chat, timeOf(now.UnixMilli()))
		deleted = storage.DeletedOf(&chat)
		return w.delete(c, &chat)
	})
	if err != nil {
		return storage.Deleted{}, err
	}
	return deleted, nil
}

// endings end what a deleted chat has, besides its own row: key ?1 and id ?2.
var endings = []string{
	`DELETE FROM chat_metadata WHERE chat = ?1`,
	`DELETE FROM pending_deliveries WHERE chat_id = ?2
		AND user_id IN (SELECT user_id FROM members WHERE chat = ?1)`,
	`UPDATE members SET current = 0, metadata = NULL WHERE chat = ?1 AND current = 1`,
}

// delete writes a chat that was deleted, and ends what it has.
func (w *writer) delete(c *chat, after *tidemark.Chat) error {
	if err := w.openBacklog(c); err != nil {
		return err
	}
	if err := w.forget(c); err != nil {
		return err
	}
	q, err := w.c.prepared(`UPDATE chats SET state = ?2, deleted_at = ?3, floor = ?4, version = ?5,
			members_version = ?6, member_count = 0, name = '', creation = '', direct_key = NULL,
			keep_days = NULL, hold = NULL, read_receipts = NULL
		WHERE key = ?1`)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.string(2, string(after.State))
	q.integer(3, after.DeletedAt.UnixMilli())
	q.integer(4, int64(after.Floor))
	q.integer(5, int64(after.Version))
	q.integer(6, int64(after.MembersVersion))
	if err := q.run(); err != nil {
		return err
	}
	//rule:deleted_is_gone.end-memberships-in-sqlite
	for _, text := range endings {
		if err := w.of(c, text, 0); err != nil {
			return err
		}
	}
	return nil
}

// of runs a statement about a chat. Its parameters are the key, the id, and a limit, as far as it
// has them.
func (w *writer) of(c *chat, text string, limit int) error {
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	if strings.Contains(text, "?2") {
		q.string(2, string(c.id))
	}
	if strings.Contains(text, "?3") {
		q.integer(3, int64(limit))
	}
	return q.run()
}

// purges remove at most ?3 rows each of a deleted chat: key ?1 and id ?2. The mentions are those of
// one user, since their rows have no order by sequence. memberPurges go on with the members. The
// pending rows and settings of some members go before these members.
var (
	purges = []string{
		`DELETE FROM messages WHERE chat = ?1 AND sequence IN (SELECT sequence FROM messages
			WHERE chat = ?1 ORDER BY sequence LIMIT ?3)`,
		`DELETE FROM uncounted WHERE chat = ?1 AND sequence IN (SELECT sequence FROM uncounted
			WHERE chat = ?1 ORDER BY sequence LIMIT ?3)`,
		`DELETE FROM mentions WHERE chat = ?1
			AND user_id = (SELECT user_id FROM mentions WHERE chat = ?1 ORDER BY user_id LIMIT 1)
			AND sequence IN (SELECT sequence FROM mentions WHERE chat = ?1
				AND user_id = (SELECT user_id FROM mentions
					WHERE chat = ?1 ORDER BY user_id LIMIT 1)
				ORDER BY sequence LIMIT ?3)`,
		//rule:deleted_is_gone.purge-reactions-in-sqlite
		`DELETE FROM reactions WHERE chat = ?1 AND (target, user_id, emoji) IN (
			SELECT target, user_id, emoji FROM reactions WHERE chat = ?1
			ORDER BY target, user_id, emoji LIMIT ?3)`,
		`DELETE FROM pins WHERE chat = ?1`, // There are few.
	}
	memberPurges = []string{
		`DELETE FROM bans WHERE chat = ?1 AND user_id IN (SELECT user_id
			FROM bans WHERE chat = ?1 ORDER BY user_id LIMIT ?3)`,
		`DELETE FROM delivery_state WHERE chat = ?1 AND user_id IN (SELECT user_id
			FROM delivery_state WHERE chat = ?1 ORDER BY user_id LIMIT ?3)`,
		`DELETE FROM pending_deliveries WHERE chat_id = ?2 AND user_id IN (SELECT user_id
			FROM members WHERE chat = ?1 ORDER BY user_id LIMIT ?3)`,
		`DELETE FROM receipts WHERE chat = ?1 AND user_id IN (SELECT user_id
			FROM members WHERE chat = ?1 ORDER BY user_id LIMIT ?3)`,
		`DELETE FROM members WHERE chat = ?1 AND user_id IN (SELECT user_id
			FROM members WHERE chat = ?1 ORDER BY user_id LIMIT ?3)`,
	}
)

// PurgeChat implements storage.Deletions.
func (s *Store) PurgeChat(
	ctx context.Context, id tidemark.ChatID, limit int, members bool,
) (removed int, done bool, err error) {
	err = s.change(ctx, func(w *writer) error {
		c, err := w.existing(id)
		if err == nil {
			err = storage.CheckPurge(id, c.state, limit)
		}
		if err != nil {
			return err
		}
		texts := purges
		if members {
			texts = slices.Concat(purges, memberPurges)
		}
		removed = 0
		for _, text := range texts {
			if err := w.of(c, text, limit); err != nil {
				return err
			}
			removed += w.c.Changes()
		}
		return nil
	})
	if err != nil {
		return 0, false, err
	}
	return removed, removed == 0, nil
}
