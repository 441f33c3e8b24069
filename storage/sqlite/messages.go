package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite/internal/health"
)

// messageColumns are the columns that scanMessage reads.
const messageColumns = `sequence, sender_id, client_message_id, message_id, created_at,
	members_version, content_type, kind_mentions, attachments, metadata, content`

// scanMessage reads a message. Its texts share one allocation. before is the sender of the previous
// message, who often sent this one, too.
func scanMessage(
	row *stmt, chat tidemark.ChatID, before tidemark.UserID,
) (m tidemark.Message, err error) {
	key, id, content := row.Column(2), row.Column(3), row.Column(10)
	var b strings.Builder
	b.Grow(len(key) + len(id) + len(content))
	b.Write(key)
	b.Write(id)
	b.Write(content)
	texts, ids := b.String(), len(key)+len(id)
	m = tidemark.Message{
		ChatID:          chat,
		Sequence:        tidemark.Sequence(row.integerAt(0)),
		SenderID:        before,
		ClientMessageID: texts[:len(key)],
		MessageID:       tidemark.MessageID(texts[len(key):ids]),
		CreatedAt:       timeOf(row.integerAt(4)),
		MembersVersion:  uint64(row.integerAt(5)),
		ContentType:     contentTypeAt(row, 6),
		Kind:            tidemark.KindMessage,
		Content:         texts[ids:],
	}
	if sender := row.Column(1); string(sender) != string(before) {
		m.SenderID = tidemark.UserID(sender)
	}
	if !row.nullAt(7) {
		err = cmp.Or(parseKindMentions(&m, row.stringAt(7)), storage.TakeRelation(&m))
	}
	if !row.nullAt(8) {
		m.Attachments = row.bytesAt(8)
	}
	if !row.nullAt(9) {
		m.Metadata = row.bytesAt(9)
	}
	return m, err
}

// contentTypeAt returns column i as a content type. It makes no copy of the usual one.
func contentTypeAt(row *stmt, i int) string {
	if b := row.Column(i); string(b) != tidemark.DefaultContentType {
		return string(b)
	}
	return tidemark.DefaultContentType
}

