package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// finishImport makes a locked chat live.
//
//rule:importing_is_closed.raise-the-version-in-postgres
const finishImport = `UPDATE chats AS c
	SET state = nullif($2::text, ''), members_version = members_version + 1, ` + opened + `
	WHERE key = $1`

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	return s.locked(ctx, id, func(ctx context.Context, m *membership) error {
		changes, err := storage.Finishes(id, m.chat.State)
		if err != nil || !changes {
			return err
		}
		state := tidemark.ChatLive
		if m.chat.Type == tidemark.Direct {
			if state, err = m.closing(ctx); err != nil {
				return err
			}
		}
		_, err = m.tx.Exec(ctx, finishImport, m.key, string(state))
		return err
	})
}

// alive returns the NotFound of a chat that was deleted, and nil for any other one.
func alive(row *chatRow) error {
	if tidemark.ChatState(row.state) == tidemark.ChatDeleted {
		return storage.WasDeleted(tidemark.ChatID(row.id))
	}
	return nil
}

// The statements of DeleteChat. The transaction has locked the chat.
const (
	deleteChat = `UPDATE chats AS c SET state = 'deleted', deleted_at = $2, floor = $3,
			version = $4, members_version = $5, member_count = 0, name = '', creation = '',
			direct_key = NULL, keep_days = NULL, hold = NULL, read_receipts = NULL, ` + opened + `
		WHERE key = $1`
	undescribe = `DELETE FROM chat_metadata WHERE chat = $1`
	// unmarkMembers removes the pending rows. The key of their table begins with the user.
	unmarkMembers = `DELETE FROM pending_deliveries WHERE chat_id = $2
		AND user_id = ANY (ARRAY(SELECT user_id FROM members WHERE chat = $1 ORDER BY user_id))`
	//rule:deleted_is_gone.end-memberships-in-postgres
	endMembers = `UPDATE members SET current = false, metadata = NULL
		WHERE chat = $1 AND current::int = 1`
)

// DeleteChat implements storage.Deletions. The same transaction ends the memberships and removes
// the pending rows. So reads that begin with these need not check the state.
func (s *Store) DeleteChat(
	ctx context.Context, id tidemark.ChatID, now time.Time,
) (storage.Deleted, error) {
	var deleted storage.Deleted
	err := s.locked(ctx, id, func(ctx context.Context, m *membership) error {
		if m.chat.State == tidemark.ChatDeleted {
			deleted = storage.DeletedOf(&m.chat)
			return nil
		}
		//rule:held_is_kept.no-deletion-in-postgres
		if err := storage.OnHold(id, m.chat.Policy); err != nil {
			return err
		}
		after := storage.Delete(m.chat, timeOf(now.UnixMilli()))
		deleted = storage.DeletedOf(&after)
		var batch pgx.Batch
		batch.Queue(deleteChat, m.key, after.DeletedAt.UnixMilli(), int64(after.Floor),
			int64(after.Version), int64(after.MembersVersion))
		batch.Queue(undescribe, m.key)
		batch.Queue(unmarkMembers, m.key, string(id))
		batch.Queue(endMembers, m.key)
		return m.tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return storage.Deleted{}, err
	}
	return deleted, nil
}

// The statements of PurgeChat remove at most $2 rows each. They select the rows in the order of a
// primary key, and delete them by their places. The additions of 0 keep the planner from choosing
// an index for the chat.
const (
	// firstMessages returns between which sequences the first messages of a chat are. Then
	// removeMessages removes them.
	firstMessages = `SELECT coalesce(min(sequence), 0), coalesce(max(sequence), 0)
		FROM (SELECT sequence FROM messages WHERE chat = $1 ORDER BY sequence LIMIT $2) AS m`
	purgeUncounted = `DELETE FROM uncounted WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM uncounted WHERE chat = $1 ORDER BY sequence LIMIT $2))`
	purgeMentions = `DELETE FROM mentions WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM mentions WHERE chat = $1 ORDER BY user_id, sequence LIMIT $2))`
	purgeReactions = `DELETE FROM reactions WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM reactions WHERE chat = $1 ORDER BY target, user_id, emoji LIMIT $2))`
	purgePins = `DELETE FROM pins WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM pins WHERE chat = $1 ORDER BY target LIMIT $2))`
	purgeSenders = `DELETE FROM senders WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM senders WHERE chat = $1 ORDER BY user_id LIMIT $2))`
	purgeStates = `DELETE FROM delivery_state WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM delivery_state WHERE chat = $1 ORDER BY user_id LIMIT $2))`
	// purgeRows removes the pending rows of the members whom purgeMembers removes next.
	purgeRows = `DELETE FROM pending_deliveries WHERE chat_id = $3 AND user_id = ANY (ARRAY(
		SELECT user_id FROM members WHERE chat = $1 ORDER BY user_id LIMIT $2))`
	purgeBans = `DELETE FROM bans WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM bans WHERE chat = $1 ORDER BY user_id LIMIT $2))`
	// purgeReceipts removes their settings.
	purgeReceipts = `DELETE FROM receipts WHERE chat = $1 AND user_id = ANY (ARRAY(
		SELECT user_id FROM members WHERE chat = $1 ORDER BY user_id LIMIT $2))`
	purgeMembers = `DELETE FROM members WHERE chat + 0 = $1 AND ctid = ANY (ARRAY(
		SELECT ctid FROM members WHERE chat = $1 ORDER BY user_id LIMIT $2))`
)

// PurgeChat implements storage.Deletions.
func (s *Store) PurgeChat(
	ctx context.Context, id tidemark.ChatID, limit int, members bool,
) (removed int, done bool, err error) {
	err = s.locked(ctx, id, func(ctx context.Context, m *membership) error {
		if err := storage.CheckPurge(id, m.chat.State, limit); err != nil {
			return err
		}
		var low, high int64
		if err := m.tx.QueryRow(ctx, firstMessages, m.key, limit).Scan(&low, &high); err != nil {
			return err
		}
		removed, done = 0, true
		count := func(tag pgconn.CommandTag) error {
			n := int(tag.RowsAffected())
			removed, done = removed+n, done && n < limit
			return nil
		}
		var batch pgx.Batch
		batch.Queue(removeMessages, m.key, low, high).Exec(count)
		batch.Queue(purgeUncounted, m.key, limit).Exec(count)
		batch.Queue(purgeMentions, m.key, limit).Exec(count)
		//rule:deleted_is_gone.purge-reactions-in-postgres
		batch.Queue(purgeReactions, m.key, limit).Exec(count)
		batch.Queue(purgePins, m.key, limit).Exec(count)
		if members {
			batch.Queue(purgeSenders, m.key, limit).Exec(count)
			batch.Queue(purgeBans, m.key, limit).Exec(count)
			batch.Queue(purgeStates, m.key, limit).Exec(count)
			batch.Queue(purgeRows, m.key, limit, string(id)).Exec(count)
			batch.Queue(purgeReceipts, m.key, limit).Exec(count)
			batch.Queue(purgeMembers, m.key, limit).Exec(count)
		}
		return m.tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return 0, false, err
	}
	return removed, done, nil
}
