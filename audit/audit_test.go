package audit_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// noon is the time of the tests.
func noon() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// open returns a log of a store.
func open(t *testing.T, store storage.Audit, change func(*audit.Config)) *audit.Log {
	t.Helper()
	cfg := audit.Config{
		Store: store, Days: 30, Logger: slog.New(slog.DiscardHandler), Clock: noon,
	}
	if change != nil {
		change(&cfg)
	}
	l, err := audit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// all returns the entries of a store.
func all(t *testing.T, store storage.Audit) []audit.Entry {
	t.Helper()
	found, _, err := store.ListAudit(t.Context(), storage.AuditPage{Limit: storage.MaxAudit})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestDo_audited_before_done(t *testing.T) {
	refused := tidemark.Errorf(tidemark.Denied, "no")
	for _, c := range []struct {
		name string
		err  error
		want storage.AuditState
		code tidemark.Code
	}{
		{"done", nil, storage.AuditDone, ""},
		{"refused", refused, storage.AuditRefused, tidemark.Denied},
		{"in doubt", tidemark.Errorf(tidemark.Unavailable, "?"), storage.AuditUnknown,
			tidemark.Unavailable},
		{"a bug", errors.New("oops"), storage.AuditUnknown, tidemark.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := memory.New()
			l := open(t, store, nil)
			ctx := audit.WithActor(tidemark.WithRequestID(t.Context(), "r1"),
				audit.Actor{Key: "back", User: "ann"})
			target := audit.Target{User: "bob", Chat: "team", Sequence: 3}
			want := audit.Entry{
				Key: "back", Actor: "ann", Request: "r1", Operation: "putBan", Target: target,
				State: storage.AuditBegun,
			}
			check := func(when string) {
				t.Helper()
				got := all(t, store)
				if len(got) != 1 {
					t.Fatalf("%s: got %d entries, want 1", when, len(got))
				}
				want.ID = got[0].ID
				if diff := cmp.Diff(want, got[0]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
				if at, err := got[0].ID.At(); err != nil || !at.Equal(noon()) {
					t.Errorf("the time of the entry: got %v, %v, want %v", at, err, noon())
				}
			}
			err := l.Do(ctx, "putBan", target, func() error {
				check("in the call")
				return c.err
			})
			if !errors.Is(err, c.err) {
				t.Errorf("got error %v, want %v", err, c.err)
			}
			want.State, want.Code, want.EndedAt = c.want, c.code, noon()
			check("after the call")
		})
	}
}

// TestDo_audited_before_done_unless_a_user_is_refused: users cannot fill the log with calls that
// have no effect.
func TestDo_audited_before_done_unless_a_user_is_refused(t *testing.T) {
	refused := tidemark.Errorf(tidemark.Denied, "no")
	for _, c := range []struct {
		name  string
		actor audit.Actor
		err   error
		want  []storage.AuditState
	}{
		{"a user", audit.Actor{User: "ann"}, refused, nil},
		{"an erased user", audit.Actor{User: "zoe"}, refused, nil},
		{"a user, with an effect", audit.Actor{User: "ann"}, nil,
			[]storage.AuditState{storage.AuditDone}},
		{"a user, in doubt", audit.Actor{User: "ann"}, tidemark.Errorf(tidemark.Unavailable, "?"),
			[]storage.AuditState{storage.AuditUnknown}},
		{"a key", audit.Actor{Key: "back"}, refused,
			[]storage.AuditState{storage.AuditRefused}},
		{"a key for a user", audit.Actor{Key: "back", User: "ann"}, refused,
			[]storage.AuditState{storage.AuditRefused}},
		{"the program", audit.Actor{}, refused,
			[]storage.AuditState{storage.AuditRefused}},
	} {
		store := memory.New()
		l := open(t, store, func(cfg *audit.Config) { cfg.Erasures = gone("zoe") })
		ctx := audit.WithActor(t.Context(), c.actor)
		err := l.Do(ctx, "x", audit.Target{}, func() error {
			if n := len(all(t, store)); n != 1 {
				t.Errorf("%s: %d entries in the call, want 1", c.name, n)
			}
			return c.err
		})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.err)
		}
		var got []storage.AuditState
		for _, e := range all(t, store) {
			got = append(got, e.State)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: states of the entries (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestDo_audited_before_done_or_not_at_all makes calls whose entries cannot be written.
func TestDo_audited_before_done_or_not_at_all(t *testing.T) {
	for _, c := range []struct {
		fails string
		want  tidemark.Code
		calls int
		state storage.AuditState
	}{
		{"", "", 1, storage.AuditDone},
		{"RecordAudit", tidemark.Unavailable, 0, ""},
		{"FinishAudit", "", 1, storage.AuditBegun},
	} {
		store := storagetest.Fault(memory.New())
		store.Before = func(method string) error {
			if method == c.fails {
				return tidemark.Errorf(tidemark.Unavailable, "the disk is full")
			}
			return nil
		}
		calls := 0
		err := open(t, store, nil).Do(t.Context(), "x", audit.Target{}, func() error {
			calls++
			return nil
		})
		if code := tidemark.CodeOf(err); code != c.want || calls != c.calls {
			t.Errorf("%q fails: got %q after %d calls, want %q after %d", c.fails, code, calls,
				c.want, c.calls)
		}
		var state storage.AuditState
		for _, e := range all(t, store) {
			state = e.State
		}
		if state != c.state {
			t.Errorf("%q fails: got the state %q, want %q", c.fails, state, c.state)
		}
	}
}

// TestNote_audited_before_done_or_right_after notes calls, one of which cannot be written.
func TestNote_audited_before_done_or_right_after(t *testing.T) {
	store := storagetest.Fault(memory.New())
	fails := false
	store.Before = func(string) error {
		if fails {
			return tidemark.Errorf(tidemark.Unavailable, "the disk is full")
		}
		return nil
	}
	l := open(t, store, nil)
	ctx, cancel := context.WithCancel(audit.WithActor(
		tidemark.WithRequestID(t.Context(), "r1"), audit.Actor{Key: "back", User: "ann"}))
	cancel() // A caller who went away changes nothing.
	target := audit.Target{User: "bob", Chat: "team", Sequence: 3}
	l.Note(ctx, "sendMessage", target)
	fails = true
	l.Note(ctx, "sendMessage", target)
	fails = false
	got := all(t, store)
	if len(got) != 1 {
		t.Fatalf("got %d entries, want 1", len(got))
	}
	if diff := cmp.Diff(audit.Entry{
		ID: got[0].ID, Key: "back", Actor: "ann", Request: "r1", Operation: "sendMessage",
		Target: target, State: storage.AuditDone, EndedAt: noon(),
	}, got[0]); diff != "" {
		t.Errorf("the entry (-want +got):\n%s", diff)
	}
	counters := l.Counters()
	if n, failed := counters["audit_entries_total"], counters["audit_failures_total"]; n != 1 ||
		failed != 1 {
		t.Errorf("got %d entries and %d failures, want 1 and 1", n, failed)
	}
}

// TestDo_without_a_log makes calls that write no entry.
func TestDo_without_a_log(t *testing.T) {
	store := memory.New()
	for _, l := range []*audit.Log{
		nil, open(t, store, func(c *audit.Config) { c.Days = 0 }),
	} {
		calls := 0
		if err := l.Do(t.Context(), "x", audit.Target{}, func() error {
			calls++
			return nil
		}); err != nil || calls != 1 {
			t.Errorf("got %v after %d calls, want nil after 1", err, calls)
		}
	}
	if got := all(t, store); len(got) > 0 {
		t.Errorf("got entries %v, want none", got)
	}
	for _, days := range []int{-1, audit.MaxDays + 1} {
		if _, err := audit.New(audit.Config{Days: days}); tidemark.CodeOf(err) != tidemark.Invalid {
			t.Errorf("%d days: got error %v, want INVALID", days, err)
		}
	}
}

// gone knows that one user was erased.
type gone tidemark.UserID

func (g gone) Erased(user tidemark.UserID) error {
	if user == tidemark.UserID(g) {
		return tidemark.Errorf(tidemark.Denied, "erased")
	}
	return nil
}

// TestBegin_bounded_input_names_only_ids: the call is refused for what can be no id.
func TestBegin_bounded_input_names_only_ids(t *testing.T) {
	alias := tidemark.ErasedID("1")
	for _, c := range []struct{ given, want audit.Target }{
		{
			audit.Target{User: "bob", Chat: "team", Sequence: 3, Outlet: "crm"},
			audit.Target{User: "bob", Chat: "team", Sequence: 3, Outlet: "crm"},
		},
		{audit.Target{User: alias}, audit.Target{User: alias}},
		{audit.Target{User: "a\x00", Chat: "a b", Sequence: 3}, audit.Target{Sequence: 3}},
		{audit.Target{Outlet: strings.Repeat("x", 1_000)}, audit.Target{}},
	} {
		store := memory.New()
		if _, err := open(t, store, nil).Begin(t.Context(), "x", c.given); err != nil {
			t.Fatal(err)
		}
		if got := all(t, store); len(got) != 1 || got[0].Target != c.want {
			t.Errorf("%.50v: got %+v, want %+v", c.given, got, c.want)
		}
	}
}

func TestForget_erased_nowhere_in_the_audit_log(t *testing.T) {
	store := memory.New()
	l := open(t, store, nil)
	as := func(actor, user tidemark.UserID) {
		t.Helper()
		ctx := audit.WithActor(t.Context(), audit.Actor{User: actor})
		err := l.Do(ctx, "x", audit.Target{User: user}, func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	// More than one page.
	for range storage.MaxAudit - 1 {
		as("ann", "bob")
	}
	as("ann", "zoe")
	as("zoe", "bob")
	as("zoe", "zoe")
	for range 2 {
		calls := 0
		below := storage.AuditID("")
		for more := true; more; calls++ {
			var err error
			if below, more, err = l.Forget(t.Context(), "zoe", below); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 2 {
			t.Errorf("got %d calls for a page and two entries, want 2", calls)
		}
		// From the last position on, nothing is left.
		if next, more, err := l.Forget(t.Context(), "zoe", below); next != below || more ||
			err != nil {
			t.Errorf("got %q, %v, %v at the end, want %q", next, more, err, below)
		}
	}
	aliases := map[tidemark.UserID]int{}
	p := storage.AuditPage{Limit: storage.MaxAudit}
	for more := true; more; {
		var found []audit.Entry
		var err error
		if found, more, err = store.ListAudit(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		for _, e := range found {
			p.Below = e.ID
			aliases[e.Actor]++
			aliases[e.Target.User]++
		}
	}
	if n := aliases["zoe"]; n > 0 {
		t.Errorf("%d entries name an erased user, want none", n)
	}
	others := len(aliases) - 2 // ann and bob
	if others != 3 || aliases["bob"] != storage.MaxAudit || aliases["ann"] != storage.MaxAudit {
		t.Errorf("got %d aliases, %d of bob and %d of ann; want one alias an entry, and the "+
			"others as they were", others, aliases["bob"], aliases["ann"])
	}
}

func TestBegin_erased_nowhere_in_later_entries(t *testing.T) {
	store := memory.New()
	l := open(t, store, func(c *audit.Config) { c.Erasures = gone("zoe") })
	for _, who := range [][2]tidemark.UserID{{"ann", "zoe"}, {"zoe", "bob"}, {"ann", "bob"}} {
		ctx := audit.WithActor(tidemark.WithRequestID(t.Context(), "of-zoe"),
			audit.Actor{User: who[0]})
		if _, err := l.Begin(ctx, "x", audit.Target{User: who[1]}); err != nil {
			t.Fatal(err)
		}
		l.Note(ctx, "x", audit.Target{User: who[1]})
	}
	named := map[tidemark.UserID]int{}
	for _, e := range all(t, store) {
		// A request that names somebody says nothing of an entry that does not.
		if got, want := e.Request == "", !e.Names("ann") || !e.Names("bob"); got != want {
			t.Errorf("%+v has no request: %v, want %v", e, got, want)
		}
		named[e.Actor]++
		named[e.Target.User]++
	}
	if named["zoe"] != 0 || named["ann"] != 4 || named["bob"] != 4 {
		t.Errorf("got entries that name %v, want ann and bob 4 times, and never zoe", named)
	}
}

func TestRun_audited_before_done_for_days(t *testing.T) {
	store := memory.New()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, age := range []time.Duration{0, 29, 31, 32} {
		err := store.RecordAudit(ctx, audit.Entry{
			ID: storage.NewAuditID(noon().Add(-age * 24 * time.Hour)), State: storage.AuditBegun,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, store, nil)
	if err := l.Trim(ctx); err != nil {
		t.Fatal(err)
	}
	if got := len(all(t, store)); got != 2 {
		t.Errorf("got %d entries, want the 2 of the last 30 days", got)
	}
	if got := l.Counters()["audit_removed_total"]; got != 2 {
		t.Errorf("got %d removed ones, want 2", got)
	}
}

// TestList_looks_at_a_bounded_number searches for an entry among many.
func TestList_looks_at_a_bounded_number(t *testing.T) {
	store := memory.New()
	l := open(t, store, nil)
	record := func(at time.Time, operation string) {
		err := store.RecordAudit(t.Context(), audit.Entry{
			ID: storage.NewAuditID(at), Operation: operation, State: storage.AuditBegun,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	record(noon(), "rare")
	for i := range 10*storage.MaxAudit + 1 {
		record(noon().Add(time.Duration(1+i)*time.Second), "usual")
	}
	q := audit.Query{Operation: "rare", Limit: 5}
	first, err := l.List(t.Context(), q)
	if err != nil || len(first.Entries) > 0 || first.Next == "" {
		t.Fatalf("got %d entries, the cursor %q and error %v, want an empty page and a cursor",
			len(first.Entries), first.Next, err)
	}
	q.Cursor = first.Next
	second, err := l.List(t.Context(), q)
	if err != nil || len(second.Entries) != 1 || second.Next != "" {
		t.Errorf("got %d entries, the cursor %q and error %v, want the entry and no cursor",
			len(second.Entries), second.Next, err)
	}
}
