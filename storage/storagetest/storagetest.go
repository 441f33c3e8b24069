// Package storagetest is the conformance suite of the storage contract. Every backend passes all of
// it: there are no exceptions and no capability flags. It also has two wrappers for other tests:
// Counting and Faulty.
//
// A backend's test has one line for each function:
//
//	func TestStore(t *testing.T)         { storagetest.Run(t, open) }
//	func TestStore_durable(t *testing.T) { storagetest.RunDurable(t, open, reopen) }
//	func TestStore_shared(t *testing.T)  { storagetest.RunShared(t, openTwo) }
//	func TestStore_restored(t *testing.T) { storagetest.RunRestored(t, open, restore) }
//
// Every subtest is named after the rule that it checks. The subtests share a store and run in
// parallel. Each uses ids of its own, so every rule is also tested beside other data.
//
// The model test makes random runs. Their number is rapid's flag -rapid.checks, and a failure
// prints the seed. The number of histories under concurrency is TIDEMARK_HISTORY_RUNS (history.go).
// The number of schedules, whose unread counts are compared, is TIDEMARK_UNREAD_RUNS (schedule.go).
package storagetest

import (
	"context"
	"flag"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

// Open returns an empty store, and closes it when t ends (t.Cleanup). It is called several times.
type Open func(t *testing.T) storage.Store

// Run tests that a backend keeps the contract.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	limitChecks(t, "20")
	t.Run("rules", func(t *testing.T) { newSuite(open(t)).runAll(t) })
	t.Run("Close", func(t *testing.T) { testClose(t, open) })
	t.Run("model", func(t *testing.T) { testModel(t, newSuite(open(t)), nil) })
	t.Run("histories", func(t *testing.T) { testHistories(t, newSuite(open(t))) })
	t.Run("schedules", func(t *testing.T) { testSchedules(t, newSuite(open(t))) })
}

// RunDurable tests that a backend keeps what it confirmed after it was closed. reopen closes a
// store and opens the same data again.
func RunDurable(
	t *testing.T, open func(t *testing.T) storage.Store,
	reopen func(t *testing.T, s storage.Store) storage.Store,
) {
	limitChecks(t, "6")
	t.Run("everything_confirmed_is_there_after_reopening",
		func(t *testing.T) { testReopen(t, open, reopen) })
	t.Run("appends_confirmed_while_closing_are_there",
		func(t *testing.T) { testCloseUnderLoad(t, open, reopen) })
	t.Run("model", func(t *testing.T) { testModel(t, newSuite(open(t)), reopen) })
}

// limitChecks sets the number of runs of the model test, unless the flag is given.
func limitChecks(t *testing.T, modest string) {
	checks := flag.Lookup("rapid.checks")
	if checks.Value.String() != checks.DefValue {
		return
	}
	if err := checks.Value.Set(modest); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := checks.Value.Set(checks.DefValue); err != nil {
			t.Error(err)
		}
	})
}

// suite is a store with a counter that gives each test its own ids.
type suite struct {
	store storage.Store
	last  *atomic.Int64
	// without names the rules (role/name) that do not run.
	without map[string]bool
}

func newSuite(s storage.Store) suite { return suite{store: s, last: &atomic.Int64{}} }

// rule is a subtest: the rule as its name, and the test of it.
type rule struct {
	name string
	test func(f *fixture)
}

