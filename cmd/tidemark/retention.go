package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-im/tidemark/retention"
	"github.com/tidemark-im/tidemark/storage"
)

// sweeping removes old messages, if an operator wants that.
type sweeping struct{ sweeper *retention.Sweeper }

// sweeping returns what removes old messages. Only workers do so.
func (o *options) sweeping(store storage.Store, log *slog.Logger) (sweeping, error) {
	if o.core.KeepDays == 0 || !o.outlet.has(roleWorker) {
		return sweeping{}, nil
	}
	sweeper, err := retention.New(retention.Config{
		Store: store, Keep: time.Duration(o.core.KeepDays) * day, Log: log, Clock: time.Now,
	})
	return sweeping{sweeper}, err
}

// run removes old messages until ctx ends.
func (s sweeping) run(ctx context.Context) {
	if s.sweeper != nil {
		s.sweeper.Run(ctx)
	}
}

// counters are shown as metrics.
func (s sweeping) counters() map[string]int64 {
	counts := map[string]int64{"messages_expired_total": 0, "retention_failures_total": 0}
	if s.sweeper != nil {
		counts["messages_expired_total"] = s.sweeper.Removed()
		counts["retention_failures_total"] = s.sweeper.Failed()
	}
	return counts
}
