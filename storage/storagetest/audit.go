package storagetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// day is the beginning of a day that no other fixture has, so that each has entries of its own.
func (f *fixture) day() time.Time {
	var n int
	if _, err := fmt.Sscanf(f.prefix, "t%d-", &n); err != nil {
		f.Fatalf("the prefix %q has no number", f.prefix)
	}
	return time.Date(2001, 1, 1+n, 0, 0, 0, 0, time.UTC)
}

// entry returns the id of an entry of the fixture's day. Two that have the same number are equal.
func (f *fixture) entry(n int) storage.AuditID {
	at := f.day().Add(time.Duration(n/3) * time.Hour)
	return storage.AuditIDAt(at) + storage.AuditID(fmt.Sprintf("%016x", n))
}

// audited returns an entry that names two users.
func (f *fixture) audited(n int) storage.AuditEntry {
	return storage.AuditEntry{
		ID: f.entry(n), Key: "back", Actor: f.user("alice"), Request: "r1",
		Operation: "removeMember", State: storage.AuditBegun,
		Target: storage.AuditTarget{
			User: f.user("bob"), Chat: f.chat("c"), Sequence: 7, Outlet: "o",
		},
	}
}

func (f *fixture) record(entries ...storage.AuditEntry) {
	f.Helper()
	for _, e := range entries {
		f.ok(f.store.RecordAudit(f.ctx, e))
	}
}

// ownAudit returns the entries of the fixture's day, read in pages.
func (f *fixture) ownAudit(limit int) (found []storage.AuditEntry) {
	f.Helper()
	p := storage.AuditPage{
		From: storage.AuditIDAt(f.day()), Below: storage.AuditIDAt(f.day().AddDate(0, 0, 1)),
		Limit: limit,
	}
	for more := true; more; {
		var some []storage.AuditEntry
		var err error
		some, more, err = f.store.ListAudit(f.ctx, p)
		f.ok(err)
		if len(some) > limit || more && len(some) < limit {
			f.Fatalf("a page of %d has %d entries, and more is %v", limit, len(some), more)
		}
		for _, e := range some {
			found, p.Below = append(found, e), e.ID
		}
	}
	return found
}

