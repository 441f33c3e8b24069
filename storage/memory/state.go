package memory

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	c, err := s.find(id)
	if err != nil {
		return err
	}
	changes, err := storage.Finishes(id, c.State)
	if err != nil || !changes {
		return err
	}
	defer s.news(c, storage.PositionOf(&c.Chat))
	c.State = tidemark.ChatLive
	//rule:importing_is_closed.raise-the-version
	c.MembersVersion++
	c.roster = nil
	return nil
}
