package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// chatColumns are the columns that scanChat reads.
const chatColumns = `c.id, c.type, c.name, c.history, c.created_at, c.head, c.member_count,
	c.members_version, c.large, c.creation, c.version, c.floor,
	(SELECT metadata FROM chat_metadata WHERE chat = c.key), c.state,
	c.deleted_at, c.keep_days, c.hold, c.read_receipts`

// chatWidth is the number of chatColumns.
const chatWidth = 18

func scanChat(row *stmt) tidemark.Chat {
	chat := tidemark.Chat{
		ID:             tidemark.ChatID(row.stringAt(0)),
		Type:           tidemark.ChatType(row.stringAt(1)),
		Name:           row.stringAt(2),
		History:        tidemark.HistoryMode(row.stringAt(3)),
		CreatedAt:      timeOf(row.integerAt(4)),
		Head:           tidemark.Sequence(row.integerAt(5)),
		MemberCount:    int(row.integerAt(6)),
		MembersVersion: uint64(row.integerAt(7)),
		Large:          row.integerAt(8) != 0,
		Creation:       row.stringAt(9),
		Version:        uint64(row.integerAt(10)),
		Floor:          tidemark.Sequence(row.integerAt(11)),
		State:          tidemark.ChatState(row.stringAt(13)),
		DeletedAt:      timeOrNever(row.integerAt(14)),
		Policy:         scanPolicy(row, 15),
	}
	if !row.nullAt(12) {
		chat.Metadata = row.bytesAt(12)
	}
	return chat
}

// scanPolicy returns the policy that the columns keep_days, hold and read_receipts have. The first
// of them is i.
func scanPolicy(row *stmt, i int) tidemark.Policy {
	return tidemark.Policy{
		KeepDays: int(row.integerAt(i)), Hold: row.integerAt(i+1) != 0,
		Receipts: tidemark.ReceiptsPolicy(row.stringAt(i + 2)),
	}
}

// timeOf converts a column to a time.
func timeOf(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }

// flag converts a boolean to a column.
func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// CreateChat implements storage.Chats.
func (s *Store) CreateChat(ctx context.Context, new storage.NewChat) (tidemark.Chat, bool, error) {
	var chat tidemark.Chat
	var created bool
	err := s.change(ctx, func(w *writer) (err error) {
		chat, created, err = w.createChat(new)
		return err
	})
	if err != nil {
		return tidemark.Chat{}, false, err
	}
	return chat, created, nil
}

func (w *writer) createChat(new storage.NewChat) (tidemark.Chat, bool, error) {
	if err := w.flush(); err != nil {
		return tidemark.Chat{}, false, err
	}
	pair := ""
	if new.Type == tidemark.Direct {
		pair = tidemark.DirectKey(new.Members[0], new.Members[1])
		chat, found, err := oneChat(w.c,
			`SELECT `+chatColumns+` FROM chats AS c WHERE c.direct_key = ?`, pair)
		if err != nil || found {
			return chat, false, err
		}
		if err := w.mayOpen(new); err != nil {
			return tidemark.Chat{}, false, err
		}
	}
	if taken, err := w.chat(new.ID); err != nil {
		return tidemark.Chat{}, false, err
	} else if taken != nil {
		return tidemark.Chat{}, false, storage.Taken(new.ID)
	}
	chat := new.Chat(timeOf(new.CreatedAt.UnixMilli()))
	if err := w.insertChat(chat, pair); err != nil {
		return tidemark.Chat{}, false, err
	}
	row, err := w.chat(new.ID)
	if err == nil && chat.Metadata != nil {
		err = w.putMetadata(row, chat.Metadata)
	}
	if err != nil {
		return tidemark.Chat{}, false, err
	}
	for i, user := range new.Members {
		m := tidemark.Member{
			UserID:    user,
			Role:      tidemark.Ordinary,
			JoinedAt:  chat.CreatedAt,
			Intervals: tidemark.Intervals{{From: 1}},
		}
		if user == new.Creator {
			m.Role = tidemark.Owner
		}
		seat := 0
		if chat.Type == tidemark.Direct {
			seat = i + 1
		}
		if err := w.putMember(row, m, seat, row.version); err != nil {
			return tidemark.Chat{}, false, err
		}
	}
	if chat.Large {
		if err := w.addStandingRows(row); err != nil {
			return tidemark.Chat{}, false, err
		}
	}
	return chat, true, nil
}

