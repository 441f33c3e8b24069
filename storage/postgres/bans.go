package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The statements of bans. The transaction has locked the chat, unless it only lists them.
const (
	firstBanned = `SELECT u.id FROM unnest($2::text[]) AS u (id)
		CROSS JOIN LATERAL (SELECT 1 FROM bans WHERE chat = $1 AND user_id = u.id LIMIT 1) AS b
		LIMIT 1`
	countBans = `SELECT count(*) FROM bans WHERE chat = $1`
	insertBan = `INSERT INTO bans (chat, user_id, banned_at) VALUES ($1, $2, $3)`
	deleteBan = `DELETE FROM bans WHERE chat = $1 AND user_id = $2`
	listBans  = `SELECT user_id, banned_at FROM bans
		WHERE chat = (SELECT key FROM chats WHERE id = $1) AND user_id > $2
		ORDER BY user_id LIMIT $3`
)

// unbanned is named. It returns Denied if one of the users is banned.
func (m *membership) unbanned(
	ctx context.Context, users []tidemark.UserID,
) (known map[tidemark.UserID]tidemark.Member, err error) {
	var batch pgx.Batch
	batch.Queue(membersNamed, m.key, texts(users)).Query(func(rows pgx.Rows) error {
		known, err = scanNamed(rows, len(users))
		return err
	})
	//rule:banned_stays_out.add-nobody-banned-in-postgres
	batch.Queue(firstBanned, m.key, texts(users)).Query(func(rows pgx.Rows) error {
		if !rows.Next() {
			return rows.Err()
		}
		var user string
		if err := rows.Scan(&user); err != nil {
			return err
		}
		return storage.IsBanned(m.chat.ID, tidemark.UserID(user))
	})
	return known, m.tx.SendBatch(ctx, &batch).Close()
}

// Ban implements storage.Bans.
func (s *Store) Ban(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, now time.Time,
) (banned storage.Banned, err error) {
	err = s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) (err error) {
		banned, err = m.ban(ctx, user, now)
		return err
	})
	if err != nil {
		return storage.Banned{}, err
	}
	return banned, nil
}

func (m *membership) ban(
	ctx context.Context, user tidemark.UserID, now time.Time,
) (banned storage.Banned, err error) {
	if m.chat.Type == tidemark.Direct {
		return banned, storage.NoBans(m.chat.ID)
	}
	banned.Version, banned.Head = m.chat.MembersVersion, m.chat.Head
	known, err := m.unbanned(ctx, []tidemark.UserID{user})
	if tidemark.CodeOf(err) == tidemark.Denied {
		return banned, nil // They are banned already.
	}
	if err != nil {
		return banned, err
	}
	var n int
	err = m.tx.QueryRow(ctx, countBans, m.key).Scan(&n)
	if err == nil {
		err = storage.CheckBans(m.chat.ID, n)
	}
	if err != nil {
		return banned, err
	}
	var batch pgx.Batch
	batch.Queue(insertBan, m.key, string(user), now.UnixMilli())
	member := known[user]
	//rule:banned_stays_out.remove-with-the-ban-in-postgres
	if banned.Left = member.Intervals.Open(); banned.Left {
		banned.Removed, err = m.end(ctx, &batch, member)
	} else {
		banned.Version++
		batch.Queue(setMembership, m.key, m.chat.MemberCount, m.chat.Large)
	}
	if err != nil {
		return banned, err
	}
	return banned, m.tx.SendBatch(ctx, &batch).Close()
}

// Unban implements storage.Bans.
func (s *Store) Unban(ctx context.Context, chat tidemark.ChatID, user tidemark.UserID) error {
	return s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) error {
		_, err := m.tx.Exec(ctx, deleteBan, m.key, string(user))
		return err
	})
}

// BansOf implements storage.Bans.
func (s *Store) BansOf(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]storage.Ban, bool, error) {
	parameters := []any{string(chat), string(after), int64(limit) + 1}
	return list(ctx, s, listBans, limit, parameters,
		func(row pgx.Rows) (ban storage.Ban, err error) {
			var at int64
			err = row.Scan((*string)(&ban.User), &at)
			ban.At = timeOf(at)
			return ban, err
		})
}