func (s suite) runAll(t *testing.T) {
	s.run(t, "Chats", chatRules)
	s.run(t, "Members", memberRules)
	s.run(t, "Roles", roleRules)
	s.run(t, "Messages", messageRules)
	s.run(t, "Attachments", attachmentRules)
	s.run(t, "Range", rangeRules)
	s.run(t, "Relations", relationRules)
	s.run(t, "Lists", listRules)
	s.run(t, "Annotations", annotationRules)
	s.run(t, "Deliveries", deliveryRules)
	s.run(t, "Statuses", statusRules)
	s.run(t, "Receipts", receiptRules)
	s.run(t, "Unread", unreadRules)
	s.run(t, "Pending", pendingRules)
	s.run(t, "Standing", standingRules)
	s.run(t, "Behind", behindRules)
	s.run(t, "Retention", retentionRules)
	s.run(t, "Policies", policyRules)
	s.run(t, "Imports", importRules)
	s.run(t, "Deletions", deletionRules)
	s.run(t, "Erasures", erasureRules)
	s.run(t, "Traces", traceRules)
	s.run(t, "Blocks", blockRules)
	s.run(t, "Bans", banRules)
	s.run(t, "Copies", copyRules)
	s.run(t, "Outbox", outboxRules)
	s.run(t, "Documents", documentRules)
	s.run(t, "Audit", auditRules)
	s.run(t, "Limits", limitRules)
	s.run(t, "Refusals", refusalRules)
	s.run(t, "Bulk", bulkRules)
	s.run(t, "Concurrency", concurrencyRules)
	s.run(t, "Context", contextRules)
}

func (s suite) run(t *testing.T, role string, rules []rule) {
	t.Run(role, func(t *testing.T) {
		for _, r := range rules {
			if s.without[role+"/"+r.name] {
				continue
			}
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				r.test(s.fixture(t))
			})
		}
	})
}

// tb contains the methods of *testing.T and *rapid.T that a fixture uses.
type tb interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// fixture is one test's part of a store. All its ids begin with a prefix of its own.
type fixture struct {
	tb
	ctx   context.Context
	store storage.Store
	// prefix is the beginning of every id of this fixture.
	prefix string
	sent   atomic.Int64
	// shards are those of the chats that the fixture has named.
	shards [storage.Shards]atomic.Bool
}

func (s suite) fixture(t tb) *fixture {
	return &fixture{
		tb:     t,
		ctx:    context.Background(),
		store:  s.store,
		prefix: fmt.Sprintf("t%d-", s.last.Add(1)),
	}
}

func (f *fixture) user(name string) tidemark.UserID { return tidemark.UserID(f.prefix + name) }

func (f *fixture) chat(name string) tidemark.ChatID {
	id := tidemark.ChatID(f.prefix + name)
	f.shards[storage.ShardOf(id)].Store(true)
	return id
}

func (f *fixture) users(names ...string) []tidemark.UserID {
	users := make([]tidemark.UserID, len(names))
	for i, name := range names {
		users[i] = f.user(name)
	}
	return users
}

// many returns n users, ascending by id.
func (f *fixture) many(n int) []tidemark.UserID {
	users := make([]tidemark.UserID, n)
	for i := range users {
		users[i] = f.user(fmt.Sprintf("u%05d", i))
	}
	return users
}

// at returns a time that depends on n alone. A higher n is later.
func at(n int) time.Time {
	return time.Date(2026, 1, 31, 10, 0, 0, 7_000_000, time.UTC).Add(time.Duration(n) * time.Second)
}

// group creates a group that shows its full history. The first member is its owner.
func (f *fixture) group(name string, members ...tidemark.UserID) tidemark.ChatID {
	f.Helper()
	return f.create(storage.NewChat{
		ID:      f.chat(name),
		Type:    tidemark.Group,
		History: tidemark.HistoryFull,
		Members: members,
	})
}

// sinceJoin creates a group that hides earlier messages from new members.
func (f *fixture) sinceJoin(name string, members ...tidemark.UserID) tidemark.ChatID {
	f.Helper()
	return f.create(storage.NewChat{
		ID:      f.chat(name),
		Type:    tidemark.Group,
		History: tidemark.HistorySinceJoin,
		Members: members,
	})
}

func (f *fixture) direct(name string, a, b tidemark.UserID) tidemark.ChatID {
	f.Helper()
	return f.create(storage.NewChat{
		ID:      f.chat(name),
		Type:    tidemark.Direct,
		History: tidemark.HistoryFull,
		Members: []tidemark.UserID{a, b},
	})
}

