package simulationtest

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// No simulated call is audited. So these calls do not wait at the gate.

func (s gatedStore) RecordAudit(
	ctx context.Context, e storage.AuditEntry,
) error {
	return s.n.simulation.raw.RecordAudit(ctx, e)
}

func (s gatedStore) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	return s.n.simulation.raw.FinishAudit(ctx, id, end)
}

func (s gatedStore) ListAudit(
	ctx context.Context, page storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	return s.n.simulation.raw.ListAudit(ctx, page)
}

func (s gatedStore) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	return s.n.simulation.raw.RenameAudit(ctx, id, user, alias)
}

func (s gatedStore) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (int, bool, error) {
	return s.n.simulation.raw.TrimAudit(ctx, below, limit)
}
