package sqlite

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Ban implements storage.Bans.
func (s *Store) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (banned storage.Banned, err error) {
	err = s.change(ctx, func(w *writer) error {
		c, err := w.alive(chat)
		if err == nil {
			banned, err = w.ban(c, user, now)
		}
		return err
	})
	if err != nil {
		return storage.Banned{}, err
	}
	return banned, nil
}

func (w *writer) ban(
	c *chat, user tidemark.UserID, now time.Time,
) (banned storage.Banned, err error) {
	if c.kind == tidemark.Direct {
		return banned, storage.NoBans(c.id)
	}
	banned.Version, banned.Head = c.version, c.head
	stands, err := w.banned(c, user)
	if err != nil || stands {
		return banned, err
	}
	n, err := w.number(`SELECT count(*) FROM bans WHERE chat = ?1`,
		func(q *stmt) { q.integer(1, c.key) })
	if err == nil {
		err = storage.CheckBans(c.id, int(n))
	}
	if err != nil {
		return banned, err
	}
	err = w.do(`INSERT INTO bans (chat, user_id, banned_at) VALUES (?, ?, ?)`, func(q *stmt) {
		q.integer(1, c.key)
		q.string(2, string(user))
		q.integer(3, now.UnixMilli())
	})
	if err != nil {
		return banned, err
	}
	m, _, err := w.member(c, user)
	if err != nil {
		return banned, err
	}
	//rule:banned_stays_out.remove-with-the-ban-in-sqlite
	if banned.Left = m.Intervals.Open(); banned.Left {
		banned.Removed, err = w.removeMember(c, m)
		return banned, err
	}
	banned.Version++
	return banned, w.setMembership(c, c.members)
}

// banned reports whether a user is banned from a chat.
func (w *writer) banned(c *chat, user tidemark.UserID) (bool, error) {
	n, err := w.number(`SELECT count(*) FROM bans WHERE chat = ?1 AND user_id = ?2`,
		func(q *stmt) {
			q.integer(1, c.key)
			q.string(2, string(user))
		})
	return n > 0, err
}

// noneBanned returns Denied if one of the users is banned from a chat. A banned user is no member.
func (w *writer) noneBanned(c *chat, users []tidemark.UserID) error {
	q, err := w.c.prepared(`SELECT j.value FROM json_each(?2) AS j
		WHERE EXISTS (SELECT 1 FROM bans WHERE chat = ?1 AND user_id = j.value) LIMIT 1`)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.string(2, jsonArray(users))
	var user tidemark.UserID
	found, err := q.one(func(row *stmt) { user = tidemark.UserID(row.stringAt(0)) })
	if err == nil && found {
		err = storage.IsBanned(c.id, user)
	}
	return err
}

// Unban implements storage.Bans.
func (s *Store) Unban(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID) error {
	return s.change(ctx, func(w *writer) error {
		c, err := w.alive(chat)
		if err != nil {
			return err
		}
		return w.do(`DELETE FROM bans WHERE chat = ? AND user_id = ?`, func(q *stmt) {
			q.integer(1, c.key)
			q.string(2, string(user))
		})
	})
}

// BansOf implements storage.Bans.
func (s *Store) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]storage.Ban, bool, error) {
	return page(ctx, s, `SELECT user_id, banned_at FROM bans
		WHERE chat = (SELECT key FROM chats WHERE id = ?) AND user_id > ?
		ORDER BY user_id LIMIT ?`, limit, func(q *stmt) {
		q.string(1, string(chat))
		q.string(2, string(after))
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) storage.Ban {
		return storage.Ban{
			User: tidemark.UserID(row.stringAt(0)), At: timeOf(row.integerAt(1)),
		}
	})
}
