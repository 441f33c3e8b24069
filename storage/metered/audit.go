package metered

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// RecordAudit implements storage.Audit.
func (s *Store) RecordAudit(
	ctx context.Context, e storage.AuditEntry,
) (err error) {
	began := time.Now()
	err = s.store.RecordAudit(ctx, e)
	s.meter.done(ctx, opRecordAudit, began, err)
	return err
}

// FinishAudit implements storage.Audit.
func (s *Store) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) (err error) {
	began := time.Now()
	err = s.store.FinishAudit(ctx, id, end)
	s.meter.done(ctx, opFinishAudit, began, err)
	return err
}

// ListAudit implements storage.Audit.
func (s *Store) ListAudit(
	ctx context.Context, page storage.AuditPage,
) (entries []storage.AuditEntry, more bool, err error) {
	began := time.Now()
	entries, more, err = s.store.ListAudit(ctx, page)
	s.meter.done(ctx, opListAudit, began, err)
	return entries, more, err
}

// RenameAudit implements storage.Audit.
func (s *Store) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) (err error) {
	began := time.Now()
	err = s.store.RenameAudit(ctx, id, user, alias)
	s.meter.done(ctx, opRenameAudit, began, err)
	return err
}

// TrimAudit implements storage.Audit.
func (s *Store) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (removed int, done bool, err error) {
	began := time.Now()
	removed, done, err = s.store.TrimAudit(ctx, below, limit)
	s.meter.done(ctx, opTrimAudit, began, err)
	return removed, done, err
}
