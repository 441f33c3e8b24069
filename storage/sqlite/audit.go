package sqlite

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Audit = (*Store)(nil)

const (
	auditColumns = `id, key_name, actor_id, request_id, operation, user_id, chat_id, sequence,
			outlet_id, state, code, ended_at`
	//rule:audited_before_done.recorded-once-in-sqlite
	insertAudit = `INSERT INTO audit (` + auditColumns + `)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	//rule:audited_before_done.finished-once-in-sqlite
	finishAudit = `UPDATE audit SET state = ?2, code = ?3, ended_at = ?4
		WHERE id = ?1 AND state = 'begun'`
	//rule:audited_before_done.only-begun-ones-are-withdrawn-in-sqlite
	withdrawAudit = `DELETE FROM audit WHERE id = ? AND state = 'begun'`
	renameAudit   = `UPDATE audit SET
			actor_id = CASE WHEN actor_id = ?2 THEN ?3 ELSE actor_id END,
			user_id = CASE WHEN user_id = ?2 THEN ?3 ELSE user_id END,
			request_id = CASE WHEN instr(request_id, ?2) > 0 THEN '' ELSE request_id END
		WHERE id = ?1 AND (actor_id = ?2 OR user_id = ?2)`
	listAudit = `SELECT ` + auditColumns + `
		FROM audit WHERE id >= ? AND id < ? ORDER BY id DESC LIMIT ?`
	trimAudit = `DELETE FROM audit WHERE id IN (
		SELECT id FROM audit WHERE id < ? ORDER BY id LIMIT ?)`
)

// aboveAudit is above all ids of entries.
const aboveAudit = "g"

// endedAt returns the column of a time that may be zero.
func endedAt(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// RecordAudit implements storage.Audit.
func (s *Store) RecordAudit(ctx context.Context, e storage.AuditEntry) error {
	return s.change(ctx, func(w *writer) error {
		return w.do(insertAudit, func(q *stmt) {
			for i, text := range []string{
				string(e.ID), e.Key, string(e.Actor), e.Request, e.Operation,
				string(e.Target.User), string(e.Target.Chat),
			} {
				q.string(i+1, text)
			}
			q.integer(8, int64(e.Target.Sequence))
			q.string(9, e.Target.Outlet)
			q.string(10, string(e.State))
			q.string(11, string(e.Code))
			q.integer(12, endedAt(e.EndedAt))
		})
	})
}

// FinishAudit implements storage.Audit.
func (s *Store) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	if !storage.AuditBegun.May(end.State) {
		return nil
	}
	return s.change(ctx, func(w *writer) error {
		if end.State == storage.AuditWithdrawn {
			return w.do(withdrawAudit, func(q *stmt) { q.string(1, string(id)) })
		}
		return w.do(finishAudit, func(q *stmt) {
			q.string(1, string(id))
			q.string(2, string(end.State))
			q.string(3, string(end.Code))
			q.integer(4, endedAt(end.At))
		})
	})
}

// RenameAudit implements storage.Audit.
func (s *Store) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	return s.change(ctx, func(w *writer) error {
		return w.do(renameAudit, func(q *stmt) {
			q.string(1, string(id))
			q.string(2, string(user))
			q.string(3, string(alias))
		})
	})
}

// ListAudit implements storage.Audit.
func (s *Store) ListAudit(
	ctx context.Context, p storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	if err := p.Check(); err != nil {
		return nil, false, err
	}
	below := string(p.Below)
	if below == "" {
		below = aboveAudit
	}
	return page(ctx, s, listAudit, p.Limit, func(q *stmt) {
		q.string(1, string(p.From))
		q.string(2, below)
		q.integer(3, int64(p.Limit)+1)
	}, func(row *stmt) storage.AuditEntry { return auditAt(row, 0) })
}

// auditAt returns the entry in the auditColumns that begin at a column.
func auditAt(row *stmt, at int) storage.AuditEntry {
	e := storage.AuditEntry{
		ID: storage.AuditID(row.stringAt(at)), Key: row.stringAt(at + 1),
		Actor: tidemark.UserID(row.stringAt(at + 2)), Request: row.stringAt(at + 3),
		Operation: row.stringAt(at + 4), Target: storage.AuditTarget{
			User:     tidemark.UserID(row.stringAt(at + 5)),
			Chat:     tidemark.ChatID(row.stringAt(at + 6)),
			Sequence: tidemark.Sequence(row.integerAt(at + 7)), Outlet: row.stringAt(at + 8),
		},
		State: storage.AuditState(row.stringAt(at + 9)),
		Code:  tidemark.Code(row.stringAt(at + 10)),
	}
	if ended := row.integerAt(at + 11); ended != 0 {
		e.EndedAt = timeOf(ended)
	}
	return e
}

// TrimAudit implements storage.Audit. secure_delete overwrites the entries in the file (configure).
func (s *Store) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (removed int, done bool, err error) {
	if err := storage.CheckAudit(limit); err != nil {
		return 0, false, err
	}
	err = s.change(ctx, func(w *writer) error {
		err := w.do(trimAudit, func(q *stmt) {
			q.string(1, string(below))
			q.integer(2, int64(limit))
		})
		removed = w.c.Changes()
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return removed, removed < limit, nil
}
