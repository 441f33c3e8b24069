package erasure_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
)

// slow is an audit log of which a page takes nearly a minute.
type slow struct {
	storage.Audit
	pages atomic.Int64
}

func (s *slow) ListAudit(
	ctx context.Context, p storage.AuditPage,
) ([]storage.AuditEntry, bool, error) {
	s.pages.Add(1)
	time.Sleep(50 * time.Second)
	return s.Audit.ListAudit(ctx, p)
}

// TestWorker_erased_nowhere_in_a_long_audit_log: it takes longer to read than the claim of a
// process on the erasure lasts, and than a process runs. Two processes run at once. Each time, they
// go on where the one before was.
func TestWorker_erased_nowhere_in_a_long_audit_log(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const pages = 10
		for i := range pages * storage.MaxAudit {
			at := time.Now().Add(time.Duration(i-pages*storage.MaxAudit) * time.Minute)
			e := storage.AuditEntry{
				ID: storage.NewAuditID(at), Actor: "ann", Operation: "putBan",
				State: storage.AuditBegun,
			}
			if i%storage.MaxAudit == 0 { // in each page
				e.Target.User = zoe
			}
			w.ok(w.store.RecordAudit(w.ctx, e))
		}
		log := &slow{Audit: w.store}
		entries, err := audit.New(audit.Config{Store: log, Logger: w.log(), Clock: time.Now})
		w.ok(err)
		r := w.register(nil)
		_, err = r.Begin(w.ctx, zoe)
		w.ok(err)
		erased := func() bool {
			status, err := r.Status(w.ctx, zoe)
			w.ok(err)
			return status.State == "erased"
		}
		const most = 12 // A pass takes 40 minutes.
		runs := 0
		for ; runs < most && !erased(); runs++ {
			var stops []func()
			for range 2 {
				stops = append(stops, w.work(erasure.New(erasure.Config{
					Register: r, Store: w.store, Core: w.core, Log: w.log(), Entries: entries,
				})))
			}
			later(20 * time.Minute)
			for _, stop := range stops {
				stop()
			}
		}
		if !erased() || runs < 3 {
			t.Errorf("after %d runs of 20 minutes, it is done: %v; want more than 2, and done",
				runs, erased())
		}
		// Two passes, and in each run a page of which the process did not see the end.
		if got, bound := log.pages.Load(), int64(2*pages+2*runs); got > bound {
			t.Errorf("it has read %d pages, want at most %d", got, bound)
		}
		for below, more := storage.AuditID(""), true; more; {
			var found []storage.AuditEntry
			found, more, err = w.store.ListAudit(w.ctx,
				storage.AuditPage{Below: below, Limit: storage.MaxAudit})
			w.ok(err)
			for _, e := range found {
				if below = e.ID; e.Names(zoe) {
					t.Errorf("%+v names an erased user", e)
				}
			}
		}
	})
}
