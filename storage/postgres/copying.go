package postgres

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.CopyTarget = (*Store)(nil)

// PutLives implements storage.CopyTarget.
func (s *Store) PutLives(ctx context.Context, of []tidemark.Incarnation) error {
	all := lives.Copied(s.lives, of)
	err := s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			var batch pgx.Batch
			batch.Queue(`DELETE FROM lives`)
			for _, life := range all {
				batch.Queue(`INSERT INTO lives (number, id, identity) VALUES ($1, $2, $3)`,
					life.Number, string(life.ID), life.Identity)
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
	if err == nil {
		s.lives = all // No other call is under way.
	}
	return err
}

// The statements of PutChat. The numbers of the members with a seat stay: PutMembers writes them.
const (
	putChat = `INSERT INTO chats AS c (id, type, history, name, direct_key, created_at, activity_at,
			head, floor, uncounted, last_uncounted, member_count, members_version, large, creation,
			version, outbox_shard, outbox_sequence, outbox_members, outbox_version, outbox_split,
			state, deleted_at, keep_days, hold, read_receipts)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
			$19, $20, $21, $22, nullif($23::bigint, 0), nullif($24::integer, 0),
			nullif($25::boolean, false), nullif($26::text, ''))
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, direct_key = excluded.direct_key,
			activity_at = excluded.activity_at, head = excluded.head, floor = excluded.floor,
			uncounted = excluded.uncounted, last_uncounted = excluded.last_uncounted,
			member_count = excluded.member_count, members_version = excluded.members_version,
			large = excluded.large, creation = excluded.creation, version = excluded.version,
			outbox_shard = excluded.outbox_shard, outbox_sequence = excluded.outbox_sequence,
			outbox_members = excluded.outbox_members, outbox_version = excluded.outbox_version,
			outbox_split = excluded.outbox_split, state = excluded.state,
			deleted_at = excluded.deleted_at, keep_days = excluded.keep_days, hold = excluded.hold,
			read_receipts = excluded.read_receipts
		RETURNING key`
	freePair           = `UPDATE chats SET direct_key = NULL WHERE direct_key = $1 AND id <> $2`
	dropCopiedMetadata = `DELETE FROM chat_metadata WHERE chat = $1 AND $2::text IS NULL`
	putCopiedMetadata  = `INSERT INTO chat_metadata (chat, metadata)
		SELECT $1, $2::text WHERE $2::text IS NOT NULL
		ON CONFLICT (chat) DO UPDATE SET metadata = excluded.metadata`
)

// PutChat implements storage.CopyTarget.
func (s *Store) PutChat(ctx context.Context, copied storage.CopiedChat) error {
	var pair *string
	if copied.Pair != "" {
		pair = &copied.Pair
	}
	var shard *int16
	if copied.Open {
		number := shardOf(copied.ID)
		shard = &number
	}
	from := positionOf(copied.From)
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			//rule:copy_equal.a-pair-has-one-chat-in-postgres
			if pair != nil {
				if _, err := tx.Exec(ctx, freePair, *pair, string(copied.ID)); err != nil {
					return err
				}
			}
			var key int64
			err := tx.QueryRow(ctx, putChat, string(copied.ID), string(copied.Type),
				string(copied.History), copied.Name, pair, copied.CreatedAt.UnixMilli(),
				copied.Activity.UnixMilli(), int64(copied.Head), int64(copied.Floor),
				copied.Uncounted, int64(copied.LastUncounted), copied.MemberCount,
				int64(copied.MembersVersion), copied.Large, copied.Creation,
				int64(copied.Version), shard, from.sequence, from.members, from.version,
				copied.Split, stateOrNull(copied.State), orNever(copied.DeletedAt),
				copied.Policy.KeepDays, copied.Policy.Hold,
				string(copied.Policy.Receipts)).Scan(&key)
			if err != nil {
				return err
			}
			var batch pgx.Batch
			batch.Queue(dropCopiedMetadata, key, textOrNull(copied.Metadata))
			batch.Queue(putCopiedMetadata, key, textOrNull(copied.Metadata))
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
}

// orNever returns a time in milliseconds, 0 for the zero time.
func orNever(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

const (
	copiedChat      = `SELECT key, type FROM chats WHERE id = $1`
	putCopiedMember = `INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, seat,
			intervals, metadata, version, expired)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)
		ON CONFLICT (chat, user_id) DO UPDATE SET current = excluded.current,
			role = excluded.role, joined_at = excluded.joined_at, seat = excluded.seat,
			intervals = excluded.intervals, metadata = excluded.metadata,
			version = excluded.version, expired = excluded.expired`
	putCopiedSender = `INSERT INTO senders (chat, user_id, sent, last_sent) VALUES ($1, $2, $3, $4)
		ON CONFLICT (chat, user_id) DO UPDATE
			SET sent = excluded.sent, last_sent = excluded.last_sent`
	putCopiedSeat1 = `UPDATE chats SET sent_1 = $2, last_sent_1 = $3 WHERE key = $1`
	putCopiedSeat2 = `UPDATE chats SET sent_2 = $2, last_sent_2 = $3 WHERE key = $1`
	putCopiedState = `INSERT INTO delivery_state (chat, user_id, last_acked_sequence,
			last_read_sequence, acked_at, read_at, unread_from, hidden_from, shown_at, sent_before)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (chat, user_id) DO UPDATE
			SET last_acked_sequence = excluded.last_acked_sequence,
			last_read_sequence = excluded.last_read_sequence, acked_at = excluded.acked_at,
			read_at = excluded.read_at, unread_from = excluded.unread_from,
			hidden_from = excluded.hidden_from, shown_at = excluded.shown_at,
			sent_before = excluded.sent_before`
	putCopiedRow = `INSERT INTO pending_deliveries (user_id, chat_id, first_undelivered_seq)
		VALUES ($1, $2, $3)
		ON CONFLICT (user_id, chat_id) DO UPDATE
			SET first_undelivered_seq = excluded.first_undelivered_seq`
	dropCopiedRow = `DELETE FROM pending_deliveries WHERE user_id = $1 AND chat_id = $2`
)

// PutMembers implements storage.CopyTarget.
func (s *Store) PutMembers(
	ctx context.Context, id tidemark.ChatID, members []storage.CopiedMember,
) error {
	if err := checkBatch(len(members)); err != nil || len(members) == 0 {
		return err
	}
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			var key int64
			var kind string
			if err := tx.QueryRow(ctx, copiedChat, string(id)).Scan(&key, &kind); err != nil {
				return missing(err, id)
			}
			var batch pgx.Batch
			for i := range members {
				seat := 0
				if tidemark.ChatType(kind) == tidemark.Direct && i < 2 {
					seat = i + 1
				}
				putMember(&batch, key, id, seat, &members[i])
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
}

// putMember queues the writes of a member.
func putMember(
	batch *pgx.Batch, key int64, id tidemark.ChatID, seat int, m *storage.CopiedMember,
) {
	user := string(m.UserID)
	batch.Queue(putCopiedMember, key, user, string(id), m.Intervals.Open(), string(m.Role),
		m.JoinedAt.UnixMilli(), seat, m.Intervals.Text(), textOrNull(m.Metadata),
		int64(m.Version))
	switch {
	case seat == 1:
		batch.Queue(putCopiedSeat1, key, m.Sent, int64(m.LastSent))
	case seat == 2:
		batch.Queue(putCopiedSeat2, key, m.Sent, int64(m.LastSent))
	case m.Sent > 0:
		batch.Queue(putCopiedSender, key, user, m.Sent, int64(m.LastSent))
	}
	if st := &m.State; !st.Unmoved() {
		batch.Queue(putCopiedState, key, user, int64(st.Acked), int64(st.Read),
			orNever(st.AckedAt), orNever(st.ReadAt), int64(st.UnreadFrom), int64(st.HiddenFrom),
			orNever(st.ShownAt), m.SentBefore)
	}
	if m.Pending {
		batch.Queue(putCopiedRow, user, string(id), int64(m.FirstUndelivered))
	} else {
		batch.Queue(dropCopiedRow, user, string(id))
	}
}

const (
	keysOfOthers = `SELECT m.sequence, d.sequence
		FROM unnest($2::bigint[], $3::text[], $4::text[])
			AS d (sequence, sender_id, client_message_id)
		CROSS JOIN LATERAL (SELECT sequence FROM messages
			WHERE client_message_id = d.client_message_id AND sender_id = d.sender_id
				AND chat + 0 = $1::bigint LIMIT 1) AS m
		WHERE m.sequence <> d.sequence LIMIT 1`
	putCopiedMessage = `INSERT INTO messages (chat, sequence, created_at, members_version,
			sender_id, client_message_id, message_id, content_type, kind, life, mentions,
			attachments, metadata, content, relation, revision)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
		ON CONFLICT (chat, sequence) DO UPDATE SET created_at = excluded.created_at,
			members_version = excluded.members_version, sender_id = excluded.sender_id,
			client_message_id = excluded.client_message_id, message_id = excluded.message_id,
			content_type = excluded.content_type, kind = excluded.kind, life = excluded.life,
			mentions = excluded.mentions, attachments = excluded.attachments,
			metadata = excluded.metadata, content = excluded.content,
			relation = excluded.relation, revision = excluded.revision`
	putCopiedOrdinal = `INSERT INTO uncounted (chat, sequence, ordinal) VALUES ($1, $2, $3)
		ON CONFLICT (chat, sequence) DO UPDATE SET ordinal = excluded.ordinal`
	putCopiedMention = `INSERT INTO mentions (chat, user_id, sequence, sender_id)
		VALUES ($1, $2, $3, $4)
		ON CONFLICT (chat, user_id, sequence) DO UPDATE SET sender_id = excluded.sender_id`
	putCopiedReaction = `INSERT INTO reactions (chat, target, user_id, emoji, sequence, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (chat, target, user_id, emoji) DO UPDATE
			SET sequence = excluded.sequence, created_at = excluded.created_at`
	putCopiedPin = `INSERT INTO pins (chat, target, user_id, sequence, created_at)
		VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (chat, target) DO UPDATE SET user_id = excluded.user_id,
			sequence = excluded.sequence, created_at = excluded.created_at`
)

// PutMessages implements storage.CopyTarget.
func (s *Store) PutMessages(
	ctx context.Context, id tidemark.ChatID, messages []storage.CopiedMessage,
) error {
	err := cmp.Or(checkBatch(len(messages)), storage.CheckKeys(id, messages))
	if err != nil || len(messages) == 0 {
		return err
	}
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			var key int64
			var kind string
			if err := tx.QueryRow(ctx, copiedChat, string(id)).Scan(&key, &kind); err != nil {
				return missing(err, id)
			}
			if err := keysAreFree(ctx, c, key, id, messages); err != nil {
				return err
			}
			var batch pgx.Batch
			for i := range messages {
				putMessage(&batch, key, &messages[i])
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
}

// keysAreFree returns a Conflict if other messages have the keys of messages.
func keysAreFree(
	ctx context.Context, c *conn, key int64, id tidemark.ChatID, messages []storage.CopiedMessage,
) error {
	n := len(messages)
	sequences, senders, keys := make([]int64, n), make([]string, n), make([]string, n)
	for i := range messages {
		m := &messages[i]
		sequences[i], senders[i] = int64(m.Sequence), string(m.SenderID)
		keys[i] = m.ClientMessageID
	}
	var conflict error
	err := c.each(ctx, keysOfOthers, []any{key, sequences, senders, keys},
		func(row pgx.Rows) error {
			var one, other int64
			err := row.Scan(&one, &other)
			conflict = storage.KeyOfTwo(id, tidemark.Sequence(one), tidemark.Sequence(other))
			return err
		})
	return cmp.Or(err, conflict)
}

// putMessage queues the writes of a message.
func putMessage(batch *pgx.Batch, key int64, m *storage.CopiedMessage) {
	sequence, sender := int64(m.Sequence), string(m.SenderID)
	var kind, mentions, revision *string
	var life, relation *int64
	if m.Kind != tidemark.KindMessage {
		kind = textOf(string(m.Kind))
	}
	if !m.Message.Mentions.None() {
		mentions = textOf(m.Message.Mentions.Text())
	}
	if m.Revision != nil {
		revision = textOf(m.Revision.Text())
	}
	if m.Life > 1 {
		life = &m.Life
	}
	if m.Relation != nil {
		target := int64(storage.RelatedTo(m.Relation))
		relation = &target
	}
	batch.Queue(putCopiedMessage, key, sequence, m.CreatedAt.UnixMilli(), int64(m.MembersVersion),
		sender, m.ClientMessageID, string(m.MessageID), m.ContentType, kind, life, mentions,
		textOrNull(m.Attachments), textOrNull(m.Message.Metadata), storage.ContentOf(&m.Message),
		relation, revision)
	names := m.MessageFacts.Mentions.Users
	if m.MessageFacts.Mentions.All {
		names = []tidemark.UserID{unread.Everyone}
	}
	if m.Ordinal != 0 {
		batch.Queue(putCopiedOrdinal, key, sequence, m.Ordinal)
		names = nil
	}
	for _, name := range names {
		batch.Queue(putCopiedMention, key, string(name), sequence, sender)
	}
	switch {
	case m.Stands && m.Kind == tidemark.KindReact:
		batch.Queue(putCopiedReaction, key, *relation, sender, m.Relation.Emoji, sequence,
			m.CreatedAt.UnixMilli())
	case m.Stands:
		batch.Queue(putCopiedPin, key, *relation, sender, sequence, m.CreatedAt.UnixMilli())
	}
}

func textOf(text string) *string { return &text }

// drops remove all of a chat, of which $1 is the key. All tables with rows of a chat are listed
// here, beside unmarkMembers.
var drops = []string{
	`DELETE FROM messages WHERE chat = $1`,
	`DELETE FROM uncounted WHERE chat = $1`,
	`DELETE FROM mentions WHERE chat = $1`,
	`DELETE FROM reactions WHERE chat = $1`,
	`DELETE FROM pins WHERE chat = $1`,
	`DELETE FROM bans WHERE chat = $1`,
	`DELETE FROM delivery_state WHERE chat = $1`,
	`DELETE FROM receipts WHERE chat = $1`,
	`DELETE FROM senders WHERE chat = $1`,
	`DELETE FROM members WHERE chat = $1`,
	`DELETE FROM chat_metadata WHERE chat = $1`,
	`DELETE FROM chats WHERE key = $1`,
}

// DropChat implements storage.CopyTarget. A chat may have more messages than one call has time to
// remove (Config.Patience). So these go first, in steps.
func (s *Store) DropChat(ctx context.Context, id tidemark.ChatID) error {
	for {
		left, err := s.dropSome(ctx, id)
		if err != nil || !left {
			return err
		}
	}
}

// dropSome removes some messages of a chat, with what is stored beside them, or the rest of the
// chat if there are few. left reports that it must be called again.
func (s *Store) dropSome(ctx context.Context, id tidemark.ChatID) (left bool, err error) {
	err = s.change(ctx, func(ctx context.Context, c *conn) error {
		return c.transaction(ctx, func(tx pgx.Tx) error {
			left = false
			var key int64
			var kind string
			err := tx.QueryRow(ctx, copiedChat, string(id)).Scan(&key, &kind)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			var low, high int64
			if err == nil {
				err = tx.QueryRow(ctx, firstMessages, key, storage.MaxExpired).Scan(&low, &high)
			}
			if err != nil {
				return err
			}
			count := func(tag pgconn.CommandTag) error {
				//rule:copy_equal.drop-in-steps-in-postgres
				left = left || tag.RowsAffected() >= storage.MaxExpired
				return nil
			}
			var batch pgx.Batch
			batch.Queue(removeMessages, key, low, high).Exec(count)
			for _, text := range []string{purgeUncounted, purgeMentions, purgeReactions} {
				batch.Queue(text, key, storage.MaxExpired).Exec(count)
			}
			if err := tx.SendBatch(ctx, &batch).Close(); err != nil || left {
				return err
			}
			batch = pgx.Batch{}
			batch.Queue(unmarkMembers, key, string(id))
			for _, text := range drops {
				batch.Queue(text, key)
			}
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
	return left && err == nil, err
}
