package server

import (
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/debts"
	"github.com/tidemark-im/tidemark/server/internal/flow"
	"github.com/tidemark-im/tidemark/storage"
)

// debtsPause is how often the node tries again what it owes.
const debtsPause = time.Second

// pay tries everything that is owed once, and reports whether nothing is owed any more.
func (s *Server) pay(ctx context.Context) bool {
	owed := s.debts.Take()
	//rule:R_EPOCH.tell-registry-of-lost-retries
	if owed.Lost {
		if err := s.nodes.Join(ctx, s.node, s.cfg.NodeTTL); err != nil {
			s.log.Warn("the node owes more than it can remember, and cannot say so to the registry", "error", err)
			s.debts.Lose()
		}
	}
	for _, o := range owed.Sends {
		s.sendAgain(ctx, o)
	}
	refused, err := s.debts.PayMarks(owed.Marks, func(rows []tidemark.PendingDelivery) error { return s.markSome(ctx, rows) })
	if err != nil {
		s.log.Warn("pending rows wait to be marked, but for those that are refused: who has sessions compares instead", "rows", len(owed.Marks), "refused", refused, "error", err)
	}
	//rule:R_RELOOK.look-up-in-chunks
	for rows := range slices.Chunk(owed.Wakes, together) {
		s.wakeMarked(ctx, rows)
	}
	return s.debts.Len() == 0
}

// sendAgain resolves an append by its idempotency key, and hands the message over. What is refused now was refused before, or has been answered otherwise.
func (s *Server) sendAgain(ctx context.Context, o debts.Send) {
	appended, err := storage.AppendOne(ctx, s.storage, o.Draft)
	if err == nil {
		s.finish(ctx, []outgoing{{draft: o.Draft, seen: o.Seen, appended: appended}}) // it owes what it could not do
		return
	}
	if code := tidemark.CodeOf(err); code == tidemark.Unavailable || code == tidemark.Internal {
		//rule:logs_hold_no_secret.log-names-only
		s.log.Warn("a send waits to be resolved", "chat", o.Draft.ChatID, "error", err)
		//rule:pending_or_delivered.retry-failed-send
		s.debts.Send(o)
	}
}

// payLoop pays until ctx ends.
func (s *Server) payLoop(ctx context.Context) {
	for {
		select {
		case <-s.debts.Signal():
		case <-ctx.Done():
			return
		}
		for !s.pay(ctx) {
			if !flow.Pause(ctx, debtsPause) {
				return
			}
		}
	}
}
