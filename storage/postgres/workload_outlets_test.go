package postgres

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// outlets returns the operations of outlets.
func (w *workload) outlets() []operation {
	ctx := w.t.Context()
	name := func(prefix string, r int) string { return fmt.Sprintf("%s-%d", prefix, r) }
	all := func(chats ...tidemark.ChatID) (items []storage.Settlement, err error) {
		found, _, err := w.s.Backlogs(ctx, storage.BacklogQuery{Chats: chats})
		for _, b := range found {
			items = append(items, storage.Settlement{Backlog: b, To: storage.Position{
				Sequence: 1 << 40, Members: 1 << 40, Version: 1 << 40,
			}})
		}
		return items, err
	}
	settle := func(items []storage.Settlement, want int) error {
		settled, err := w.s.Settle(ctx, items)
		if n := len(slices.DeleteFunc(settled, func(ok bool) bool { return !ok })); n != want {
			err = errors.Join(err, fmt.Errorf("%d were settled, want %d", n, want))
		}
		return err
	}
	var items []storage.Settlement
	own := func(r int, to storage.Position) error {
		b := storage.Backlog{Outlet: "hook", Chat: chatNo(150 + r)}
		if err := w.s.Rewind(ctx, []storage.Backlog{b}); err != nil {
			return err
		}
		found, _, err := w.s.Backlogs(ctx,
			storage.BacklogQuery{Outlet: "hook", Chats: []tidemark.ChatID{b.Chat}})
		if err == nil {
			items = []storage.Settlement{{Backlog: found[0], To: to}}
		}
		return err
	}
	rewind := func(outlet storage.OutletID, chats ...tidemark.ChatID) error {
		open := make([]storage.Backlog, len(chats))
		for i, chat := range chats {
			open[i] = storage.Backlog{Outlet: outlet, Chat: chat}
		}
		return w.s.Rewind(ctx, open)
	}
	list := func(want int, q storage.BacklogQuery) func(int) error {
		for shard := range storage.Shards {
			q.Shards = append(q.Shards, shard)
		}
		return func(int) error {
			found, _, err := w.s.Backlogs(ctx, q)
			if err == nil && len(found) != want {
				err = fmt.Errorf("%d were found, want %d", len(found), want)
			}
			return err
		}
	}
	document := func(r int, version uint64, value string) error {
		d := storage.Document{Kind: "kind", Name: name("d", r), Version: version}
		if value != "" {
			d.Value = []byte(value)
		}
		_, err := w.s.PutDocument(ctx, d)
		return err
	}
	return []operation{
		{"`Append` that opens a backlog", func(int) (err error) {
			if items, err = all(chatNo(7)); err == nil {
				err = settle(items, 1)
			}
			return err
		}, func(r int) error { return w.append(drafts(name("opens", r), chatNo(7))) }},
		{"`Settle` of 50 chats", func(r int) (err error) {
			if err = w.append(drafts(name("settle", r), chatNos(20, 50)...)); err == nil {
				items, err = all(chatNos(20, 50)...)
			}
			return err
		}, func(int) error { return settle(items, 50) }},
		{"`Settle` of an outlet's backlog", func(r int) error {
			return own(r, storage.Position{Sequence: 1 << 40, Members: 1 << 40, Version: 1 << 40})
		}, func(int) error { return settle(items, 1) }},
		{"`Settle` of a part of it", func(r int) error {
			return own(r, storage.Position{Sequence: 1})
		}, func(int) error { return settle(items, 1) }},
		{"`Rewind` of 50 chats", nil, func(r int) error {
			return rewind(storage.OutletID(name("down", r)), chatNos(110, 50)...)
		}},
		{"`Backlogs`, 20 chats", nil, list(20, storage.BacklogQuery{Limit: 20})},
		{"`Backlogs`, 20 of an outlet", func(r int) error {
			return rewind("listed", chatNos(150, 50)...)
		}, list(20, storage.BacklogQuery{Outlet: "listed", Limit: 20})},
		{"`Backlogs` of one chat", nil,
			list(1, storage.BacklogQuery{Chats: []tidemark.ChatID{chatNo(99)}})},
		{"`Backlogs` of 50 chats", nil, list(50, storage.BacklogQuery{Chats: chatNos(90, 50)})},
		{"`Backlogs` of an outlet and a chat", nil,
			list(1, storage.BacklogQuery{Outlet: "listed", Chats: []tidemark.ChatID{chatNo(167)}})},
		{"`EachChat`, 100", nil, func(int) error {
			_, _, _, err := w.s.EachChat(ctx, chatNo(500), 100)
			return err
		}},
		{"`MembersSince`, of 1,000", nil, func(int) error {
			found, _, err := w.s.MembersSince(ctx,
				storage.MembersQuery{Chat: "thousand", Since: 1, Limit: 10})
			if err == nil && len(found) > 10 { // Those that earlier operations added.
				err = fmt.Errorf("%d members were found, want few", len(found))
			}
			return err
		}},
		{"`MembersSince`, all of 10", nil, func(int) error {
			_, _, err := w.s.MembersSince(ctx, storage.MembersQuery{Chat: chatNo(5), Limit: 20})
			return err
		}},
		{"`PutDocument`", nil, func(r int) error { return document(r, 0, "{}") }},
		{"`PutDocument` of one that exists", nil,
			func(r int) error { return document(r, 1, "[]") }},
		{"`DocumentsOf`", nil, func(int) error {
			_, err := w.s.DocumentsOf(ctx, []storage.DocumentKey{
				{Kind: "kind", Name: "name"}, {Kind: "kind", Name: "another"},
			})
			return err
		}},
		{"`Documents`", nil, func(int) error {
			_, _, err := w.s.Documents(ctx, "kind", "", 10)
			return err
		}},
		{"`PutDocument` that removes", nil, func(r int) error { return document(r, 2, "") }},
		{"`PutDocument` that removes nothing", nil,
			func(r int) error { return document(r, 0, "") }},
	}
}
