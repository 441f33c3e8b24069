package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// states returns steps that change the state of a chat, and the purge of a deleted one.
func (w *workload) states() []operation {
	id := func(what string, r int) tidemark.ChatID {
		return tidemark.ChatID(fmt.Sprintf("%s-%d", what, r))
	}
	group := func(r int) error {
		chat := id("deleted", r)
		first := drafts(string(chat), chat)
		first[0].Mentions = tidemark.NewMentions(false, []tidemark.UserID{"writer"})
		err := errors.Join(
			w.create(chat, tidemark.Group, tidemark.HistoryFull,
				append(named(string(chat), 9), "writer")),
			w.append(first))
		if err == nil {
			_, err = w.s.UpdateChat(w.t.Context(), chat, storage.ChatChange{
				Metadata: []byte(`{"a":1}`),
			})
		}
		return err
	}
	deleted := func(r int) error {
		_, err := w.s.DeleteChat(w.t.Context(), id("deleted", r), time.UnixMilli(8))
		return err
	}
	return []operation{
		{"`DeleteChat` of 10 members", group, deleted},
		{
			"`PurgeChat` of 1 message and 10 members",
			nil,
			func(r int) error {
				_, done, err := w.s.PurgeChat(w.t.Context(), id("deleted", r), 500, true)
				if err == nil && !done {
					err = errors.New("the purge has not ended")
				}
				return err
			},
		},
		{
			"`FinishImport`",
			func(r int) error {
				_, _, err := w.s.CreateChat(w.t.Context(), storage.NewChat{
					ID: id("moved", r), State: tidemark.ChatImporting, Type: tidemark.Group,
					History: tidemark.HistoryFull, CreatedAt: time.UnixMilli(7),
					Creator: "writer", Members: []tidemark.UserID{"writer"},
				})
				return err
			},
			func(r int) error {
				return w.s.FinishImport(w.t.Context(), id("moved", r), time.UnixMilli(8))
			},
		},
	}
}
