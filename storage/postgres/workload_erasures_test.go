package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// erasures returns steps that erase a user, who has sent a message, a reaction and a pin.
func (w *workload) erasures() []operation {
	id := func(what string, r int) tidemark.ChatID {
		return tidemark.ChatID(fmt.Sprintf("%s-%d", what, r))
	}
	user := func(r int) tidemark.UserID { return tidemark.UserID(fmt.Sprintf("erased-%d", r)) }
	erasure := func(r int) tidemark.Erasure {
		return tidemark.Erasure{
			User: user(r), Alias: tidemark.ErasedID(fmt.Sprint(r)), At: time.UnixMilli(9),
		}
	}
	furnished := func(r int) error {
		chat := id("erased", r)
		all := drafts(string(chat), chat, chat, chat, chat)
		for i := range all {
			all[i].SenderID = user(r)
		}
		all[0].Mentions = tidemark.NewMentions(false, []tidemark.UserID{"writer"})
		all[1].SenderID = "writer"
		all[1].Mentions = tidemark.NewMentions(false, []tidemark.UserID{user(r)})
		all[2].Kind, all[3].Kind = tidemark.KindReact, tidemark.KindPin
		for i := range all[2:] {
			all[2+i].Content, all[2+i].Relation = "", &tidemark.Relation{Sequence: 1}
		}
		all[2].Relation.Emoji = "x"
		err := w.create(chat, tidemark.Group, tidemark.HistoryFull,
			[]tidemark.UserID{user(r), "writer"})
		if err == nil {
			err = w.append(all)
		}
		if err == nil {
			_, err = w.s.RemoveMember(w.t.Context(), chat, user(r), time.UnixMilli(8))
		}
		return err
	}
	return []operation{
		{"`ChatsNaming` of 100 chats", nil, func(r int) error {
			_, _, _, err := w.s.ChatsNaming(w.t.Context(), user(r), "", 100)
			return err
		}},
		{
			"`CloseDirect`",
			func(r int) error {
				return w.create(id("closed", r), tidemark.Direct, tidemark.HistoryFull,
					[]tidemark.UserID{user(r), "writer"})
			},
			func(r int) error {
				_, err := w.s.CloseDirect(w.t.Context(), id("closed", r), user(r),
					time.UnixMilli(8))
				return err
			},
		},
		{"`EraseMessages` of 4 messages", furnished, func(r int) error {
			_, err := w.s.EraseMessages(w.t.Context(), id("erased", r), erasure(r),
				storage.ErasePage{Limit: storage.MaxErased})
			return err
		}},
		{"`EraseMember`", nil, func(r int) error {
			done, err := w.s.EraseMember(w.t.Context(), id("erased", r), erasure(r),
				storage.MaxErased)
			if err == nil && !done {
				err = errors.New("the erasure has not ended")
			}
			return err
		}},
		{"`EraseUser`", nil, func(r int) error {
			_, err := w.s.EraseUser(w.t.Context(), user(r), storage.MaxErased)
			return err
		}},
		{"`UsersNamed` of 100 rows of each table", nil, func(int) error {
			for _, after := range []string{"", "1||", "2||", "3||"} {
				_, _, _, err := w.s.UsersNamed(w.t.Context(), after, 100)
				if err != nil {
					return err
				}
			}
			return nil
		}},
	}
}
