package postgres

import (
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// states returns steps that change the state of a chat.
func (w *workload) states() []operation {
	id := func(what string, r int) tidemark.ChatID {
		return tidemark.ChatID(fmt.Sprintf("%s-%d", what, r))
	}
	return []operation{
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
