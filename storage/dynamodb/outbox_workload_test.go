package dynamodb

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// all returns the query for the backlogs of all shards.
func all(outlet storage.OutletID, limit int) storage.BacklogQuery {
	q := storage.BacklogQuery{Outlet: outlet, Limit: limit}
	for shard := range storage.Shards {
		q.Shards = append(q.Shards, shard)
	}
	return q
}

// settlement returns one of the backlog of a chat, up to its end.
func (w *workload) settlement(
	outlet storage.OutletID, chat tidemark.ChatID,
) (item storage.Settlement, err error) {
	found, _, err := w.s.Backlogs(w.t.Context(),
		storage.BacklogQuery{Outlet: outlet, Chats: []tidemark.ChatID{chat}})
	if err != nil {
		return item, err
	}
	if len(found) == 0 {
		return item, fmt.Errorf("the chat %s has no backlog for %q", chat, outlet)
	}
	c, err := w.s.Chat(w.t.Context(), chat)
	return storage.Settlement{Backlog: found[0], To: storage.PositionOf(&c)}, err
}

func (w *workload) settle(item *storage.Settlement) error {
	settled, err := w.s.Settle(w.t.Context(), []storage.Settlement{*item})
	if err == nil && !settled[0] {
		err = errors.New("it was not settled")
	}
	return err
}

func (w *workload) rewind(outlet storage.OutletID, chat tidemark.ChatID) error {
	return w.s.Rewind(w.t.Context(), []storage.Backlog{{Outlet: outlet, Chat: chat}})
}

// outbox returns the operations of storage.Outbox and storage.Documents.
func (w *workload) outbox() []operation {
	ctx := w.t.Context()
	var item storage.Settlement
	// settles returns an operation that settles what before leaves open, or only a part of it.
	settles := func(
		name string, most bound, outlet storage.OutletID, part bool, before func(round int) error,
	) operation {
		return operation{name, func(r int) (err error) {
			if err = before(r); err != nil {
				return err
			}
			item, err = w.settlement(outlet, chatNo(150))
			if part {
				item.To.Sequence--
			}
			return err
		}, func(int) error { return w.settle(&item) }, most}
	}
	send := func(what string) func(int) error {
		return func(r int) error {
			return w.append(textsOf(fmt.Sprint(what, r), 200, repeated(chatNo(150), 2)...))
		}
	}
	document := func(name string, version uint64, size int) storage.Document {
		d := storage.Document{Kind: "kind", Name: name, Version: version}
		if size > 0 {
			d.Value = []byte(`"` + strings.Repeat("x", size-2) + `"`)
		}
		return d
	}
	puts := func(name string, size int) func(r int) error {
		return func(r int) error {
			_, err := w.s.PutDocument(ctx, document(name, uint64(r), size))
			return err
		}
	}
	backlogs := func(q storage.BacklogQuery, want int) func(int) error {
		return func(int) error {
			found, _, err := w.s.Backlogs(ctx, q)
			if err == nil && len(found) != want {
				err = fmt.Errorf("there are %d backlogs, want %d", len(found), want)
			}
			return err
		}
	}
	return []operation{
		settles("`Settle`, all news", bound{reads: 1, writes: 2}, "", false, send("news")),
		settles("`Settle`, a part", bound{reads: 1, writes: 1}, "", true, send("part")),
		{
			"`Append` that opens a backlog", func(int) (err error) {
				if item, err = w.settlement("", chatNo(150)); err == nil {
					err = w.settle(&item)
				}
				return err
			},
			func(r int) error {
				return w.append(textsOf(fmt.Sprint("opens", r), 200, chatNo(150)))
			},
			bound{calls: "TransactWriteItems", writes: 7},
		},
		{
			"`Rewind`", nil,
			func(r int) error {
				return w.rewind(storage.OutletID(fmt.Sprint("new", r)), chatNo(150))
			},
			bound{reads: 2, writes: 1},
		},
		{
			"`Rewind` of an open backlog", func(int) error { return w.rewind("open", chatNo(150)) },
			func(int) error { return w.rewind("open", chatNo(150)) }, bound{reads: 2, writes: 1},
		},
		settles("`Settle` of a single outlet, all news", bound{reads: 1, writes: 4}, "hook", false,
			func(int) error { return w.rewind("hook", chatNo(150)) }),
		settles("`Settle` of a single outlet, a part", bound{reads: 1, writes: 1}, "hook", true,
			func(int) error { return w.rewind("hook", chatNo(150)) }),
		{
			"`Backlogs`, 100 of 250 and more", nil, backlogs(all("", 100), 100), bound{reads: 90},
		},
		{
			"`Backlogs`, all shards of an outlet that has none", nil, backlogs(all("none", 100), 0),
			bound{calls: "64 Query", reads: 64},
		},
		{
			"`Backlogs` of one chat", nil,
			backlogs(storage.BacklogQuery{Chats: []tidemark.ChatID{chatNo(150)}}, 1),
			bound{calls: "BatchGetItem", reads: 1},
		},
		{
			"`Backlogs` of 50 chats", nil,
			backlogs(storage.BacklogQuery{Chats: chatNos(160, 50)}, 50),
			bound{calls: "BatchGetItem", reads: 50},
		},
		{
			"`EachChat`, 100 items", nil, func(int) error {
				_, _, _, err := w.s.EachChat(ctx, "", 100)
				return err
			}, bound{calls: "Scan"},
		},
		{
			"`MembersSince`, none of 1,000 changed", nil, func(int) error {
				_, _, err := w.s.MembersSince(ctx, storage.MembersQuery{
					Chat: "thousand", Since: 1, Limit: 100,
				})
				return err
			}, bound{calls: "GetItem, 2 Query", reads: 40},
		},
		{"`PutDocument`", nil, puts("small", 500), bound{calls: "UpdateItem", writes: 1}},
		{
			"`PutDocument` of 256 KiB", nil, puts("large", storage.MaxDocument),
			bound{calls: "UpdateItem", writes: 257},
		},
		{
			"`PutDocument` that removes", func(int) error {
				_, err := w.s.PutDocument(ctx, document("gone", 0, 500))
				return err
			}, func(int) error {
				_, err := w.s.PutDocument(ctx, document("gone", 1, 0))
				return err
			}, bound{calls: "TransactWriteItems", writes: 2},
		},
		{
			"`Documents`, one of 256 KiB and a small one", nil, func(int) error {
				found, _, err := w.s.Documents(ctx, "kind", "", 100)
				if err == nil && len(found) != 2 {
					err = fmt.Errorf("there are %d documents, want 2", len(found))
				}
				return err
			}, bound{calls: "Query"},
		},
	}
}
