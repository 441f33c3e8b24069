package postgres

import (
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark/storage"
)

// audits are the operations of the audit log. Each round has a day of its own.
func (w *workload) audits() []operation {
	day := func(r int) time.Time { return time.Date(2001, 1, 1+r, 0, 0, 0, 0, time.UTC) }
	id := func(r, n int) storage.AuditID {
		at := day(r).Add(time.Duration(n) * time.Minute)
		return storage.AuditIDAt(at) + storage.AuditID(fmt.Sprintf("%016x", n))
	}
	record := func(r, n int) error {
		return w.s.RecordAudit(w.t.Context(), storage.AuditEntry{
			ID: id(r, n), Key: "back", Actor: "ann", Request: "r1", Operation: "putBan",
			State: storage.AuditBegun, Target: storage.AuditTarget{User: "bob", Chat: "team"},
		})
	}
	return []operation{
		{
			"`RecordAudit`",
			func(r int) error {
				for n := range 100 {
					if err := record(r, n); err != nil {
						return err
					}
				}
				return nil
			},
			func(r int) error { return record(r, 100) },
		},
		{
			"`FinishAudit`", nil,
			func(r int) error {
				return w.s.FinishAudit(w.t.Context(), id(r, 100), storage.AuditEnd{
					State: storage.AuditDone, At: day(r),
				})
			},
		},
		{
			"`FinishAudit` of an entry that is withdrawn",
			func(r int) error { return record(r, 101) },
			func(r int) error {
				return w.s.FinishAudit(w.t.Context(), id(r, 101), storage.AuditEnd{
					State: storage.AuditWithdrawn,
				})
			},
		},
		{
			"`RenameAudit`", nil,
			func(r int) error { return w.s.RenameAudit(w.t.Context(), id(r, 100), "bob", "x") },
		},
		{
			"`ListAudit`, 20 of 101", nil,
			func(r int) error {
				_, _, err := w.s.ListAudit(w.t.Context(), storage.AuditPage{
					From: storage.AuditIDAt(day(r)), Limit: 20,
				})
				return err
			},
		},
		{
			"`TrimAudit`, 20 of 101", nil,
			func(r int) error {
				_, _, err := w.s.TrimAudit(w.t.Context(), storage.AuditIDAt(day(r+1)), 20)
				return err
			},
		},
	}
}
