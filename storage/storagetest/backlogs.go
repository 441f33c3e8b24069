package storagetest

import (
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// backlogs returns those of the fixture's chats to an outlet, without what is read of the chats. It
// reads the shards of these chats only: all tests that share the store have backlogs.
func (f *fixture) backlogs(to storage.OutletID) map[tidemark.ChatID]storage.Backlog {
	f.Helper()
	var shards []int
	for i := range f.shards {
		if f.shards[i].Load() {
			shards = append(shards, i)
		}
	}
	return f.backlogsIn(to, shards)
}

// allShards returns all shards, ascending.
func allShards() []int {
	shards := make([]int, storage.Shards)
	for i := range shards {
		shards[i] = i
	}
	return shards
}

// backlogsIn is backlogs for some shards. It reads them in small pages.
func (f *fixture) backlogsIn(
	to storage.OutletID, shards []int,
) map[tidemark.ChatID]storage.Backlog {
	f.Helper()
	all := map[tidemark.ChatID]storage.Backlog{}
	var seen []storage.Backlog
	for more, after := true, (storage.Backlog{}); more; {
		var found []storage.Backlog
		var err error
		found, more, err = f.store.Backlogs(f.ctx,
			storage.BacklogQuery{Outlet: to, Shards: shards, After: after, Limit: 3})
		f.ok(err)
		f.checkPage(len(found), 3, more)
		for _, b := range found {
			after = b
			seen = append(seen, b)
			b.End, b.Large, b.Importing = storage.Position{}, false, false
			if strings.HasPrefix(string(b.Chat), f.prefix) {
				all[b.Chat] = b
			}
		}
	}
	if !slices.IsSortedFunc(seen, func(a, b storage.Backlog) int { return a.Shard - b.Shard }) {
		f.Errorf("the shards of the backlogs do not ascend")
	}
	return all
}

// from returns the backlog of a chat for all outlets from a position on.
func from(chat tidemark.ChatID, p storage.Position) *storage.Backlog {
	return &storage.Backlog{Chat: chat, Shard: storage.ShardOf(chat), From: p}
}

// backlog returns the chat's backlog for all outlets, or nil.
func (f *fixture) backlog(chat tidemark.ChatID) *storage.Backlog {
	f.Helper()
	if b, open := f.backlogs(storage.AllOutlets)[chat]; open {
		return &b
	}
	return nil
}

func (f *fixture) rewind(to storage.OutletID, chat tidemark.ChatID, from storage.Position) {
	f.Helper()
	f.ok(f.store.Rewind(f.ctx, []storage.Backlog{{Outlet: to, Chat: chat, From: from}}))
}

func (f *fixture) settle(b storage.Backlog, to storage.Position, split bool) bool {
	f.Helper()
	settled, err := f.store.Settle(f.ctx,
		[]storage.Settlement{{Backlog: b, To: to, NowSplit: split}})
	f.ok(err)
	f.equal("number of results", len(settled), 1)
	return settled[0]
}

// settleAll closes the chat's backlog for all outlets, if it is open.
func (f *fixture) settleAll(chat tidemark.ChatID) {
	f.Helper()
	if b := f.backlog(chat); b != nil {
		f.equal("settled", f.settle(*b, storage.PositionOf(ref(f.info(chat))), false), true)
	}
}

// since returns the present and former members whose last change is above a version, by id. It
// reads them in small pages.
func (f *fixture) since(chat tidemark.ChatID, version uint64) []storage.ChangedMember {
	f.Helper()
	var all []storage.ChangedMember
	q := storage.MembersQuery{Chat: chat, Since: version, Limit: 2}
	for more := true; more; {
		var found []storage.ChangedMember
		var err error
		found, more, err = f.store.MembersSince(f.ctx, q)
		f.ok(err)
		f.checkPage(len(found), q.Limit, more)
		for _, m := range found {
			q.After = m.UserID
		}
		all = append(all, found...)
	}
	return all
}

func (f *fixture) rename(chat tidemark.ChatID, name string) {
	f.Helper()
	_, err := f.store.UpdateChat(f.ctx, chat, renamed(name))
	f.ok(err)
}

func ref[T any](v T) *T { return &v }
