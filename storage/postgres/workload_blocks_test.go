package postgres

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
)

// blocks returns steps that block users, and ban users from groups.
func (w *workload) blocks() []operation {
	user := func(what string, r int) tidemark.UserID {
		return tidemark.UserID(fmt.Sprintf("%s-%d", what, r))
	}
	put := func(user, blocked tidemark.UserID) error {
		_, err := w.s.PutBlock(w.t.Context(), user, blocked, time.UnixMilli(8))
		return err
	}
	group := func(r int) tidemark.ChatID { return tidemark.ChatID(fmt.Sprintf("bans-%d", r)) }
	ban := func(r int, user tidemark.UserID) error {
		_, err := w.s.Ban(w.t.Context(), group(r), user, time.UnixMilli(8))
		return err
	}
	others := named("blocked", 50)
	return []operation{
		{
			"`PutBlock` that closes a chat",
			func(r int) error {
				return w.create(tidemark.ChatID(user("blocks", r)), tidemark.Direct,
					tidemark.HistoryFull, []tidemark.UserID{user("one", r), user("other", r)})
			},
			func(r int) error { return put(user("one", r), user("other", r)) },
		},
		{
			"`PutBlock` of a chat that is closed", nil,
			func(r int) error { return put(user("other", r), user("one", r)) },
		},
		{
			"`RemoveBlock`", nil,
			func(r int) error {
				_, err := w.s.RemoveBlock(w.t.Context(), user("one", r), user("other", r))
				return err
			},
		},
		{
			"`BlocksOf`, 20 of 50",
			func(r int) error {
				var err error
				for _, other := range others {
					err = errors.Join(err, put(user("blocks", r), other))
				}
				return err
			},
			func(r int) error {
				_, _, err := w.s.BlocksOf(w.t.Context(), user("blocks", r), "", 20)
				return err
			},
		},
		{
			"`Apart` of 50", nil,
			func(r int) error {
				_, err := w.s.Apart(w.t.Context(), user("blocks", r), others)
				return err
			},
		},
		{
			"`Ban` of a member",
			func(r int) error {
				return w.create(group(r), tidemark.Group, tidemark.HistoryFull,
					append(named("banned", 5), "writer"))
			},
			func(r int) error { return ban(r, "banned-1") },
		},
		{"`Ban` of another user", nil, func(r int) error { return ban(r, "stranger") }},
		{
			"`BansOf`", nil,
			func(r int) error {
				_, _, err := w.s.BansOf(w.t.Context(), group(r), "", 20)
				return err
			},
		},
		{
			"`Unban`", nil,
			func(r int) error { return w.s.Unban(w.t.Context(), group(r), "stranger") },
		},
	}
}
