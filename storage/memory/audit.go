package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Audit = (*Store)(nil)

// RecordAudit implements storage.Audit.
func (s *Store) RecordAudit(ctx context.Context, e storage.AuditEntry) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	//rule:audited_before_done.recorded-once
	if _, found := s.audit[e.ID]; !found {
		s.audit[e.ID] = e
	}
	return nil
}

// FinishAudit implements storage.Audit.
func (s *Store) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	end.At = end.At.UTC().Truncate(time.Millisecond)
	return s.reaudit(ctx, id, func(e storage.AuditEntry) storage.AuditEntry {
		return e.Finish(end)
	})
}

// RenameAudit implements storage.Audit.
func (s *Store) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	return s.reaudit(ctx, id, func(e storage.AuditEntry) storage.AuditEntry {
		return e.Rename(user, alias)
	})
}

// reaudit changes an entry, if there is one.
func (s *Store) reaudit(
	ctx context.Context, id storage.AuditID, change func(storage.AuditEntry) storage.AuditEntry,
) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	e, found := s.audit[id]
	if !found {
		return nil
	}
	s.audit[id] = change(e)
	//rule:audited_before_done.withdrawn
	if s.audit[id].State == storage.AuditWithdrawn {
		delete(s.audit, id)
	}
	return nil
}

// ListAudit implements storage.Audit.
func (s *Store) ListAudit(
	ctx context.Context, p storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	if err := p.Check(); err != nil {
		return nil, false, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	var found []storage.AuditEntry
	for id, e := range s.audit {
		if id >= p.From && (p.Below == "" || id < p.Below) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b storage.AuditEntry) int { return cmp.Compare(b.ID, a.ID) })
	found, more := page(found, p.Limit)
	return found, more, nil
}

// TrimAudit implements storage.Audit.
func (s *Store) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (removed int, done bool, err error) {
	if err := storage.CheckAudit(limit); err != nil {
		return 0, false, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, false, err
	}
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.audit)) {
		if id >= below {
			break
		}
		if removed == limit {
			return removed, false, nil
		}
		delete(s.audit, id)
		removed++
	}
	return removed, true, nil
}
