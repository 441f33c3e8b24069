package postgres

import (
	"errors"
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// annotations returns a reaction and a pin, what undoes them, and the reads of those of the
// fixture.
func (w *workload) annotations() []operation {
	draft := func(chat tidemark.ChatID, kind tidemark.Kind, target tidemark.Sequence) error {
		of := drafts(fmt.Sprint(kind, "-", chat), chat)
		of[0].Kind, of[0].Content, of[0].ByBackend = kind, "", true
		of[0].Relation = &tidemark.Relation{Sequence: target}
		if kind == tidemark.KindReact {
			of[0].Relation.Emoji = "👍"
		}
		return w.append(of)
	}
	of := func(kind tidemark.Kind, name string) []operation {
		chat := func(what string, r int) tidemark.ChatID {
			return tidemark.ChatID(fmt.Sprintf("%s-%s-%d", kind, what, r))
		}
		said := func(what string) func(int) error {
			return func(r int) error {
				id := chat(what, r)
				return errors.Join(
					w.create(id, tidemark.Group, tidemark.HistoryFull,
						append(named(string(id), 9), "writer")),
					w.append(drafts(string(id), id)))
			}
		}
		return []operation{
			{
				"`Append` of " + name, said("one"),
				func(r int) error { return draft(chat("one", r), kind, 1) },
			},
			{
				"`Append` of the redaction of " + name,
				func(r int) error {
					return errors.Join(said("undone")(r), draft(chat("undone", r), kind, 1))
				},
				func(r int) error { return draft(chat("undone", r), tidemark.KindRedact, 2) },
			},
		}
	}
	wanted := func(got, want int, err error) error {
		if err == nil && got != want {
			err = fmt.Errorf("%d rows were found, want %d", got, want)
		}
		return err
	}
	all := append(of(tidemark.KindReact, "a reaction"), of(tidemark.KindPin, "a pin")...)
	return append(all, []operation{
		{"`Reactions`, to 50 messages", nil, func(int) error {
			found, _, err := w.s.Reactions(w.t.Context(), storage.ReactionsQuery{
				Chat: chatNo(101), From: 1, To: 50, User: "user1",
			})
			return wanted(len(found), 5, err)
		}},
		{"`Reactors`, of one message", nil, func(int) error {
			found, _, err := w.s.Reactors(w.t.Context(), chatNo(101), 10, 0, 20)
			return wanted(len(found), 1, err)
		}},
		{"`Pins`", nil, func(int) error {
			found, err := w.s.Pins(w.t.Context(), chatNo(101))
			return wanted(len(found), 1, err)
		}},
	}...)
}
