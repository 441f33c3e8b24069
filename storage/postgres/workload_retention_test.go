package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// retention returns expirations: of the first half of a chat, of a message that names a user, and
// of one that was edited.
func (w *workload) retention() []operation {
	expire := func(chat tidemark.ChatID, want int) error {
		before := time.Now().Add(-storage.MinAge)
		done, err := w.s.Expire(w.t.Context(), chat, before, want)
		if err == nil && done.Removed != want {
			err = fmt.Errorf("%d messages were removed, want %d", done.Removed, want)
		}
		return err
	}
	id := func(what string, r int) tidemark.ChatID {
		return tidemark.ChatID(fmt.Sprintf("%s-%d", what, r))
	}
	said := func(what string, says func(*tidemark.Draft)) func(int) error {
		return func(r int) error {
			chat := id(what, r)
			first := drafts(string(chat), chat)
			says(&first[0])
			return errors.Join(
				w.create(chat, tidemark.Group, tidemark.HistoryFull,
					append(named(string(chat), 9), "writer")),
				w.append(first))
		}
	}
	plain := said("edited", func(*tidemark.Draft) {})
	return []operation{
		{
			"`Expire` of 50 messages", nil,
			func(r int) error { return expire(chatNo(170+r), 50) },
		},
		{
			"`Policies` of 200 chats", nil,
			func(int) error {
				_, err := w.s.Policies(w.t.Context(), chatNos(0, 200))
				return err
			},
		},
		{
			"`Expire` of 1 that names a user",
			said("naming", func(d *tidemark.Draft) {
				d.Mentions = tidemark.NewMentions(false, []tidemark.UserID{"writer"})
			}),
			func(r int) error { return expire(id("naming", r), 1) },
		},
		{
			"`Expire` of 1 that was edited",
			func(r int) error {
				chat := id("edited", r)
				edit := drafts(fmt.Sprint("2-", chat), chat)
				edit[0].Kind, edit[0].Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 1}
				return errors.Join(plain(r), w.append(edit))
			},
			func(r int) error { return expire(id("edited", r), 1) },
		},
	}
}
