package sqlite

import (
	"cmp"
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

var _ storage.CopyTarget = (*Store)(nil)

// PutLives implements storage.CopyTarget.
func (s *Store) PutLives(ctx context.Context, of []tidemark.Incarnation) error {
	all := lives.Copied(s.lives, of)
	err := s.change(ctx, func(w *writer) error {
		if err := w.c.exec(`DELETE FROM lives`); err != nil {
			return err
		}
		q, err := w.c.prepared(`INSERT INTO lives (number, id) VALUES (?, ?)`)
		if err != nil {
			return err
		}
		for _, life := range all {
			q.integer(1, life.Number)
			q.string(2, string(life.ID))
			if err := q.run(); err != nil {
				return err
			}
		}
		w.life = all[len(all)-1].Number
		return nil
	})
	if err == nil {
		s.lives = all // No other call is under way.
	}
	return err
}

// putChat overwrites the row of a chat. No member keeps a seat: who sends next takes one.
const putChat = `INSERT INTO chats (id, type, history, name, direct_key, created_at, activity_at,
		head, floor, uncounted, last_uncounted, seats, member_count, members_version, large,
		creation, version, outbox_shard, outbox_sequence, outbox_members, outbox_version,
		outbox_split, state, deleted_at, keep_days, hold, read_receipts)
	VALUES (?, ?, ?, ?, nullif(?, ''), ?, ?, ?, ?, ?, ?, '[]', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
		nullif(?, ''), nullif(?, 0), nullif(?, 0), nullif(?, 0), nullif(?, ''))
	ON CONFLICT (id) DO UPDATE SET name = excluded.name, direct_key = excluded.direct_key,
		activity_at = excluded.activity_at, head = excluded.head, floor = excluded.floor,
		uncounted = excluded.uncounted, last_uncounted = excluded.last_uncounted,
		seats = excluded.seats, member_count = excluded.member_count,
		members_version = excluded.members_version, large = excluded.large,
		creation = excluded.creation, version = excluded.version,
		outbox_shard = excluded.outbox_shard, outbox_sequence = excluded.outbox_sequence,
		outbox_members = excluded.outbox_members, outbox_version = excluded.outbox_version,
		outbox_split = excluded.outbox_split, state = excluded.state,
		deleted_at = excluded.deleted_at, keep_days = excluded.keep_days, hold = excluded.hold,
		read_receipts = excluded.read_receipts`

// PutChat implements storage.CopyTarget.
func (s *Store) PutChat(ctx context.Context, copied storage.CopiedChat) error {
	return s.change(ctx, func(w *writer) error {
		if err := w.freePair(&copied); err != nil {
			return err
		}
		q, err := w.c.prepared(putChat)
		if err != nil {
			return err
		}
		q.string(1, string(copied.ID))
		q.string(2, string(copied.Type))
		q.string(3, string(copied.History))
		q.string(4, copied.Name)
		q.string(5, copied.Pair)
		q.integer(6, copied.CreatedAt.UnixMilli())
		q.integer(7, copied.Activity.UnixMilli())
		q.integer(8, int64(copied.Head))
		q.integer(9, int64(copied.Floor))
		q.integer(10, copied.Uncounted)
		q.integer(11, int64(copied.LastUncounted))
		q.integer(12, int64(copied.MemberCount))
		q.integer(13, int64(copied.MembersVersion))
		q.integer(14, flag(copied.Large))
		q.string(15, copied.Creation)
		q.integer(16, int64(copied.Version))
		if q.null(17); copied.Open {
			q.integer(17, int64(storage.ShardOf(copied.ID)))
		}
		bindPosition(q, 18, copied.From)
		q.integer(21, flag(copied.Split))
		q.string(22, string(copied.State))
		q.integer(23, orNever(copied.DeletedAt))
		q.integer(24, int64(copied.Policy.KeepDays))
		q.integer(25, flag(copied.Policy.Hold))
		q.string(26, string(copied.Policy.Receipts))
		if err := q.run(); err != nil {
			return err
		}
		c, err := w.copied(copied.ID)
		if err != nil {
			return err
		}
		return w.putMetadata(c, copied.Metadata)
	})
}

// freePair takes the pair of a chat from another one that has it.
func (w *writer) freePair(copied *storage.CopiedChat) error {
	//rule:copy_equal.a-pair-has-one-chat-in-sqlite
	if copied.Pair == "" {
		return nil
	}
	q, err := w.c.prepared(`UPDATE chats SET direct_key = NULL WHERE direct_key = ? AND id <> ?`)
	if err != nil {
		return err
	}
	q.string(1, copied.Pair)
	q.string(2, string(copied.ID))
	return q.run()
}

// copied returns a chat that PutChat has written. What was cached of it is outdated.
func (w *writer) copied(id tidemark.ChatID) (*chat, error) {
	delete(w.chats, id)
	c, err := w.existing(id)
	delete(w.chats, id)
	return c, err
}

const (
	putCopiedMember = `INSERT OR REPLACE INTO members (chat, user_id, chat_id, current, role,
			joined_at, intervals, metadata, version, sent, last_sent)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	putCopiedState = `INSERT OR REPLACE INTO delivery_state (chat, user_id, last_acked_sequence,
			last_read_sequence, acked_at, read_at, unread_from, hidden_from, shown_at, sent_before)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	putCopiedRow = `INSERT OR REPLACE INTO pending_deliveries (chat_id, user_id,
			first_undelivered_seq) VALUES (?, ?, ?)`
	dropCopiedRow = `DELETE FROM pending_deliveries WHERE chat_id = ? AND user_id = ?`
)

// PutMembers implements storage.CopyTarget.
func (s *Store) PutMembers(
	ctx context.Context, id tidemark.ChatID, members []storage.CopiedMember,
) error {
	if err := checkBatch(len(members)); err != nil {
		return err
	}
	return s.change(ctx, func(w *writer) error {
		c, err := w.copied(id)
		for i := range members {
			if err != nil {
				return err
			}
			err = w.putCopied(c, &members[i])
		}
		return err
	})
}

// putCopied writes a member with their state and their pending row.
func (w *writer) putCopied(c *chat, m *storage.CopiedMember) error {
	q, err := w.c.prepared(putCopiedMember)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.string(2, string(m.UserID))
	q.string(3, string(c.id))
	q.integer(4, flag(m.Intervals.Open()))
	q.string(5, string(m.Role))
	q.integer(6, m.JoinedAt.UnixMilli())
	q.string(7, m.Intervals.Text())
	if q.null(8); m.Metadata != nil {
		q.string(8, string(m.Metadata))
	}
	q.integer(9, int64(m.Version))
	q.integer(10, m.Sent)
	q.integer(11, int64(m.LastSent))
	if err := q.run(); err != nil {
		return err
	}
	if err := w.putCopiedState(c, m); err != nil {
		return err
	}
	text := dropCopiedRow
	if m.Pending {
		text = putCopiedRow
	}
	if q, err = w.c.prepared(text); err != nil {
		return err
	}
	q.string(1, string(c.id))
	q.string(2, string(m.UserID))
	if m.Pending {
		q.integer(3, int64(m.FirstUndelivered))
	}
	return q.run()
}

func (w *writer) putCopiedState(c *chat, m *storage.CopiedMember) error {
	q, err := w.c.prepared(putCopiedState)
	if err != nil || m.State.Unmoved() {
		return err
	}
	q.integer(1, c.key)
	q.string(2, string(m.UserID))
	q.integer(3, int64(m.State.Acked))
	q.integer(4, int64(m.State.Read))
	q.integer(5, orNever(m.State.AckedAt))
	q.integer(6, orNever(m.State.ReadAt))
	q.integer(7, int64(m.State.UnreadFrom))
	q.integer(8, int64(m.State.HiddenFrom))
	q.integer(9, orNever(m.State.ShownAt))
	q.integer(10, m.SentBefore)
	return q.run()
}

// putCopiedMessage overwrites the message with a sequence. A key of another message is an error.
const putCopiedMessage = `INSERT INTO messages (chat, sequence, sender_id, client_message_id,
		message_id, created_at, members_version, content_type, content, kind_mentions, attachments,
		metadata, life)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (chat, sequence) DO UPDATE SET sender_id = excluded.sender_id,
		client_message_id = excluded.client_message_id, message_id = excluded.message_id,
		created_at = excluded.created_at, members_version = excluded.members_version,
		content_type = excluded.content_type, content = excluded.content,
		kind_mentions = excluded.kind_mentions, attachments = excluded.attachments,
		metadata = excluded.metadata, life = excluded.life`

// PutMessages implements storage.CopyTarget.
func (s *Store) PutMessages(
	ctx context.Context, id tidemark.ChatID, messages []storage.CopiedMessage,
) error {
	if err := cmp.Or(checkBatch(len(messages)), storage.CheckKeys(id, messages)); err != nil {
		return err
	}
	return s.change(ctx, func(w *writer) error {
		c, err := w.copied(id)
		if err != nil {
			return err
		}
		for i := range messages {
			if err := w.keyIsOf(c, &messages[i].Message); err != nil {
				return err
			}
		}
		for i := range messages {
			if err := w.putMessage(c, &messages[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// keyIsOf returns a Conflict if another message has the key of a message.
func (w *writer) keyIsOf(c *chat, m *tidemark.Message) error {
	q, err := w.c.prepared(`SELECT sequence FROM messages
		WHERE client_message_id = ? AND sender_id = ? AND chat = ?`)
	if err != nil {
		return err
	}
	q.string(1, m.ClientMessageID)
	q.string(2, string(m.SenderID))
	q.integer(3, c.key)
	known := m.Sequence
	_, err = q.one(func(row *stmt) { known = tidemark.Sequence(row.integerAt(0)) })
	if err == nil && known != m.Sequence {
		err = storage.KeyOfTwo(c.id, known, m.Sequence)
	}
	return err
}

func (w *writer) putMessage(c *chat, m *storage.CopiedMessage) error {
	q, err := w.c.prepared(putCopiedMessage)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	q.integer(2, int64(m.Sequence))
	q.string(3, string(m.SenderID))
	q.string(4, m.ClientMessageID)
	q.string(5, string(m.MessageID))
	q.integer(6, m.CreatedAt.UnixMilli())
	q.integer(7, int64(m.MembersVersion))
	q.string(8, m.ContentType)
	q.string(9, storage.ContentOf(&m.Message))
	if q.null(10); m.Kind != tidemark.KindMessage || !m.Message.Mentions.None() ||
		m.Revision != nil {
		q.string(10, kindMentions(&m.Message))
	}
	if q.null(11); m.Attachments != nil {
		q.string(11, string(m.Attachments))
	}
	if q.null(12); m.Message.Metadata != nil {
		q.string(12, string(m.Message.Metadata))
	}
	if q.null(13); m.Life > 1 {
		q.integer(13, m.Life)
	}
	if err := q.run(); err != nil {
		return err
	}
	switch {
	case m.Ordinal != 0:
		if q, err = w.c.prepared(`INSERT OR REPLACE INTO uncounted (chat, sequence, ordinal)
			VALUES (?, ?, ?)`); err != nil {
			return err
		}
		q.integer(1, c.key)
		q.integer(2, int64(m.Sequence))
		q.integer(3, m.Ordinal)
		if err := q.run(); err != nil {
			return err
		}
	default:
		if err := w.putMentions(c, m); err != nil {
			return err
		}
	}
	if m.Stands {
		return w.putStanding(c, &m.Message)
	}
	return nil
}

// putMentions writes whom a message named when it was stored.
func (w *writer) putMentions(c *chat, m *storage.CopiedMessage) error {
	names := m.MessageFacts.Mentions.Users
	if m.MessageFacts.Mentions.All {
		names = []tidemark.UserID{unread.Everyone}
	}
	for _, name := range names {
		q, err := w.c.prepared(`INSERT OR REPLACE INTO mentions (chat, user_id, sequence,
			sender_id) VALUES (?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		q.integer(1, c.key)
		q.string(2, string(name))
		q.integer(3, int64(m.Sequence))
		q.string(4, string(m.SenderID))
		if err := q.run(); err != nil {
			return err
		}
	}
	return nil
}

// putStanding writes the row of a reaction or pin, in place of one that is there.
func (w *writer) putStanding(c *chat, m *tidemark.Message) error {
	if err := w.unannotate(c, m); err != nil {
		return err
	}
	return w.annotate(c, m)
}

// drops remove all of a chat, of which ?1 is the key and ?2 the id. All tables with rows of a chat
// are listed here.
var drops = []string{
	`DELETE FROM messages WHERE chat = ?1`,
	`DELETE FROM uncounted WHERE chat = ?1`,
	`DELETE FROM mentions WHERE chat = ?1`,
	`DELETE FROM reactions WHERE chat = ?1`,
	`DELETE FROM pins WHERE chat = ?1`,
	`DELETE FROM bans WHERE chat = ?1`,
	`DELETE FROM delivery_state WHERE chat = ?1`,
	`DELETE FROM pending_deliveries WHERE chat_id = ?2
		AND user_id IN (SELECT user_id FROM members WHERE chat = ?1)`,
	`DELETE FROM receipts WHERE chat = ?1`,
	`DELETE FROM members WHERE chat = ?1`,
	`DELETE FROM chat_metadata WHERE chat = ?1`,
	`DELETE FROM chats WHERE key = ?1`,
}

// DropChat implements storage.CopyTarget.
func (s *Store) DropChat(ctx context.Context, id tidemark.ChatID) error {
	return s.change(ctx, func(w *writer) error {
		delete(w.chats, id)
		c, err := w.chat(id)
		if err != nil || c == nil {
			return err
		}
		for _, text := range drops {
			if err := w.of(c, text, 0); err != nil {
				return err
			}
		}
		delete(w.chats, id)
		return nil
	})
}
