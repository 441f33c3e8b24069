package storagetest

import (
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// refusalRules: clients see the words of a refusal, and are not to tell by them which backend answers.
var refusalRules = []rule{
	{"each_says_the_same_in_every_backend", func(w *world) {
		alice, bob, eve := w.user("alice"), w.user("bob"), w.user("eve")
		group, direct, none := w.group("g", alice), w.direct("d", alice, bob), w.chat("none")
		sent := w.draft(group, alice, "hello")
		w.append(sent)
		other := sent
		other.Content = "other"
		send := func(d tidemark.Draft) error {
			_, err := storage.AppendOne(w.ctx, w.store, d)
			return err
		}
		add := func(chat tidemark.ChatID, users ...tidemark.UserID) error {
			_, err := w.store.AddMembers(w.ctx, chat, users, at(1))
			return err
		}
		remove := func(chat tidemark.ChatID, user tidemark.UserID) error {
			_, err := w.store.RemoveMember(w.ctx, chat, user, at(1))
			return err
		}
		_, _, taken := w.store.CreateChat(w.ctx, storage.NewChat{
			ID:        group,
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: at(0),
			Creator:   alice,
			Members:   []tidemark.UserID{alice},
		})
		_, unknown := w.store.Chat(w.ctx, none)
		for _, tc := range []struct {
			name string
			err  error
			want string
		}{
			{"another message under the same key", send(other), fmt.Sprintf("the client_message_id %s was used for another message in this chat", sent.ClientMessageID)},
			{
				"a send of no member",
				send(w.draft(group, eve, "hello")),
				fmt.Sprintf("%s is not a member of the chat %s", eve, group),
			},
			{
				"a send to no chat",
				send(w.draft(none, alice, "hello")), fmt.Sprintf("there is no chat %s", none),
			},
			{"no chat", unknown, fmt.Sprintf("there is no chat %s", none)},
			{"an id that is taken", taken, fmt.Sprintf("there is a chat %s already", group)},
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
			w.equal(tc.name, tidemark.DetailOf(tc.err), tc.want)
		}
	}},
}
