package storagetest

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func (i *intercepted) RecordAudit(
	ctx context.Context, e storage.AuditEntry,
) error {
	return i.around("RecordAudit", 1, func() error { return i.Store.RecordAudit(ctx, e) })
}

func (i *intercepted) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	return i.around("FinishAudit", 1, func() error { return i.Store.FinishAudit(ctx, id, end) })
}

func (i *intercepted) ListAudit(
	ctx context.Context, page storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	return results3(i, "ListAudit",
		func() ([]storage.AuditEntry, bool, error) {
			return i.Store.ListAudit(ctx, page)
		})
}

func (i *intercepted) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	return i.around("RenameAudit", 1, func() error {
		return i.Store.RenameAudit(ctx, id, user, alias)
	})
}

func (i *intercepted) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (int, bool, error) {
	return results3(i, "TrimAudit",
		func() (int, bool, error) { return i.Store.TrimAudit(ctx, below, limit) })
}

func (t *turns) RecordAudit(
	ctx context.Context, e storage.AuditEntry,
) error {
	return t.next().RecordAudit(ctx, e)
}

func (t *turns) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	return t.next().FinishAudit(ctx, id, end)
}

func (t *turns) ListAudit(
	ctx context.Context, page storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	return t.next().ListAudit(ctx, page)
}

func (t *turns) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	return t.next().RenameAudit(ctx, id, user, alias)
}

func (t *turns) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (int, bool, error) {
	return t.next().TrimAudit(ctx, below, limit)
}
