package storagetest

import (
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// refusalRules test the texts of refusals. Clients see them, and must not be able to infer the
// backend.
var refusalRules = []rule{
	{"each_says_the_same_in_every_backend", func(f *fixture) {
		alice, bob, eve := f.user("alice"), f.user("bob"), f.user("eve")
		group, direct, none := f.group("g", alice), f.direct("d", alice, bob), f.chat("none")
		sent := f.draft(group, alice, "hello")
		f.append(sent)
		other := sent
		other.Content = "other"
		send := func(d tidemark.Draft) error {
			_, err := storage.AppendOne(f.ctx, f.store, d)
			return err
		}
		add := func(chat tidemark.ChatID, users ...tidemark.UserID) error {
			_, err := f.store.AddMembers(f.ctx, chat, users, tidemark.Ordinary, at(1))
			return err
		}
		remove := func(chat tidemark.ChatID, user tidemark.UserID) error {
			_, err := f.store.RemoveMember(f.ctx, chat, user, at(1))
			return err
		}
		_, _, taken := f.store.CreateChat(f.ctx, storage.NewChat{
			ID:        group,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: at(0),
			Creator:   alice,
			Members:   []tidemark.UserID{alice},
		})
		_, unknown := f.store.Chat(f.ctx, none)
		for _, tc := range []struct {
			name string
			err  error
			want string
		}{
			{
				"another message under the same key",
				send(other),
				"the client_message_id " + sent.ClientMessageID +
					" was used for another message in this chat",
			},
			{
				"a send of no member",
				send(f.draft(group, eve, "hello")),
				fmt.Sprintf("%s is not a member of the chat %s", eve, group),
			},
			{
				"a send to no chat",
				send(f.draft(none, alice, "hello")), fmt.Sprintf("there is no chat %s", none),
			},
			{"no chat", unknown, fmt.Sprintf("there is no chat %s", none)},
			{
				"an id that is taken", taken,
				fmt.Sprintf("the id %s is taken by another chat, which may have been deleted; "+
					"use another id", group),
			},
			{
				"a third in a direct chat",
				add(direct, eve),
				fmt.Sprintf("the chat %s is direct; its members are fixed", direct),
			},
			{
				"one who leaves a direct chat",
				remove(direct, bob),
				fmt.Sprintf("the chat %s is direct; its members are fixed", direct),
			},
			{
				"the removal of no member",
				remove(group, eve), fmt.Sprintf("%s is not a member of the chat %s", eve, group),
			},
		} {
			f.equal(tc.name, tidemark.DetailOf(tc.err), tc.want)
		}
	}},
}
