package postgres

import (
	"errors"
	"fmt"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// relations returns an edit, and a page with it.
func (w *workload) relations() []operation {
	chat := func(r int) tidemark.ChatID { return tidemark.ChatID(fmt.Sprintf("edit-%d", r)) }
	return []operation{
		{
			"`Append` of an edit",
			func(r int) error {
				return errors.Join(
					w.create(chat(r), tidemark.Group, tidemark.HistoryFull,
						append(named(string(chat(r)), 9), "writer")),
					w.append(drafts(string(chat(r)), chat(r))))
			},
			func(r int) error {
				edit := drafts(fmt.Sprint("2-", chat(r)), chat(r))
				edit[0].Kind, edit[0].Relation = tidemark.KindEdit, &tidemark.Relation{Sequence: 1}
				return w.append(edit)
			},
		},
		{"`Ranges`, an edit and its target", nil, func(r int) error {
			pages, err := w.s.Ranges(w.t.Context(), []storage.Range{
				{Chat: chat(r), After: 1, Limit: 1},
			})
			if err == nil && (len(pages[0]) != 1 || pages[0][0].Relation.Target == nil) {
				err = fmt.Errorf("the page is %+v", pages[0])
			}
			return err
		}},
	}
}
