package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.Erasures = (*Store)(nil)

// chatsNaming looks each chat up in the tables that have something of a user in it. The LIMITs keep
// the planner from joining whole tables.
const chatsNaming = `SELECT c.id,
		(SELECT 1 FROM members WHERE chat = c.key AND user_id = $3 LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM delivery_state WHERE chat = c.key AND user_id = $3 LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM senders WHERE chat = c.key AND user_id = $3 LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM mentions WHERE chat = c.key AND user_id = $3 LIMIT 1) IS NOT NULL
		OR (SELECT 1 FROM bans WHERE chat = c.key AND user_id = $3 LIMIT 1) IS NOT NULL
	FROM chats AS c WHERE c.id > $1 ORDER BY c.id LIMIT $2`

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
	places, more, err := list(ctx, s, chatsNaming, limit,
		[]any{string(after), int64(limit) + 1, string(user)},
		func(row pgx.Rows) (p place, err error) {
			err = row.Scan(&p.chat, &p.named)
			return p, err
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

// The statements of CloseDirect.
const (
	closeRole = `UPDATE members SET role = $3, version = $4
		WHERE chat = $1 AND user_id <> $2 AND current::int = 1`
	unpair = `UPDATE chats SET direct_key = NULL WHERE key = $1`
)

// CloseDirect implements storage.Erasures.
func (s *Store) CloseDirect(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID, _ time.Time,
) (storage.Removed, error) {
	var removed storage.Removed
	err := s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) error {
		known, err := m.named(ctx, []tidemark.UserID{user})
		if err != nil {
			return err
		}
		member := known[user]
		switch {
		case m.chat.Type != tidemark.Direct:
			return storage.NotDirect(chat)
		case !member.Intervals.Open():
			return notMember(chat, user)
		}
		removed = storage.Removed{Version: m.chat.MembersVersion + 1, Head: m.chat.Head}
		var batch pgx.Batch
		batch.Queue(leave, m.key, string(user), member.Intervals.Left(m.chat.Head).Text(),
			m.next())
		batch.Queue(closeRole, m.key, string(user), string(storage.AsReader(member).Role), m.next())
		batch.Queue(unpair, m.key)
		batch.Queue(hold, string(user), string(chat))
		batch.Queue(unmark, string(user), string(chat))
		batch.Queue(setMembership, m.key, m.chat.MemberCount-1, m.chat.Large)
		return m.tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return storage.Removed{}, err
	}
	return removed, nil
}

// erasing runs do in a transaction that has locked a chat of which something may be erased.
func (s *Store) erasing(
	ctx context.Context, chat tidemark.ChatID, do func(ctx context.Context, m *membership) error,
) error {
	return s.lockedAlive(ctx, chat, func(ctx context.Context, m *membership) error {
		//rule:held_is_kept.nothing-is-erased-in-postgres
		if err := storage.OnHold(chat, m.chat.Policy); err != nil {
			return err
		}
		return do(ctx, m)
	})
}

// The statements of EraseMessages. The transaction has locked the chat, so its messages stay as
// they are.
const (
	erasedMessages = `SELECT ` + messageColumns + ` FROM messages AS m
		WHERE m.chat = $1 AND m.sequence BETWEEN $2 AND $3 ORDER BY m.sequence`
	eraseMessage = `UPDATE messages SET sender_id = $3, client_message_id = $4, content_type = $5,
			mentions = $6, attachments = $7, metadata = $8, content = $9, revision = $10` +
		thatMessage
	renamePin = `UPDATE pins SET user_id = $4
		WHERE chat = $1 AND target = $2 AND sequence = $3`
	renameMentions = `UPDATE mentions SET sender_id = $4
		WHERE chat = $1 AND user_id = ANY ($2::text[]) AND sequence = $3`
	unmention = `DELETE FROM mentions
		WHERE chat = $1 AND user_id = $2 AND sequence BETWEEN $3 AND $4`
)

// EraseMessages implements storage.Erasures.
func (s *Store) EraseMessages(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, p storage.ErasePage,
) (storage.ErasedPage, error) {
	if err := storage.CheckErase(p.Limit); err != nil {
		return storage.ErasedPage{}, err
	}
	e.At = timeOf(e.At.UnixMilli())
	var done storage.ErasedPage
	err := s.erasing(ctx, chat, func(ctx context.Context, m *membership) error {
		first := max(p.After+1, m.chat.Floor)
		done = storage.ErasedPage{
			Through: min(m.chat.Head, first+tidemark.Sequence(p.Limit)-1),
		}
		done.Done = done.Through == m.chat.Head
		messages, err := m.between(ctx, first, done.Through)
		if err != nil {
			return err
		}
		var batch pgx.Batch
		for i := range messages {
			erased, touched := messages[i].Erase(e, m.chat.Head)
			if done.Count(&erased, touched, e); touched != tidemark.Untouched {
				m.erase(&batch, &messages[i], &erased, e)
			}
		}
		batch.Queue(unmention, m.key, string(e.User), column(first), column(done.Through))
		return m.tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return storage.ErasedPage{}, err
	}
	return done, nil
}

// between reads the messages of the chat from one to another, both included.
func (m *membership) between(
	ctx context.Context, first, last tidemark.Sequence,
) (messages []tidemark.Message, err error) {
	rows, err := m.tx.Query(ctx, erasedMessages, m.key, column(first), column(last))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var row messageRow
	for rows.Next() {
		if err := rows.Scan(row.columns()...); err != nil {
			return nil, err
		}
		found, err := row.message(m.chat.ID)
		if err != nil {
			return nil, err
		}
		if next := first + tidemark.Sequence(len(messages)); found.Sequence != next {
			return nil, &hole{m.chat.ID, next}
		}
		messages = append(messages, found)
	}
	return messages, rows.Err()
}

// erase queues an erased message, and what stands beside it.
func (m *membership) erase(
	batch *pgx.Batch, before, after *tidemark.Message, e tidemark.Erasure,
) {
	var mentions, revision *string
	if !after.Mentions.None() {
		text := after.Mentions.Text()
		mentions = &text
	}
	if after.Revision != nil {
		text := after.Revision.Text()
		revision = &text
	}
	batch.Queue(eraseMessage, m.key, int64(after.Sequence), string(after.SenderID),
		after.ClientMessageID, after.ContentType, mentions, textOrNull(after.Attachments),
		textOrNull(after.Metadata), storage.ContentOf(after), revision)
	if before.SenderID != e.User {
		return
	}
	switch {
	case before.Kind == tidemark.KindReact && !before.Redacted():
		//rule:erased_nowhere.reactions-in-postgres
		batch.Queue(deleteReaction, m.key, int64(before.Relation.Sequence),
			string(before.SenderID), before.Relation.Emoji)
	case before.Kind == tidemark.KindPin:
		//rule:erased_nowhere.pins-in-postgres
		batch.Queue(renamePin, m.key, int64(before.Relation.Sequence), int64(before.Sequence),
			string(e.Alias))
	}
	names := texts(before.Mentions.Users)
	if before.Mentions.All {
		names = []string{unread.Everyone}
	}
	if len(names) > 0 {
		batch.Queue(renameMentions, m.key, names, int64(before.Sequence), string(e.Alias))
	}
}

// The statements of EraseMember. eraseLast come when nothing is left for the others. All tables
// with rows of a user in a chat are listed here, beside those of EraseMessages.
const (
	renameSome = `UPDATE mentions SET sender_id = $3 WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM mentions WHERE chat = $1 AND sender_id = $2
			ORDER BY user_id, sequence LIMIT $4))`
	unmentionSome = `DELETE FROM mentions WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM mentions WHERE chat = $1 AND user_id = $2 ORDER BY sequence LIMIT $3))`
	eraseState  = `DELETE FROM delivery_state WHERE chat = $1 AND user_id = $2`
	eraseSender = `DELETE FROM senders WHERE chat = $1 AND user_id = $2`
	//rule:erased_nowhere.membership-in-postgres
	eraseMember = `DELETE FROM members WHERE chat = $1 AND user_id = $2`
)

// EraseMember implements storage.Erasures.
func (s *Store) EraseMember(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	user := string(e.User)
	err = s.erasing(ctx, chat, func(ctx context.Context, m *membership) error {
		known, err := m.named(ctx, []tidemark.UserID{e.User})
		if err != nil {
			return err
		}
		if known[e.User].Intervals.Open() {
			return storage.StillMember(chat, e.User)
		}
		done = true
		count := func(tag pgconn.CommandTag) error {
			done = done && int(tag.RowsAffected()) < limit
			return nil
		}
		var some pgx.Batch
		some.Queue(renameSome, m.key, user, string(e.Alias), limit).Exec(count)
		some.Queue(unmentionSome, m.key, user, limit).Exec(count)
		if err := m.tx.SendBatch(ctx, &some).Close(); err != nil || !done {
			return err
		}
		var last pgx.Batch
		if _, was := known[e.User]; was {
			last.Queue(setMembership, m.key, m.chat.MemberCount, m.chat.Large)
		}
		last.Queue(hold, user, string(chat))
		last.Queue(unmark, user, string(chat))
		//rule:erased_nowhere.bans-in-postgres
		last.Queue(deleteBan, m.key, user)
		for _, text := range []string{eraseState, eraseSender, eraseMember} {
			last.Queue(text, m.key, user)
		}
		return m.tx.SendBatch(ctx, &last).Close()
	})
	return done && err == nil, err
}

// The statements of EraseUser. Nodes without Redis share leases. They also share tickets and rates,
// which end by their times, within minutes.
const (
	eraseRows = `DELETE FROM pending_deliveries WHERE user_id = $1 AND chat_id = ANY (ARRAY(
		SELECT chat_id FROM pending_deliveries WHERE user_id = $1 ORDER BY chat_id LIMIT $2))`
	eraseReceipts = `DELETE FROM receipts WHERE user_id = $1 AND chat = ANY (ARRAY(
		SELECT chat FROM receipts WHERE user_id = $1 ORDER BY chat LIMIT $2))`
	eraseBlocksBy = `DELETE FROM blocks WHERE user_id = $1 AND blocked_id = ANY (ARRAY(
		SELECT blocked_id FROM blocks WHERE user_id = $1 ORDER BY blocked_id LIMIT $2))`
	eraseBlocksOf = `DELETE FROM blocks WHERE blocked_id = $1 AND user_id = ANY (ARRAY(
		SELECT user_id FROM blocks WHERE blocked_id || '' = $1 LIMIT $2))`
	eraseLeases = `DELETE FROM leases WHERE user_id = $1`
)

// EraseUser implements storage.Erasures. All tables with rows of a user that belong to no chat are
// listed here.
func (s *Store) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (done bool, err error) {
	if err := storage.CheckErase(limit); err != nil {
		return false, err
	}
	err = s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			done = true
			count := func(tag pgconn.CommandTag) error {
				done = done && int(tag.RowsAffected()) < limit
				return nil
			}
			var batch pgx.Batch
			batch.Queue(eraseRows, string(user), limit).Exec(count)
			batch.Queue(eraseReceipts, string(user), limit).Exec(count)
			batch.Queue(eraseBlocksBy, string(user), limit).Exec(count)
			//rule:erased_nowhere.blocks-of-the-erased-in-postgres
			batch.Queue(eraseBlocksOf, string(user), limit).Exec(count)
			batch.Queue(eraseLeases, string(user))
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
	return done && err == nil, err
}
