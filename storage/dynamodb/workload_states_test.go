package dynamodb

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// states returns the steps that change the state of a chat, the purge of a deleted one, and the
// read of policies.
func (w *workload) states() []operation {
	ctx := w.t.Context()
	id := func(what string, r int) tidemark.ChatID {
		return tidemark.ChatID(fmt.Sprintf("%s-%d", what, r))
	}
	group := func(r int) error {
		chat := id("deleted", r)
		first := textsOf(string(chat), 200, repeated(chat, 10)...)
		first[0].Mentions = tidemark.NewMentions(false, []tidemark.UserID{"writer"})
		users := append(named(string(chat), 9), "writer")
		err := errors.Join(w.create(chat, tidemark.Group, tidemark.HistoryFull, users),
			w.append(first), w.raise(tidemark.Raise{Acked: 1}, users[0], chat),
			w.mark(1, chat, users[1]))
		if err == nil {
			_, err = w.s.UpdateChat(ctx, chat, storage.ChatChange{Metadata: []byte(`{"a":1}`)})
		}
		return err
	}
	pair := func(r int) error {
		return w.create(id("deleted-pair", r), tidemark.Direct, tidemark.HistoryFull,
			[]tidemark.UserID{tidemark.UserID(id("pair", r)), "writer"})
	}
	deletes := func(what string) func(int) error {
		return func(r int) error {
			_, err := w.s.DeleteChat(ctx, id(what, r), time.UnixMilli(9))
			return err
		}
	}
	importing := func(r int) error {
		_, _, err := w.s.CreateChat(ctx, storage.NewChat{
			ID: id("moved-chat", r), State: tidemark.ChatImporting, Type: tidemark.Group,
			History: tidemark.HistoryFull, CreatedAt: time.UnixMilli(7), Creator: "writer",
			Members: []tidemark.UserID{"writer"},
		})
		return err
	}
	return []operation{
		{"`DeleteChat` of 10 members", group, deletes("deleted"), bound{reads: 2, writes: 8}},
		{"`DeleteChat`, a direct chat", pair, deletes("deleted-pair"), bound{reads: 4, writes: 8}},
		{
			"`DeleteChat` of one that is deleted", nil, deletes("deleted"),
			bound{calls: "GetItem", reads: 1},
		},
		{"`PurgeChat` of 10 messages and 10 members", nil, func(r int) error {
			_, done, err := w.s.PurgeChat(ctx, id("deleted", r), storage.MaxExpired, true)
			if err == nil && !done {
				err = errors.New("the purge has not ended")
			}
			return err
		}, bound{reads: 30, writes: 60}},
		{"`FinishImport`", importing, func(r int) error {
			return w.s.FinishImport(ctx, id("moved-chat", r), time.UnixMilli(8))
		}, bound{reads: 1, writes: 2}},
		{"`Policies` of 100 chats", nil, func(int) error {
			_, err := w.s.Policies(ctx, chatNos(1, 100))
			return err
		}, bound{reads: 50}},
	}
}