func (f *fixture) create(new storage.NewChat) tidemark.ChatID {
	f.Helper()
	if new.CreatedAt.IsZero() {
		new.CreatedAt = at(0)
	}
	new.Creator = new.Members[0]
	_, created, err := f.store.CreateChat(f.ctx, new)
	f.ok(err)
	f.equal("created", created, true)
	return new.ID
}

// draft returns a message with a new key.
func (f *fixture) draft(
	chat tidemark.ChatID, sender tidemark.UserID, content string,
) tidemark.Draft {
	n := f.sent.Add(1)
	return tidemark.Draft{
		ChatID:          chat,
		SenderID:        sender,
		ClientMessageID: fmt.Sprintf("key-%d", n),
		Content:         content,
		ContentType:     tidemark.DefaultContentType,
		Kind:            tidemark.KindMessage,
		MessageID:       tidemark.MessageID(fmt.Sprintf("%smessage-%d", f.prefix, n)),
		CreatedAt:       at(int(n)),
	}
}

func (f *fixture) append(d tidemark.Draft) storage.Appended {
	f.Helper()
	appended, err := f.tryAppend(d)
	f.ok(err)
	return appended
}

// send appends n messages, one after the other.
func (f *fixture) send(chat tidemark.ChatID, sender tidemark.UserID, n int) {
	f.Helper()
	for range n {
		f.append(f.draft(chat, sender, "hello"))
	}
}

// flood appends n messages concurrently.
func (f *fixture) flood(chat tidemark.ChatID, sender tidemark.UserID, n int) {
	f.Helper()
	f.ok(concurrently(n, func(int) error {
		_, err := storage.AppendOne(f.ctx, f.store, f.draft(chat, sender, "hello"))
		return err
	}))
}

func (f *fixture) add(chat tidemark.ChatID, users ...tidemark.UserID) storage.Added {
	f.Helper()
	added, err := f.store.AddMembers(f.ctx, chat, users, tidemark.Ordinary, at(1))
	f.ok(err)
	return added
}

func (f *fixture) remove(chat tidemark.ChatID, user tidemark.UserID) storage.Removed {
	f.Helper()
	removed, err := f.store.RemoveMember(f.ctx, chat, user, at(2))
	f.ok(err)
	return removed
}

func (f *fixture) roster(chat tidemark.ChatID) *tidemark.Roster {
	f.Helper()
	rosters, err := f.store.Rosters(f.ctx, []tidemark.ChatID{chat})
	f.ok(err)
	f.equal("number of rosters", len(rosters), 1)
	return rosters[0]
}

// member returns a current member.
func (f *fixture) member(chat tidemark.ChatID, user tidemark.UserID) tidemark.Member {
	f.Helper()
	m, found := f.roster(chat).Member(user)
	if !found {
		f.Fatalf("%s is not a member of %s", user, chat)
	}
	return m
}

func (f *fixture) info(chat tidemark.ChatID) tidemark.Chat {
	f.Helper()
	c, err := f.store.Chat(f.ctx, chat)
	f.ok(err)
	return c
}

// raise makes one raise, which must succeed.
func (f *fixture) raise(
	user tidemark.UserID, chat tidemark.ChatID, r tidemark.Raise, now time.Time,
) storage.Advanced {
	f.Helper()
	advanced, err := f.store.Advance(f.ctx, []storage.Advance{
		{User: user, Chat: chat, Raise: r, Now: now},
	})
	f.ok(err)
	f.equal("number of results", len(advanced), 1)
	f.ok(advanced[0].Err)
	return advanced[0]
}

func (f *fixture) state(user tidemark.UserID, chat tidemark.ChatID) tidemark.DeliveryState {
	f.Helper()
	states, err := f.store.States(f.ctx, []storage.StateKey{{User: user, Chat: chat}})
	f.ok(err)
	f.equal("number of states", len(states), 1)
	return states[0]
}

