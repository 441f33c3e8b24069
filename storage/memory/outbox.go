package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Outbox = (*Store)(nil)

// outbox says what of a chat's news was handed to all outlets. Its From is the position up to which
// that is so, also when no backlog is open.
type outbox struct {
	open  bool
	from  storage.Position
	split bool
}

// backlogKey identifies the backlog of a single outlet.
type backlogKey struct {
	outlet storage.OutletID
	chat   tidemark.ChatID
}

// news ends a step that began at a position of the chat. The mutex is held.
func (s *Store) news(c *chat, before storage.Position) {
	//rule:told_or_owed.open-backlog-in-step
	if storage.PositionOf(&c.Chat) != before {
		//rule:row_once.one-backlog-for-all-messages
		c.outbox.open = true
	}
}

// Backlogs implements storage.Outbox.
func (s *Store) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	if err := s.enterBatch(ctx, len(q.Chats)); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	if len(q.Chats) > 0 {
		return s.backlogsOf(q.Outlet, q.Chats), false, nil
	}
	var found []storage.Backlog
	add := func(b storage.Backlog) {
		b.Shard = storage.ShardOf(b.Chat)
		if slices.Contains(q.Shards, b.Shard) && (q.After.Chat == "" || byShard(b, q.After) > 0) {
			found = append(found, b)
		}
	}
	if q.Outlet == storage.AllOutlets {
		for _, c := range s.chats {
			if c.outbox.open {
				add(c.backlog())
			}
		}
	}
	for key, b := range s.backlogs {
		if key.outlet == q.Outlet {
			add(b)
		}
	}
	slices.SortFunc(found, byShard)
	found, more := page(found, q.Limit)
	return found, more, nil
}

// backlogsOf returns the open backlogs of some chats for an outlet. The mutex is held.
func (s *Store) backlogsOf(
	outlet storage.OutletID, chats []tidemark.ChatID,
) (found []storage.Backlog) {
	for _, id := range chats {
		b, open := s.backlogs[backlogKey{outlet, id}]
		if c := s.chats[id]; outlet == storage.AllOutlets && c != nil && c.outbox.open {
			b, open = c.backlog(), true
		}
		if b.Shard = storage.ShardOf(id); open {
			found = append(found, b)
		}
	}
	return found
}

// backlog returns the chat's backlog for all outlets, without its shard. The mutex is held.
func (c *chat) backlog() storage.Backlog {
	return storage.Backlog{
		Chat: c.ID, From: c.outbox.from, Split: c.outbox.split,
		End: storage.PositionOf(&c.Chat), Large: c.Large,
		//rule:import_once.backlog-of-an-import
		Importing: c.State == tidemark.ChatImporting,
	}
}

func byShard(a, b storage.Backlog) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Chat, b.Chat))
}

// Rewind implements storage.Outbox.
func (s *Store) Rewind(ctx context.Context, backlogs []storage.Backlog) error {
	if err := storage.CheckRewind(backlogs); err != nil {
		return err
	}
	if err := s.enterBatch(ctx, len(backlogs)); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, b := range backlogs {
		c := s.chats[b.Chat]
		if c == nil {
			continue
		}
		from := b.From.Least(storage.PositionOf(&c.Chat))
		key := backlogKey{b.Outlet, b.Chat}
		//rule:told_or_owed.rewind-to-least
		if old, open := s.backlogs[key]; open {
			from = from.Least(old.From)
		}
		s.stamps++
		s.backlogs[key] = storage.Backlog{
			Outlet: b.Outlet, Chat: b.Chat, From: from,
			//rule:told_or_owed.stamp-each-rewind
			Stamp: strconv.FormatUint(s.stamps, 10),
		}
	}
	return nil
}

// Settle implements storage.Outbox.
func (s *Store) Settle(ctx context.Context, items []storage.Settlement) ([]bool, error) {
	if err := storage.CheckSettle(items); err != nil {
		return nil, err
	}
	if err := s.enterBatch(ctx, len(items)); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	settled := make([]bool, len(items))
	for i, item := range items {
		c := s.chats[item.Chat]
		if c == nil {
			continue
		}
		if item.Outlet == storage.AllOutlets {
			settled[i] = c.settle(item)
		} else {
			settled[i] = s.settle(c, item)
		}
	}
	return settled, nil
}

// settle settles the chat's backlog for all outlets. The mutex is held.
func (c *chat) settle(item storage.Settlement) bool {
	//rule:told_in_order.settle-what-was-read
	if !c.outbox.open || c.outbox.from != item.From {
		return false
	}
	end := storage.PositionOf(&c.Chat)
	c.outbox.from = c.outbox.from.Most(item.To.Least(end))
	//rule:told_or_owed.keep-backlog-of-later-news
	c.outbox.open = c.outbox.from != end
	//rule:told_in_order.note-the-split
	c.outbox.split = item.NowSplit
	return true
}

// settle settles the backlog of a single outlet. The mutex is held.
func (s *Store) settle(c *chat, item storage.Settlement) bool {
	key := backlogKey{item.Outlet, item.Chat}
	b, open := s.backlogs[key]
	if !open || b.From != item.From || b.Stamp != item.Stamp {
		return false
	}
	end := storage.PositionOf(&c.Chat)
	if b.From = b.From.Most(item.To.Least(end)); b.From != end {
		s.backlogs[key] = b
	} else {
		delete(s.backlogs, key)
	}
	return true
}

// EachChat implements storage.Outbox.
func (s *Store) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) (chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, "", false, err
	}
	defer s.mu.Unlock()
	chats = slices.Sorted(maps.Keys(s.chats))
	first, found := slices.BinarySearch(chats, after)
	if found {
		first++
	}
	chats, more = page(chats[first:], limit)
	if more {
		next = chats[len(chats)-1]
	}
	return chats, next, more, nil
}

// MembersSince implements storage.Outbox.
func (s *Store) MembersSince(
	ctx context.Context, q storage.MembersQuery,
) ([]storage.ChangedMember, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	c := s.chats[q.Chat]
	if c == nil || c.State == tidemark.ChatDeleted {
		return nil, false, nil
	}
	var found []storage.ChangedMember
	for _, user := range slices.Sorted(maps.Keys(c.members)) {
		if version := c.changed[user]; user > q.After && version > q.Since {
			found = append(found, storage.ChangedMember{Member: c.members[user], Version: version})
		}
	}
	found, more := page(found, q.Limit)
	return found, more, nil
}
