package dynamodb

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// FinishImport implements storage.Imports.
func (s *Store) FinishImport(ctx context.Context, id tidemark.ChatID, _ time.Time) error {
	c, ctx, leave, err := s.enter(ctx, "finish_import", 0)
	if err != nil {
		return err
	}
	defer leave()
	done, err := s.appends.Turn(ctx, id)
	if err != nil {
		return call.Public(err)
	}
	defer done()
	for again := 0; ; again++ {
		ended, err := c.finishImport(ctx, id)
		if err != nil || ended {
			return call.Public(err)
		}
		if err := call.Yield(ctx, again); err != nil {
			return call.Public(err)
		}
	}
}

// finishImport makes a chat live, unless its members change meanwhile. If an answer is lost, the
// next attempt finds the chat live.
func (c caller) finishImport(ctx context.Context, id tidemark.ChatID) (ended bool, err error) {
	now, err := c.Counter(ctx, id)
	if err != nil {
		return false, err
	}
	changes, err := storage.Finishes(id, now.State)
	if err != nil || !changes {
		return err == nil, err
	}
	values := call.Item{
		":importing": call.Text(tidemark.ChatImporting),
		":version":   call.Number(now.MembersVersion),
		":next":      call.Number(now.MembersVersion + 1),
	}
	live := record.OpenBacklog(id, "SET members_version = :next", values) + " REMOVE chat_state"
	it, ended, _, err := c.Update(ctx, call.Update{
		Table:     record.Counters,
		Key:       record.ChatKey(id),
		Change:    live,
		Condition: "chat_state = :importing AND members_version = :version",
		Values:    values,
	})
	if err == nil && ended {
		_, err = c.Learn(id, it)
	}
	return ended, err
}