var auditRules = []rule{
	{"audited_before_done_recorded_once", func(f *fixture) {
		e := f.audited(1)
		bare := storage.AuditEntry{ID: f.entry(2), Operation: "import", State: storage.AuditBegun}
		f.record(e, bare)
		again := e
		again.Key, again.State = "other", storage.AuditDone
		f.record(again)
		f.equal("entries", f.ownAudit(9), []storage.AuditEntry{bare, e})
		f.ok(f.store.FinishAudit(f.ctx, e.ID, storage.AuditEnd{
			State: storage.AuditDone, At: at(1),
		}))
		f.record(e)
		e.State, e.EndedAt = storage.AuditDone, at(1)
		f.equal("after a late repetition", f.ownAudit(9), []storage.AuditEntry{bare, e})
	}},
	{"audited_before_done_finished_once", func(f *fixture) {
		end := storage.AuditEnd{State: storage.AuditRefused, Code: tidemark.Denied, At: at(2)}
		f.ok(f.store.FinishAudit(f.ctx, f.entry(1), end))
		f.equal("what was not recorded", len(f.ownAudit(9)), 0)
		e := f.audited(1)
		f.record(e)
		f.ok(f.store.FinishAudit(f.ctx, e.ID, storage.AuditEnd{
			State: storage.AuditBegun, At: at(1),
		}))
		f.equal("begun twice", f.ownAudit(9), []storage.AuditEntry{e})
		f.ok(f.store.FinishAudit(f.ctx, e.ID, end))
		for _, state := range []storage.AuditState{
			storage.AuditDone, storage.AuditUnknown, storage.AuditRefused, storage.AuditBegun,
			storage.AuditWithdrawn,
		} {
			f.ok(f.store.FinishAudit(f.ctx, e.ID, storage.AuditEnd{State: state, At: at(3)}))
		}
		e.State, e.Code, e.EndedAt = storage.AuditRefused, tidemark.Denied, at(2)
		f.equal("entries", f.ownAudit(9), []storage.AuditEntry{e})
	}},
	{"audited_before_done_withdrawn_while_it_is_begun", func(f *fixture) {
		withdraw := func(n int) {
			f.Helper()
			f.ok(f.store.FinishAudit(f.ctx, f.entry(n), storage.AuditEnd{
				State: storage.AuditWithdrawn, At: at(2),
			}))
		}
		begun, bare, ended := f.audited(1), f.audited(2), f.audited(3)
		f.record(begun, bare, ended)
		f.ok(f.store.FinishAudit(f.ctx, ended.ID, storage.AuditEnd{
			State: storage.AuditDone, At: at(1),
		}))
		ended.State, ended.EndedAt = storage.AuditDone, at(1)
		for range 2 {
			for _, n := range []int{1, 3, 4} {
				withdraw(n)
			}
			f.equal("entries", f.ownAudit(9), []storage.AuditEntry{ended, bare})
		}
		// What is gone is neither finished nor renamed.
		f.ok(f.store.FinishAudit(f.ctx, begun.ID, storage.AuditEnd{
			State: storage.AuditDone, At: at(3),
		}))
		f.ok(f.store.RenameAudit(f.ctx, begun.ID, begun.Actor, tidemark.ErasedID("1")))
		f.equal("after later changes", f.ownAudit(9), []storage.AuditEntry{ended, bare})
		withdraw(2)
		f.equal("the last one", f.ownAudit(9), []storage.AuditEntry{ended})
	}},
	{"ListAudit_has_pages_from_the_newest_on", func(f *fixture) {
		var want []storage.AuditEntry
		for n := range 40 {
			e := f.audited(n)
			want = append([]storage.AuditEntry{e}, want...)
		}
		// They are recorded in another order.
		for n := range want {
			f.record(want[(n*7)%len(want)])
		}
		for _, limit := range []int{1, 3, 39, 40, 41, storage.MaxAudit} {
			f.equal(fmt.Sprint("pages of ", limit), f.ownAudit(limit), want)
		}
		some, more, err := f.store.ListAudit(f.ctx, storage.AuditPage{
			From: f.entry(3), Below: f.entry(6), Limit: 3,
		})
		f.ok(err)
		f.equal("more", more, false)
		f.equal("between two", some, want[34:37])
		for _, below := range []storage.AuditID{
			f.entry(6), f.entry(3), storage.AuditIDAt(f.day().AddDate(0, 0, -1)),
		} {
			some, more, err = f.store.ListAudit(f.ctx, storage.AuditPage{
				From: f.entry(6), Below: below, Limit: 3,
			})
			f.ok(err)
			f.equal("of an empty range", []any{len(some), more}, []any{0, false})
		}
	}},
	{"ListAudit_goes_over_days", func(f *fixture) {
		// No other fixture has times like these.
		first := time.Date(1990, 1, 1, 23, 0, 0, 0, time.UTC)
		p := storage.AuditPage{
			From: storage.AuditIDAt(first), Below: storage.AuditIDAt(first.AddDate(0, 6, 0)),
			Limit: 4,
		}
		var want []storage.AuditID
		for _, after := range []time.Duration{0, 59 * time.Minute, time.Hour, 900 * time.Hour} {
			id := storage.NewAuditID(first.Add(after))
			f.record(storage.AuditEntry{ID: id, State: storage.AuditBegun})
			want = append([]storage.AuditID{id}, want...)
		}
		some, more, err := f.store.ListAudit(f.ctx, p)
		f.ok(err)
		f.equal("more", more, false)
		var got []storage.AuditID
		for _, e := range some {
			got = append(got, e.ID)
		}
		f.equal("ids", got, want)
	}},
	{"erased_nowhere_in_entries", func(f *fixture) {
		alice, bob, alias := f.user("alice"), f.user("bob"), tidemark.ErasedID("1")
		both, told, other := f.audited(3), f.audited(4), f.audited(5)
		both.Actor = bob
		told.Request = "ban-" + string(bob) + "-1"
		other.Actor, other.Target.User, other.Request = alice, "", told.Request
		f.record(f.audited(1), f.audited(2), both, told, other)
		for range 2 {
			for n := range 6 {
				f.ok(f.store.RenameAudit(f.ctx, f.entry(n), bob, alias))
			}
		}
		f.ok(f.store.RenameAudit(f.ctx, f.entry(2), alice, alias))
		f.ok(f.store.FinishAudit(f.ctx, f.entry(1), storage.AuditEnd{
			State: storage.AuditDone, At: at(1),
		}))
		told.Request = "" // It had the id of the user in it.
		want := []storage.AuditEntry{other, told, f.audited(3), f.audited(2), f.audited(1)}
		for i := range want[1:] {
			want[1+i].Target.User = alias
		}
		want[2].Actor, want[3].Actor = alias, alias
		want[4].State, want[4].EndedAt = storage.AuditDone, at(1)
		f.equal("entries", f.ownAudit(9), want)
	}},
	{"TrimAudit_removes_the_oldest", func(f *fixture) {
		// The other rules have later entries, and this is the only one that removes some.
		first := time.Date(1971, 1, 1, 12, 0, 0, 0, time.UTC)
		day := func(n int) time.Time { return first.AddDate(0, 0, n) }
		left := func() (n int) {
			found, _, err := f.store.ListAudit(f.ctx, storage.AuditPage{
				Below: storage.AuditIDAt(day(900)), Limit: 99,
			})
			f.ok(err)
			return len(found)
		}
		for n := range 9 {
			f.record(storage.AuditEntry{
				ID: storage.NewAuditID(day(n / 3)), State: storage.AuditBegun,
			})
		}
		trim := func(until time.Time, limit int) any {
			n, done, err := f.store.TrimAudit(f.ctx, storage.AuditIDAt(until), limit)
			f.ok(err)
			return []any{n, done, left()}
		}
		f.equal("nothing is so old", trim(day(0), 5), []any{0, true, 9})
		f.equal("two", trim(day(2), 2), []any{2, false, 7})
		f.equal("the rest of two days", trim(day(2), 5), []any{4, true, 3})
		f.equal("again", trim(day(2), 5), []any{0, true, 3})
		f.record(storage.AuditEntry{ID: storage.NewAuditID(day(2)), State: storage.AuditBegun})
		f.equal("all", trim(day(2).Add(time.Minute), 9), []any{4, true, 0})
	}},
	{"Audit_refuses", func(f *fixture) {
		for _, p := range []storage.AuditPage{
			{}, {Limit: storage.MaxAudit + 1}, {From: "x", Limit: 1}, {Below: "0", Limit: 1},
			{Below: storage.AuditID("00000000000G"), Limit: 1},
		} {
			_, _, err := f.store.ListAudit(f.ctx, p)
			f.code(err, tidemark.Invalid)
		}
		for _, limit := range []int{0, storage.MaxAudit + 1} {
			_, _, err := f.store.TrimAudit(f.ctx, storage.AuditIDAt(time.UnixMilli(0)), limit)
			f.code(err, tidemark.Invalid)
		}
	}},
}

// audit makes a random call, and compares the entries.
func (m *model) audit(rt *rapid.T) {
	n, who := rapid.IntRange(0, 5).Draw(rt, "entry"), m.drawUser(rt)
	state := rapid.SampledFrom([]storage.AuditState{
		storage.AuditDone, storage.AuditRefused, storage.AuditUnknown, storage.AuditWithdrawn,
	}).Draw(rt, "state")
	lot, now := rapid.IntRange(0, 2).Draw(rt, "call"), at(m.tick())
	m.both("audit", func(f *fixture) (any, error) {
		switch lot {
		case 0:
			e := f.audited(n)
			e.Actor, e.Target.User = who, f.user("a")
			return true, f.store.RecordAudit(f.ctx, e)
		case 1:
			return true, f.store.FinishAudit(f.ctx, f.entry(n), storage.AuditEnd{
				State: state, Code: tidemark.Denied, At: now,
			})
		}
		return true, f.store.RenameAudit(f.ctx, f.entry(n), who, tidemark.ErasedID("1"))
	})
	m.both("ListAudit", func(f *fixture) (any, error) { return f.ownAudit(2), nil })
}