// Append implements storage.Messages.
func (s *Store) Append(ctx context.Context, drafts []tidemark.Draft) ([]storage.Appended, error) {
	if err := checkBatch(len(drafts)); err != nil || len(drafts) == 0 {
		return nil, err
	}
	results := make([]storage.Appended, len(drafts))
	err := s.change(ctx, func(w *writer) error {
		var behind storage.HeldBack
		for i := range drafts {
			draft := drafts[i]
			draft.CreatedAt = timeOf(draft.CreatedAt.UnixMilli())
			appended, err := w.append(&draft, &behind)
			switch {
			case refused(err):
				results[i] = storage.Appended{Err: err}
			case err != nil:
				return err
			default:
				results[i] = appended
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// refused reports whether err refuses one draft, and the database works.
func refused(err error) bool {
	switch tidemark.CodeOf(err) {
	case tidemark.NotFound, tidemark.NotMember, tidemark.Denied, tidemark.Conflict:
		return true
	}
	return false
}

// append stores the draft, or returns the message that has its key. For a member who may send, the
// statement that stores the message also checks the key, by the unique index. For any other sender,
// for relations, and behind a refusal of an importer's draft, append looks the key up first. What
// the state of the chat refuses is an Err of its result. behind is that of the call.
func (w *writer) append(
	d *tidemark.Draft, behind *storage.HeldBack,
) (storage.Appended, error) {
	c, err := w.chat(d.ChatID)
	if err != nil {
		return storage.Appended{}, err
	}
	if c == nil {
		return storage.Appended{}, noChat(d.ChatID)
	}
	//rule:importing_is_closed.ask-the-state-first-in-sqlite
	if err := storage.MayAppend(c.state, d); err != nil {
		return storage.Appended{Err: err}, nil
	}
	from, err := w.sender(c, d.SenderID)
	if err != nil {
		return storage.Appended{}, err
	}
	//rule:import_once.nothing-behind-a-refusal-in-sqlite
	held := behind.Judge(d, nil)
	//rule:blocked_is_closed.refuse-after-the-key-in-sqlite
	closed := storage.MayWrite(c.state, d)
	//rule:nothing_outside_membership.members-only-append-in-sqlite
	if from != nil && closed == nil && !d.Kind.Relates() && held == nil {
		m := d.Message(c.head+1, c.version)
		stored, err := w.insert(c, &m)
		if err != nil {
			return storage.Appended{}, err
		}
		if stored {
			return w.appended(c, from, d, m)
		}
	}
	//rule:send_idempotent.key-lookup
	message, found, err := w.c.byKey(c.key, storage.SendKeyOf(d))
	switch {
	case err != nil:
		return storage.Appended{}, err
	case !found && held != nil:
		return storage.Appended{}, held
	case !found && from != nil && closed != nil:
		return storage.Appended{}, behind.Judge(d, closed)
	//rule:erasure_is_announced.sender-is-no-member-in-sqlite
	case !found && from == nil && d.ByServer:
		return w.relate(c, nil, d)
	//rule:send_idempotent.key-of-relation-in-sqlite
	case !found && from != nil:
		appended, err := w.relate(c, from, d)
		return appended, behind.Judge(d, err)
	case !found:
		m, _, err := w.member(c, d.SenderID)
		if err == nil {
			err = storage.NotSender(d.ChatID, d.SenderID, m.Intervals.Open())
		}
		return storage.Appended{}, behind.Judge(d, err)
	}
	if r := message.Relation; message.Kind.Revises() && r.Sequences == nil {
		if r.Target, err = w.target(c, r.Sequence); err != nil {
			return storage.Appended{}, err
		}
	}
	//rule:send_idempotent.equal-key-equal-content-in-sqlite
	if err := message.Repeats(d); err != nil {
		return storage.Appended{}, err
	}
	//rule:nothing_outside_membership.duplicate-has-current-version
	return storage.Appended{Message: message, Duplicate: true, Version: c.version}, nil
}

// appended counts the message that has just been stored, and returns it.
func (w *writer) appended(
	c *chat, from *sender, d *tidemark.Draft, m tidemark.Message,
) (storage.Appended, error) {
	w.sends++
	w.moveHead(c, d.CreatedAt.UnixMilli())
	err := w.count(c, from, d)
	return storage.Appended{Message: m, Version: c.version, RowsVersion: c.rows}, err
}

const (
	// insertPlain stores a message whose other columns are NULL, like most messages. It is cheaper,
	// because each parameter costs CPU, also one that is NULL.
	insertPlain = `INSERT INTO messages (chat, sequence, sender_id, client_message_id, message_id,
			created_at, members_version, content_type, content)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (client_message_id, sender_id, chat) DO NOTHING`
	insertAny = `INSERT INTO messages (chat, sequence, sender_id, client_message_id, message_id,
			created_at, members_version, content_type, content, kind_mentions, attachments,
			metadata, life)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (client_message_id, sender_id, chat) DO NOTHING`
)

// insert stores the next message of a chat, unless its key is known.
func (w *writer) insert(c *chat, m *tidemark.Message) (stored bool, err error) {
	marked := m.Kind != tidemark.KindMessage || !m.Mentions.None()
	//rule:restore_is_noticed.message-has-its-life-in-sqlite
	plain := w.life <= 1 && !marked && m.Attachments == nil && m.Metadata == nil
	text := insertAny
	if plain {
		text = insertPlain
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return false, err
	}
	q.integer(1, c.key)
	q.integer(2, int64(m.Sequence))
	q.string(3, string(m.SenderID))
	q.string(4, m.ClientMessageID)
	q.string(5, string(m.MessageID))
	q.integer(6, m.CreatedAt.UnixMilli())
	q.integer(7, int64(m.MembersVersion))
	q.string(8, m.ContentType)
	q.string(9, storage.ContentOf(m))
	if !plain {
		if q.null(10); marked {
			q.string(10, kindMentions(m))
		}
		if q.null(11); m.Attachments != nil {
			q.string(11, string(m.Attachments))
		}
		if q.null(12); m.Metadata != nil {
			q.string(12, string(m.Metadata))
		}
		q.integer(13, w.life)
	}
	if err := q.run(); err != nil {
		return false, err
	}
	return w.c.Changes() > 0, nil
}

// Sent implements storage.Messages.
func (s *Store) Sent(
	ctx context.Context, key storage.SendKey,
) (appended storage.Appended, found bool, err error) {
	err = s.read(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT key, members_version, state FROM chats WHERE id = ?`)
		if err != nil {
			return err
		}
		q.string(1, string(key.Chat))
		var chat int64
		var version uint64
		var state tidemark.ChatState
		known, err := q.one(func(row *stmt) {
			chat, version = row.integerAt(0), uint64(row.integerAt(1))
			state = tidemark.ChatState(row.stringAt(2))
		})
		switch {
		case err != nil:
		case !known:
			err = noChat(key.Chat)
		//rule:deleted_is_gone.no-message-under-its-key
		case state == tidemark.ChatDeleted:
			err = storage.WasDeleted(key.Chat)
		}
		if err != nil {
			return err
		}
		if appended.Message, found, err = c.byKey(chat, key); found && err == nil {
			appended.Duplicate, appended.Version = true, version
			err = storage.Relate(ctx, &appended, c.pages)
		}
		return err
	})
	return appended, found, err
}

// byKey returns the message with an idempotency key. chat is the key of its chat's row.
func (c *conn) byKey(
	chat int64, key storage.SendKey,
) (m tidemark.Message, found bool, err error) {
	q, err := c.prepared(`SELECT ` + messageColumns +
		` FROM messages WHERE client_message_id = ? AND sender_id = ? AND chat = ?`)
	if err != nil {
		return m, false, err
	}
	q.string(1, key.ClientMessageID)
	q.string(2, string(key.Sender))
	q.integer(3, chat)
	return q.message(key.Chat)
}

// message returns a message of a chat by its sequence.
func (c *conn) message(
	key int64, chat tidemark.ChatID, n tidemark.Sequence,
) (m tidemark.Message, found bool, err error) {
	q, err := c.prepared(`SELECT ` + messageColumns +
		` FROM messages WHERE chat = ? AND sequence = ?`)
	if err != nil {
		return m, false, err
	}
	q.integer(1, key)
	q.integer(2, int64(n))
	return q.message(chat)
}

// message returns the first row as a message, if there is one.
func (s *stmt) message(chat tidemark.ChatID) (m tidemark.Message, found bool, err error) {
	var bad error
	found, err = s.one(func(row *stmt) { m, bad = scanMessage(row, chat, "") })
	return m, found, cmp.Or(err, bad)
}

const (
	rangeUp = `SELECT ` + messageColumns + ` FROM messages
		WHERE chat = ? AND sequence >= ? AND sequence <= ? ORDER BY sequence LIMIT ?`
	rangeDown = `SELECT ` + messageColumns + ` FROM messages
		WHERE chat = ? AND sequence >= ? AND sequence <= ? ORDER BY sequence DESC LIMIT ?`
)

// Ranges implements storage.Messages. It runs one statement per range and relation, all on one
// connection.
func (s *Store) Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error) {
	if err := checkBatch(len(ranges)); err != nil {
		return nil, err
	}
	var pages [][]tidemark.Message
	err := s.read(ctx, func(c *conn) (err error) {
		pages, err = storage.Related(ctx, ranges, c.pages)
		return err
	})
	if err != nil {
		return nil, err
	}
	return pages, nil
}

// pages reads ranges without the targets of relations (storage.Read).
func (c *conn) pages(
	_ context.Context, ranges []storage.Range,
) (pages [][]tidemark.Message, err error) {
	pages = make([][]tidemark.Message, len(ranges))
	for i := range ranges {
		if pages[i], err = c.messages(&ranges[i]); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// Observe implements storage.Messages. No other process stores anything.
func (s *Store) Observe(*tidemark.Message) {}

// mostRoom bounds the messages for which a read has room from the beginning. MaxBytes may end the
// range sooner.
const mostRoom = 128

// messages reads one range. All messages from the chat's floor up to its head must exist. So a
// missing message means that the file is damaged, never that the chat ends there.
func (c *conn) messages(r *storage.Range) ([]tidemark.Message, error) {
	for {
		b, err := c.bounds(r.Chat)
		if err != nil {
			return nil, err
		}
		found, missing, err := c.between(r, b)
		if err != nil || missing == 0 {
			return found, err
		}
		// It may have expired since the floor was read.
		now, err := c.bounds(r.Chat)
		if err != nil {
			return nil, err
		}
		//rule:floor_recorded.rows-before-the-floor-in-sqlite
		if now.floor == b.floor {
			//rule:sequence_gapless.report-missing-end
			return nil, health.Missing(r.Chat, missing)
		}
	}
}

// between reads one range within the bounds of its chat. missing is a message that it did not find,
// or 0.
func (c *conn) between(
	r *storage.Range, b bounds,
) (messages []tidemark.Message, missing tidemark.Sequence, err error) {
	//rule:sync_position_from_watermark.range-starts-behind-after-in-sqlite
	text, low, high := rangeUp, max(r.After+1, b.floor), b.head
	next, last, step := low, high, tidemark.Sequence(1)
	if r.Before != 0 {
		text, high = rangeDown, min(b.head, r.Before-1)
		next, last, step = high, low, ^tidemark.Sequence(0)
	}
	if low > high {
		return nil, 0, nil
	}
	q, err := c.prepared(text)
	if err != nil {
		return nil, 0, err
	}
	q.integer(1, b.key)
	q.integer(2, int64(low))
	q.integer(3, int64(high))
	q.integer(4, int64(r.Limit))
	room := min(high-low+1, tidemark.Sequence(r.Limit), mostRoom)
	messages = make([]tidemark.Message, 0, room)
	size, whole := 0, false
	var sender tidemark.UserID
	var bad error
	err = q.each(func(row *stmt) bool {
		var m tidemark.Message
		if m, bad = scanMessage(row, r.Chat, sender); bad != nil {
			return false
		}
		sender = m.SenderID
		//rule:session_in_order.stop-at-hole
		if m.Sequence != next {
			return false
		}
		messages = append(messages, m)
		size += m.Size()
		whole = m.Sequence == last || len(messages) == r.Limit ||
			r.MaxBytes != 0 && size >= r.MaxBytes
		next += step
		return !whole
	})
	if err = cmp.Or(err, bad); err != nil {
		return nil, 0, err
	}
	if !whole {
		return nil, next, nil
	}
	if r.Before != 0 {
		slices.Reverse(messages)
	}
	return messages, 0, nil
}

// bounds are between which sequences a chat has messages. key is that of its row.
type bounds struct {
	key         int64
	floor, head tidemark.Sequence
}

// bounds returns the bounds of a chat, or zeros if there is none.
func (c *conn) bounds(chat tidemark.ChatID) (b bounds, err error) {
	q, err := c.prepared(`SELECT key, floor, head FROM chats WHERE id = ?`)
	if err != nil {
		return b, err
	}
	q.string(1, string(chat))
	_, err = q.one(func(row *stmt) {
		b = bounds{
			row.integerAt(0), tidemark.Sequence(row.integerAt(1)),
			tidemark.Sequence(row.integerAt(2)),
		}
	})
	return b, err
}
