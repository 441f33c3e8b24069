package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/storage"
)

// defaultAuditDays is for how many days entries of the audit log are kept.
const defaultAuditDays = 400

// auditing is the audit log. Only workers remove old entries.
type auditing struct {
	log   *audit.Log
	works bool
}

// auditing returns the audit log.
func (o *options) auditing(
	store storage.Store, erased audit.Erasures, log *slog.Logger,
) (a auditing, err error) {
	a.works = o.outlet.has(roleWorker)
	a.log, err = audit.New(audit.Config{
		Store: store, Days: o.core.auditDays(), Logger: log, Clock: time.Now, Erasures: erased,
	})
	return a, err
}

// auditDays returns for how many days entries are kept. 0: none are written.
func (f coreFlags) auditDays() int {
	if f.AuditDays == nil {
		return defaultAuditDays
	}
	return *f.AuditDays
}

// run removes old entries until ctx ends.
func (a auditing) run(ctx context.Context) {
	if a.works {
		a.log.Run(ctx)
	}
}
