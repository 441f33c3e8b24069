package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Outbox = (*Store)(nil)

// outbox has the columns of these names of the writer's cached chat.
type outbox struct {
	open  bool
	from  storage.Position
	split bool
}

// openBacklog opens the chat's backlog in the step that makes news, if it is not open yet.
func (w *writer) openBacklog(c *chat) error {
	//rule:told_or_owed.open-backlog-in-step-in-sqlite
	if c.outbox.open {
		return nil
	}
	q, err := w.c.prepared(`UPDATE chats SET outbox_shard = ? WHERE key = ?`)
	if err != nil {
		return err
	}
	c.outbox.open = true
	q.integer(1, int64(storage.ShardOf(c.id)))
	q.integer(2, c.key)
	return q.run()
}

// positionOf returns the position of all news of a chat.
func positionOf(c *chat) storage.Position {
	return storage.Position{Sequence: c.head, Members: c.version, Version: c.named}
}

const (
	// backlogsOfChats names each shard in a statement of its own, so that the index has the order.
	backlogsOfChats = `SELECT id, outbox_sequence, outbox_members, outbox_version, outbox_split,
			outbox_shard, head, members_version, version, large, state IS 'importing'
		FROM chats WHERE outbox_shard = ? AND id > ? ORDER BY id LIMIT ?`
	backlogsOfOutlet = `SELECT chat_id, sequence, members, version, stamp, shard
		FROM outlet_backlogs WHERE outlet = ? AND shard = ? AND chat_id > ?
		ORDER BY chat_id LIMIT ?`
	backlogOfChat = `SELECT id, outbox_sequence, outbox_members, outbox_version, outbox_split,
			outbox_shard, head, members_version, version, large, state IS 'importing'
		FROM chats WHERE id = ? AND outbox_shard IS NOT NULL`
	backlogOfBoth = `SELECT chat_id, sequence, members, version, stamp, shard
		FROM outlet_backlogs WHERE chat_id = ?1 AND outlet = ?2 AND shard = ?3`
)

