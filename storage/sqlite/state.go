package sqlite

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	return s.change(ctx, func(w *writer) error {
		c, err := w.existing(id)
		if err != nil {
			return err
		}
		changes, err := storage.Finishes(id, c.state)
		if err != nil || !changes {
			return err
		}
		//rule:importing_is_closed.forget-the-state-in-sqlite
		if err := w.setMembership(c, c.members); err != nil {
			return err
		}
		q, err := w.c.prepared(`UPDATE chats SET state = NULL WHERE key = ?`)
		if err != nil {
			return err
		}
		q.integer(1, c.key)
		return q.run()
	})
}
