package postgres

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// finishImport makes a locked chat live.
//
//rule:importing_is_closed.raise-the-version-in-postgres
const finishImport = `UPDATE chats AS c
	SET state = NULL, members_version = members_version + 1, ` + opened + ` WHERE key = $1`

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	return s.locked(ctx, id, func(ctx context.Context, m *membership) error {
		changes, err := storage.Finishes(id, m.chat.State)
		if err != nil || !changes {
			return err
		}
		_, err = m.tx.Exec(ctx, finishImport, m.key)
		return err
	})
}