// Backlogs implements storage.Outbox, with one statement for each shard, or for each chat.
func (s *Store) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	if err := checkBatch(len(q.Chats)); err != nil {
		return nil, false, err
	}
	if len(q.Chats) > 0 {
		q.Shards, q.Limit = nil, len(q.Chats)
	}
	var found []storage.Backlog
	err := s.snapshot(ctx, func(c *conn) error {
		for _, chat := range q.Chats {
			if err := c.backlogOf(q.Outlet, chat, &found); err != nil {
				return err
			}
		}
		for _, shard := range q.Shards {
			after := tidemark.ChatID("")
			if q.After.Chat != "" {
				if shard < q.After.Shard {
					continue
				}
				if shard == q.After.Shard {
					after = q.After.Chat
				}
			}
			err := c.backlogs(q.Outlet, shard, after, q.Limit+1-len(found), &found)
			if err != nil || len(found) > q.Limit {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return found[:min(len(found), q.Limit)], len(found) > q.Limit, nil
}

// backlogs appends up to limit backlogs of a shard to found.
func (c *conn) backlogs(
	outlet storage.OutletID, shard int, after tidemark.ChatID, limit int, found *[]storage.Backlog,
) error {
	text, first := backlogsOfChats, 1
	if outlet != storage.AllOutlets {
		text, first = backlogsOfOutlet, 2
	}
	q, err := c.prepared(text)
	if err != nil {
		return err
	}
	if outlet != storage.AllOutlets {
		q.string(1, string(outlet))
	}
	q.integer(first, int64(shard))
	q.string(first+1, string(after))
	q.integer(first+2, int64(limit))
	return q.each(func(row *stmt) bool {
		*found = append(*found, scanBacklog(row, outlet))
		return true
	})
}

// backlogOf appends the backlog of one chat to found, if it is open.
func (c *conn) backlogOf(
	outlet storage.OutletID, chat tidemark.ChatID, found *[]storage.Backlog,
) error {
	text := backlogOfChat
	if outlet != storage.AllOutlets {
		text = backlogOfBoth
	}
	q, err := c.prepared(text)
	if err != nil {
		return err
	}
	q.string(1, string(chat))
	if outlet != storage.AllOutlets {
		q.string(2, string(outlet))
		q.integer(3, int64(storage.ShardOf(chat)))
	}
	_, err = q.one(func(row *stmt) { *found = append(*found, scanBacklog(row, outlet)) })
	return err
}

// scanBacklog reads a row of one of the statements above.
func scanBacklog(row *stmt, outlet storage.OutletID) storage.Backlog {
	b := storage.Backlog{
		Outlet: outlet, Chat: tidemark.ChatID(row.stringAt(0)), From: positionAt(row, 1),
		Shard: int(row.integerAt(5)),
	}
	if outlet == storage.AllOutlets {
		b.Split = row.integerAt(4) != 0
		b.End, b.Large = positionAt(row, 6), row.integerAt(9) != 0
		//rule:import_once.backlog-of-an-import-in-sqlite
		b.Importing = row.integerAt(10) != 0
	} else {
		b.Stamp = row.stringAt(4)
	}
	return b
}

// positionAt returns the position in three columns, from column i on.
func positionAt(row *stmt, i int) storage.Position {
	return storage.Position{
		Sequence: tidemark.Sequence(row.integerAt(i)),
		Members:  uint64(row.integerAt(i + 1)),
		Version:  uint64(row.integerAt(i + 2)),
	}
}

// bindPosition binds a position to three parameters, from parameter i on.
// What is above every column is bound as the highest value.
func bindPosition(q *stmt, i int, p storage.Position) {
	p = p.Least(storage.Position{
		Sequence: math.MaxInt64, Members: math.MaxInt64, Version: math.MaxInt64,
	})
	q.integer(i, int64(p.Sequence))
	q.integer(i+1, int64(p.Members))
	q.integer(i+2, int64(p.Version))
}

// Rewind implements storage.Outbox.
func (s *Store) Rewind(ctx context.Context, backlogs []storage.Backlog) error {
	err := cmp.Or(storage.CheckRewind(backlogs), checkBatch(len(backlogs)))
	if err != nil || len(backlogs) == 0 {
		return err
	}
	return s.change(ctx, func(w *writer) error {
		for i := range backlogs {
			if err := w.rewind(&backlogs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *writer) rewind(b *storage.Backlog) error {
	c, err := w.chat(b.Chat)
	if err != nil || c == nil {
		return err
	}
	//rule:told_or_owed.rewind-to-least-in-sqlite
	q, err := w.c.prepared(`INSERT INTO outlet_backlogs
			(outlet, shard, chat_id, sequence, members, version, stamp)
		VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (outlet, shard, chat_id) DO UPDATE SET
			sequence = min(sequence, excluded.sequence), members = min(members, excluded.members),
			version = min(version, excluded.version), stamp = excluded.stamp`)
	if err != nil {
		return err
	}
	q.string(1, string(b.Outlet))
	q.integer(2, int64(storage.ShardOf(b.Chat)))
	q.string(3, string(b.Chat))
	bindPosition(q, 4, b.From.Least(positionOf(c)))
	q.string(7, rand.Text())
	return q.run()
}

// Settle implements storage.Outbox.
func (s *Store) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	err := cmp.Or(storage.CheckSettle(items), checkBatch(len(items)))
	if err != nil || len(items) == 0 {
		return nil, err
	}
	settled := make([]bool, len(items))
	err = s.change(ctx, func(w *writer) error {
		for i := range items {
			c, err := w.chat(items[i].Chat)
			if err == nil && c != nil {
				settled[i], err = w.settle(c, &items[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return settled, nil
}

func (w *writer) settle(c *chat, item *storage.Settlement) (settled bool, err error) {
	end := positionOf(c)
	to := item.From.Most(item.To.Least(end))
	if item.Outlet != storage.AllOutlets {
		return w.settleAlone(item, to, to == end)
	}
	//rule:told_in_order.settle-what-was-read-in-sqlite
	if !c.outbox.open || c.outbox.from != item.From {
		return false, nil
	}
	q, err := w.c.prepared(`UPDATE chats SET outbox_shard = ?, outbox_sequence = ?,
		outbox_members = ?, outbox_version = ?, outbox_split = ? WHERE key = ?`)
	if err != nil {
		return false, err
	}
	c.outbox.from, c.outbox.split = to, item.NowSplit
	//rule:told_or_owed.keep-backlog-of-later-news-in-sqlite
	c.outbox.open = to != end
	if q.null(1); c.outbox.open {
		q.integer(1, int64(storage.ShardOf(c.id)))
	}
	bindPosition(q, 2, to)
	q.integer(5, flag(item.NowSplit))
	q.integer(6, c.key)
	return true, q.run()
}

// settleAlone settles the backlog of a single outlet. whole reports whether it closes.
func (w *writer) settleAlone(
	item *storage.Settlement, to storage.Position, whole bool,
) (settled bool, err error) {
	text := `DELETE FROM outlet_backlogs WHERE outlet = ?1 AND shard = ?2 AND chat_id = ?3
		AND sequence = ?4 AND members = ?5 AND version = ?6 AND stamp = ?7`
	if !whole {
		text = `UPDATE outlet_backlogs SET sequence = ?8, members = ?9, version = ?10
			WHERE outlet = ?1 AND shard = ?2 AND chat_id = ?3
				AND sequence = ?4 AND members = ?5 AND version = ?6 AND stamp = ?7`
	}
	q, err := w.c.prepared(text)
	if err != nil {
		return false, err
	}
	q.string(1, string(item.Outlet))
	q.integer(2, int64(storage.ShardOf(item.Chat)))
	q.string(3, string(item.Chat))
	bindPosition(q, 4, item.From)
	q.string(7, item.Stamp)
	if !whole {
		bindPosition(q, 8, to)
	}
	err = q.run()
	return err == nil && w.c.Changes() > 0, err
}

// EachChat implements storage.Outbox. The ids ascend.
func (s *Store) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	chats, more, err = page(ctx, s, `SELECT id FROM chats WHERE id > ? ORDER BY id LIMIT ?`, limit,
		func(q *stmt) {
			q.string(1, string(after))
			q.integer(2, int64(limit)+1)
		}, func(row *stmt) tidemark.ChatID { return tidemark.ChatID(row.stringAt(0)) })
	if more {
		next = chats[len(chats)-1]
	}
	return chats, next, more, err
}

// membersSince finds the few members that changed by their version, and sorts them by their ids.
// membersAll finds all of them in the order of their ids.
const (
	membersSince = `SELECT user_id, role, joined_at, intervals, metadata, version
		FROM members INDEXED BY members_by_version
		WHERE chat = (SELECT key FROM chats WHERE id = ? AND state IS NOT 'deleted')
			AND version > 1 AND version > ? AND user_id > ?
		ORDER BY user_id LIMIT ?`
	membersAll = `SELECT user_id, role, joined_at, intervals, metadata, version
		FROM members NOT INDEXED
		WHERE chat = (SELECT key FROM chats WHERE id = ? AND state IS NOT 'deleted')
			AND version > ? AND user_id > ?
		ORDER BY user_id LIMIT ?`
)

// MembersSince implements storage.Outbox.
func (s *Store) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) ([]storage.ChangedMember, bool, error) {
	text := membersSince
	if q.Since == 0 {
		text = membersAll
	}
	var bad error
	found, more, err := page(ctx, s, text, q.Limit, func(s *stmt) {
		s.string(1, string(q.Chat))
		s.integer(2, int64(q.Since))
		s.string(3, string(q.After))
		s.integer(4, int64(q.Limit)+1)
	}, func(row *stmt) storage.ChangedMember {
		m, err := scanMember(row)
		bad = cmp.Or(bad, err)
		return storage.ChangedMember{Member: m, Version: uint64(row.integerAt(5))}
	})
	return found, more, cmp.Or(err, bad)
}