// read calls Ranges with one range.
func (f *fixture) read(r storage.Range) ([]tidemark.Message, error) {
	pages, err := f.store.Ranges(f.ctx, []storage.Range{r})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

func (f *fixture) messages(r storage.Range) []tidemark.Message {
	f.Helper()
	if r.Limit == 0 {
		r.Limit = 1_000
	}
	messages, err := f.read(r)
	f.ok(err)
	return messages
}

func (f *fixture) mark(user tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence) bool {
	f.Helper()
	written, err := f.store.Mark(f.ctx, []tidemark.PendingDelivery{
		{UserID: user, ChatID: chat, FirstUndelivered: first},
	})
	f.ok(err)
	f.equal("number of results", len(written), 1)
	return written[0]
}

func (f *fixture) clear(
	user tidemark.UserID, chat tidemark.ChatID, through tidemark.Sequence,
) bool {
	f.Helper()
	cleared, err := f.store.Clear(f.ctx, []storage.Clear{
		{User: user, Chat: chat, Through: through},
	})
	f.ok(err)
	f.equal("number of results", len(cleared), 1)
	return cleared[0]
}

// pending returns the first undelivered sequence of each chat that is pending for a user.
func (f *fixture) pending(user tidemark.UserID) map[tidemark.ChatID]tidemark.Sequence {
	f.Helper()
	rows, more, err := f.store.PendingOf(f.ctx, user, "", storage.MaxBatch)
	f.ok(err)
	f.equal("more", more, false)
	first := map[tidemark.ChatID]tidemark.Sequence{}
	for _, row := range rows {
		if _, double := first[row.ChatID]; double {
			f.Errorf("two pending rows of %s in %s", user, row.ChatID)
		}
		first[row.ChatID] = row.FirstUndelivered
	}
	return first
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("got error %v, want none", err)
	}
}

func (f *fixture) code(err error, want tidemark.Code) {
	f.Helper()
	if got := tidemark.CodeOf(err); got != want {
		f.Fatalf("got error %v with code %q, want code %q", err, got, want)
	}
}

func (f *fixture) equal(what string, got, want any) {
	f.Helper()
	if diff := difference(got, want); diff != "" {
		f.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// eventually compares like equal, but waits for the result: an eventual method may return an old
// one.
func (f *fixture) eventually(what string, get func() any, want any) {
	f.Helper()
	var diff string
	if _, ok := wait.Poll(func() (int, bool) {
		diff = difference(get(), want)
		return 0, diff == ""
	}); !ok {
		f.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// difference describes how two values differ. Empty and nil are equal. If want is a plain nil, got
// must be an empty slice or map.
func difference(got, want any) string {
	if want == nil {
		want = reflect.Zero(reflect.TypeOf(got)).Interface()
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// retryBatch makes a call with many items, repeats it as retry does, and logs that. once reports
// whether the first call succeeded. If not, the calls before the last may have done the work of
// some items.
func retryBatch[I, R any](
	f *fixture, call func(context.Context, []I) ([]R, error), items []I,
) (results []R, once bool) {
	f.Helper()
	calls := 0
	f.ok(retry(func() (err error) {
		calls++
		results, err = call(f.ctx, items)
		return err
	}))
	if calls > 1 {
		f.Logf("a call with %d items took %d attempts", len(items), calls)
	}
	return results, calls == 1
}

// retry repeats a call while the store refuses it as Unavailable. If many calls write to one chat,
// a slow machine serves only some of them in time. It gives up after wait.Hang.
func retry(call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if tidemark.CodeOf(err) != tidemark.Unavailable || time.Since(began) > wait.Hang {
			return err
		}
	}
}

// concurrently runs n calls at once. It waits for all, and returns the first error.
func concurrently(n int, call func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- call(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}