// insertChat stores a new chat. pair is "" for a group.
func (w *writer) insertChat(chat tidemark.Chat, pair string) error {
	q, err := w.c.prepared(`INSERT INTO chats (id, type, history, name, direct_key, created_at,
			activity_at, member_count, large, creation, seats, outbox_shard, state)
		VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`)
	if err != nil {
		return err
	}
	q.string(1, string(chat.ID))
	q.string(2, string(chat.Type))
	q.string(3, string(chat.History))
	q.string(4, chat.Name)
	if q.null(5); pair != "" {
		q.string(5, pair)
	}
	q.integer(6, chat.CreatedAt.UnixMilli())
	q.integer(7, int64(chat.MemberCount))
	q.integer(8, flag(chat.Large))
	q.string(9, chat.Creation)
	var seats []*tally
	if chat.Type == tidemark.Direct {
		seats = []*tally{{}, {}}
	}
	q.string(10, seatsText(seats))
	q.integer(11, int64(storage.ShardOf(chat.ID)))
	if q.null(12); chat.State != tidemark.ChatLive {
		q.string(12, string(chat.State))
	}
	return q.run()
}

// oneChat runs a statement with one text parameter that finds at most one chat.
func oneChat(c *conn, text, parameter string) (chat tidemark.Chat, found bool, err error) {
	q, err := c.prepared(text)
	if err != nil {
		return chat, false, err
	}
	q.string(1, parameter)
	found, err = q.one(func(row *stmt) { chat = scanChat(row) })
	return chat, found, err
}

func noChat(id tidemark.ChatID) error {
	return tidemark.Errorf(tidemark.NotFound, "there is no chat %s", id)
}

const chatByID = `SELECT ` + chatColumns + ` FROM chats AS c WHERE c.id = ?`

// Chat implements storage.Chats.
func (s *Store) Chat(ctx context.Context, id tidemark.ChatID) (tidemark.Chat, error) {
	var chat tidemark.Chat
	err := s.read(ctx, func(c *conn) error {
		var found bool
		var err error
		chat, found, err = oneChat(c, chatByID, string(id))
		if err == nil && !found {
			err = noChat(id)
		}
		return err
	})
	return chat, err
}

// UpdateChat implements storage.Chats.
func (s *Store) UpdateChat(
	ctx context.Context, id tidemark.ChatID, change storage.ChatChange,
) (tidemark.Chat, error) {
	var chat tidemark.Chat
	err := s.change(ctx, func(w *writer) error {
		row, err := w.alive(id)
		if err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		before, _, err := oneChat(w.c, chatByID, string(id))
		if err != nil {
			return err
		}
		var changed bool
		if chat, changed = change.Apply(before); !changed {
			return nil
		}
		if !bytes.Equal(chat.Metadata, before.Metadata) {
			if err := w.putMetadata(row, chat.Metadata); err != nil {
				return err
			}
		}
		q, err := w.c.prepared(`UPDATE chats SET name = ?, version = ?, keep_days = ?,
			hold = ?, read_receipts = nullif(?, '') WHERE key = ?`)
		if err != nil {
			return err
		}
		q.string(1, chat.Name)
		q.integer(2, int64(chat.Version))
		q.integerOrNull(3, int64(chat.Policy.KeepDays))
		q.integerOrNull(4, flag(chat.Policy.Hold))
		q.string(5, string(chat.Policy.Receipts))
		q.integer(6, row.key)
		if err := q.run(); err != nil {
			return err
		}
		//rule:shown_within_real.policy-of-a-cached-chat
		row.named, row.receipts = chat.Version, chat.Policy.Receipts
		return w.openBacklog(row)
	})
	if err != nil {
		return tidemark.Chat{}, err
	}
	return chat, nil
}

