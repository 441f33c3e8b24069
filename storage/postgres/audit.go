package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Audit = (*Store)(nil)

const (
	auditColumns = `id, key_name, actor_id, request_id, operation, user_id, chat_id, sequence,
			outlet_id, state, code, ended_at`
	//rule:audited_before_done.recorded-once-in-postgres
	insertAudit = `INSERT INTO audit (` + auditColumns + `)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING`
	//rule:audited_before_done.finished-once-in-postgres
	finishAudit = `UPDATE audit SET state = $2, code = $3, ended_at = $4
		WHERE id = $1 AND state = 'begun'`
	//rule:audited_before_done.only-begun-ones-are-withdrawn-in-postgres
	withdrawAudit = `DELETE FROM audit WHERE id = $1 AND state = 'begun'`
	renameAudit   = `UPDATE audit SET
			actor_id = CASE WHEN actor_id = $2 THEN $3 ELSE actor_id END,
			user_id = CASE WHEN user_id = $2 THEN $3 ELSE user_id END,
			request_id = CASE WHEN strpos(request_id, $2) > 0 THEN '' ELSE request_id END
		WHERE id = $1 AND (actor_id = $2 OR user_id = $2)`
	// With both bounds in one condition, Postgres expects few rows in a table that it does not
	// know. It then reads and sorts all of them.
	listAudit = `SELECT ` + auditColumns + ` FROM (
			SELECT * FROM audit WHERE id < $2 ORDER BY id DESC LIMIT $3) AS a
		WHERE id >= $1 ORDER BY id DESC`
	trimAudit = `DELETE FROM audit WHERE id = ANY (ARRAY(
		SELECT id FROM audit WHERE id < $1 ORDER BY id LIMIT $2))`
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
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.Exec(ctx, insertAudit, string(e.ID), e.Key, string(e.Actor), e.Request,
			e.Operation, string(e.Target.User), string(e.Target.Chat), int64(e.Target.Sequence),
			e.Target.Outlet, string(e.State), string(e.Code), endedAt(e.EndedAt))
		return err
	})
}

// FinishAudit implements storage.Audit.
func (s *Store) FinishAudit(
	ctx context.Context, id storage.AuditID, end storage.AuditEnd,
) error {
	if !storage.AuditBegun.May(end.State) {
		return nil
	}
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		if end.State == storage.AuditWithdrawn {
			_, err := c.Exec(ctx, withdrawAudit, string(id))
			return err
		}
		_, err := c.Exec(ctx, finishAudit, string(id), string(end.State), string(end.Code),
			endedAt(end.At))
		return err
	})
}

// RenameAudit implements storage.Audit.
func (s *Store) RenameAudit(
	ctx context.Context, id storage.AuditID, user, alias tidemark.UserID,
) error {
	return s.change(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.Exec(ctx, renameAudit, string(id), string(user), string(alias))
		return err
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
	parameters := []any{string(p.From), below, int64(p.Limit) + 1}
	return list(ctx, s, listAudit, p.Limit, parameters, auditIn)
}

// auditIn returns the entry in the auditColumns of a row.
func auditIn(row pgx.Rows) (e storage.AuditEntry, err error) {
	var sequence, ended int64
	err = row.Scan((*string)(&e.ID), &e.Key, (*string)(&e.Actor), &e.Request, &e.Operation,
		(*string)(&e.Target.User), (*string)(&e.Target.Chat), &sequence, &e.Target.Outlet,
		(*string)(&e.State), (*string)(&e.Code), &ended)
	e.Target.Sequence = tidemark.Sequence(sequence)
	if ended != 0 {
		e.EndedAt = timeOf(ended)
	}
	return e, err
}

// TrimAudit implements storage.Audit.
func (s *Store) TrimAudit(
	ctx context.Context, below storage.AuditID, limit int,
) (removed int, done bool, err error) {
	if err := storage.CheckAudit(limit); err != nil {
		return 0, false, err
	}
	err = s.change(ctx, func(ctx context.Context, c *conn) error {
		tag, err := c.Exec(ctx, trimAudit, string(below), int64(limit))
		removed = int(tag.RowsAffected())
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return removed, removed < limit, nil
}
