package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-im/tidemark/deletion"
	"github.com/tidemark-im/tidemark/retention"
	"github.com/tidemark-im/tidemark/storage"
)

// sweeping removes old messages, and what is left of deleted chats. Only workers do so. The other
// processes record in deletions what there is to do.
type sweeping struct {
	sweeper   *retention.Sweeper
	deletions *deletion.Worker
	works     bool
}

// sweeping returns what removes messages.
func (o *options) sweeping(store storage.Store, log *slog.Logger) (s sweeping, err error) {
	s.works = o.outlet.has(roleWorker)
	s.deletions = deletion.New(deletion.Config{Store: store, Log: log, Clock: time.Now})
	s.sweeper, err = retention.New(retention.Config{
		Store: store, Keep: time.Duration(o.core.KeepDays) * day, Log: log, Clock: time.Now,
	})
	return s, err
}

// run removes old messages until ctx ends.
func (s sweeping) run(ctx context.Context) {
	if s.works {
		s.sweeper.Run(ctx)
	}
}

// purge removes what is left of deleted chats until ctx ends.
func (s sweeping) purge(ctx context.Context) {
	if s.works {
		s.deletions.Run(ctx)
	}
}

// counters are shown as metrics.
func (s sweeping) counters() map[string]int64 {
	return map[string]int64{
		"chats_deleted_total":      s.deletions.Deleted(),
		"deletion_failures_total":  s.deletions.Failed(),
		"messages_expired_total":   s.sweeper.Removed(),
		"retention_failures_total": s.sweeper.Failed(),
	}
}