// putMetadata stores the metadata of a chat. nil removes them.
func (w *writer) putMetadata(c *chat, metadata json.RawMessage) error {
	text := `DELETE FROM chat_metadata WHERE chat = ?`
	if metadata != nil {
		text = `INSERT INTO chat_metadata (chat, metadata) VALUES (?, ?)
			ON CONFLICT (chat) DO UPDATE SET metadata = excluded.metadata`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return err
	}
	q.integer(1, c.key)
	if metadata != nil {
		q.string(2, string(metadata))
	}
	return q.run()
}

// Heads implements storage.Chats.
func (s *Store) Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error) {
	if err := checkBatch(len(chats)); err != nil || len(chats) == 0 {
		return nil, err
	}
	heads := make([]tidemark.Sequence, 0, len(chats))
	err := s.read(ctx, func(c *conn) error {
		q, err := c.prepared(`SELECT c.head FROM json_each(?) AS j
			LEFT JOIN chats AS c ON c.id = j.value`)
		if err != nil {
			return err
		}
		q.string(1, jsonArray(chats))
		return q.each(func(row *stmt) bool {
			heads = append(heads, tidemark.Sequence(row.integerAt(0)))
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return heads, nil
}

// jsonArray returns the ids as a JSON array, for json_each.
func jsonArray[T ~string](ids []T) string {
	b := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = tidemark.AppendString(b, string(id))
	}
	return string(append(b, ']'))
}

// chatsByActivity lists a user's chats. It reads the time of all of them, because every message
// changes their order, and the rest for one page only.
const chatsByActivity = `SELECT ` + chatColumns + `, c.activity_at, m.role, ` +
	stateColumns + `, ` + accountColumns + `
	FROM (
		SELECT m.chat FROM members AS m CROSS JOIN chats AS c ON c.key = m.chat
		WHERE m.user_id = ?1 AND m.current = 1
			AND (c.activity_at < ?2 OR (c.activity_at = ?2 AND m.chat_id > ?3))
		ORDER BY c.activity_at DESC, m.chat_id LIMIT ?4
	) AS p
	CROSS JOIN chats AS c ON c.key = p.chat
	CROSS JOIN members AS m ON m.chat = p.chat AND m.user_id = ?1
	LEFT JOIN delivery_state AS d ON d.chat = m.chat AND d.user_id = m.user_id
	ORDER BY c.activity_at DESC, c.id`

// ChatsOf implements storage.Chats.
func (s *Store) ChatsOf(
	ctx context.Context, user tidemark.UserID, page storage.ChatsPage,
) ([]storage.ChatListItem, bool, error) {
	var list []storage.ChatListItem
	more := false
	err := s.snapshot(ctx, func(c *conn) error {
		var a accounts
		q, err := c.prepared(chatsByActivity)
		if err != nil {
			return err
		}
		activity := int64(math.MaxInt64)
		if page.ChatID != "" {
			activity = page.Activity.UnixMilli()
		}
		q.string(1, string(user))
		q.integer(2, activity)
		q.string(3, string(page.ChatID))
		q.integer(4, int64(page.Limit)+1)
		err = q.each(func(row *stmt) bool {
			if more = len(list) == page.Limit; more {
				return false
			}
			item := storage.ChatListItem{
				Chat:     scanChat(row),
				Activity: timeOf(row.integerAt(chatWidth)),
			}
			if !page.Brief {
				item.Role = tidemark.Role(row.stringAt(chatWidth + 1))
			}
			item.State = scanState(row, chatWidth+2, user, item.Chat.ID)
			list = append(list, item)
			return a.add(row, chatWidth+2+stateWidth, user)
		})
		if err == nil {
			err = a.bad
		}
		if err != nil || page.Brief {
			return err
		}
		for i := range list {
			if err := setLast(c, &a.of[i], &list[i]); err != nil {
				return err
			}
		}
		counts, err := a.count(c)
		for i := range counts {
			list[i].Unread = counts[i]
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return list, more, nil
}

// setLast sets the last message of a chat, if the user may see it.
func setLast(c *conn, a *account, item *storage.ChatListItem) error {
	head := item.Chat.Head
	if head < item.Chat.Floor || !a.Visible.Contains(head) {
		return nil
	}
	last, found, err := c.message(a.chat, item.Chat.ID, head)
	if found && err == nil {
		item.Last = &last
	}
	return err
}
