// Package storagetest is the conformance suite of the storage contract. Every backend passes all of it: there is no
// list of exceptions, and no capability flag. It also holds two wrappers for the tests of others: Counting and Faulty.
//
// A backend's test is one line each:
//
//	func TestStore(t *testing.T)         { storagetest.Run(t, open) }
//	func TestStore_durable(t *testing.T) { storagetest.RunDurable(t, open, reopen) }
//	func TestStore_shared(t *testing.T)  { storagetest.RunShared(t, openTwo) }
//
// Every subtest is named after the rule that it holds the backend to. The subtests share a store and run in parallel; each uses
// ids of its own, so that every rule is also tested beside foreign data. The number of random runs of the model test is
// rapid's flag, -rapid.checks; its seed is printed when it fails. That of the histories under concurrency is
// TIDEMARK_HISTORY_RUNS (history.go).
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

// Open returns an empty store that t closes when it ends (t.Cleanup). It is called several times.
type Open func(t *testing.T) storage.Store

// Run holds a backend to the contract.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	limitChecks(t, "20")
	t.Run("rules", func(t *testing.T) { newSuite(open(t)).runAll(t) })
	t.Run("Close", func(t *testing.T) { testClose(t, open) })
	t.Run("model", func(t *testing.T) { testModel(t, newSuite(open(t)), nil) })
	t.Run("histories", func(t *testing.T) { testHistories(t, newSuite(open(t))) })
}

// RunDurable holds a backend that persists to what it has confirmed: reopen closes a store and opens the same data
// again.
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

// limitChecks makes the model test modest, unless the flag says otherwise.
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

// suite is a store, and the numbers that keep the tests on it apart.
type suite struct {
	store storage.Store
	last  *atomic.Int64
	// without names the rules (role/name) that are not run.
	without map[string]bool
}

func newSuite(s storage.Store) suite { return suite{store: s, last: &atomic.Int64{}} }

// rule is a subtest: what must hold, and how to see it.
type rule struct {
	name string
	test func(w *world)
}

func (s suite) runAll(t *testing.T) {
	s.run(t, "Chats", chatRules)
	s.run(t, "Members", memberRules)
	s.run(t, "Messages", messageRules)
	s.run(t, "Attachments", attachmentRules)
	s.run(t, "Range", rangeRules)
	s.run(t, "Deliveries", deliveryRules)
	s.run(t, "Statuses", statusRules)
	s.run(t, "Pending", pendingRules)
	s.run(t, "Behind", behindRules)
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
				r.test(s.world(t))
			})
		}
	})
}

// tb is what a world needs of a *testing.T or *rapid.T.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// world is one test's own part of a store.
type world struct {
	tb
	ctx   context.Context
	store storage.Store
	// prefix begins every id of this world.
	prefix string
	sent   atomic.Int64
}

func (s suite) world(t tb) *world {
	return &world{
		tb:     t,
		ctx:    context.Background(),
		store:  s.store,
		prefix: fmt.Sprintf("t%d-", s.last.Add(1)),
	}
}

func (w *world) user(name string) tidemark.UserID { return tidemark.UserID(w.prefix + name) }

func (w *world) chat(name string) tidemark.ChatID { return tidemark.ChatID(w.prefix + name) }

func (w *world) users(names ...string) []tidemark.UserID {
	users := make([]tidemark.UserID, len(names))
	for i, name := range names {
		users[i] = w.user(name)
	}
	return users
}

// many returns n users in ascending order.
func (w *world) many(n int) []tidemark.UserID {
	users := make([]tidemark.UserID, n)
	for i := range users {
		users[i] = w.user(fmt.Sprintf("u%05d", i))
	}
	return users
}

// at is a time, the same for the same n; a later n is later.
func at(n int) time.Time {
	return time.Date(2026, 1, 31, 10, 0, 0, 7_000_000, time.UTC).Add(time.Duration(n) * time.Second)
}

// group creates a group that shows its full history. The first member is its owner.
func (w *world) group(name string, members ...tidemark.UserID) tidemark.ChatID {
	w.Helper()
	return w.create(storage.NewChat{
		ID:      w.chat(name),
		Type:    tidemark.Group,
		History: tidemark.HistoryFull,
		Members: members,
	})
}

// sinceJoin creates a group that shows its new members what follows.
func (w *world) sinceJoin(name string, members ...tidemark.UserID) tidemark.ChatID {
	w.Helper()
	return w.create(storage.NewChat{
		ID:      w.chat(name),
		Type:    tidemark.Group,
		History: tidemark.HistorySinceJoin,
		Members: members,
	})
}

func (w *world) direct(name string, a, b tidemark.UserID) tidemark.ChatID {
	w.Helper()
	return w.create(storage.NewChat{
		ID:      w.chat(name),
		Type:    tidemark.Direct,
		History: tidemark.HistoryFull,
		Members: []tidemark.UserID{a, b},
	})
}

func (w *world) create(new storage.NewChat) tidemark.ChatID {
	w.Helper()
	if new.CreatedAt.IsZero() {
		new.CreatedAt = at(0)
	}
	new.Creator = new.Members[0]
	_, created, err := w.store.CreateChat(w.ctx, new)
	w.ok(err)
	w.equal("created", created, true)
	return new.ID
}

// draft is a message that no other draft of this world is a resend of.
func (w *world) draft(chat tidemark.ChatID, sender tidemark.UserID, content string) tidemark.Draft {
	n := w.sent.Add(1)
	return tidemark.Draft{
		ChatID:          chat,
		SenderID:        sender,
		ClientMessageID: fmt.Sprintf("key-%d", n),
		Content:         content,
		ContentType:     tidemark.DefaultContentType,
		MessageID:       tidemark.MessageID(fmt.Sprintf("%smessage-%d", w.prefix, n)),
		CreatedAt:       at(int(n)),
	}
}

func (w *world) append(d tidemark.Draft) storage.Appended {
	w.Helper()
	appended, err := storage.AppendOne(w.ctx, w.store, d)
	w.ok(err)
	return appended
}

// send appends n messages, one after the other.
func (w *world) send(chat tidemark.ChatID, sender tidemark.UserID, n int) {
	w.Helper()
	for range n {
		w.append(w.draft(chat, sender, "hello"))
	}
}

// flood appends n messages concurrently.
func (w *world) flood(chat tidemark.ChatID, sender tidemark.UserID, n int) {
	w.Helper()
	w.ok(concurrently(n, func(int) error {
		_, err := storage.AppendOne(w.ctx, w.store, w.draft(chat, sender, "hello"))
		return err
	}))
}

func (w *world) add(chat tidemark.ChatID, users ...tidemark.UserID) storage.Added {
	w.Helper()
	added, err := w.store.AddMembers(w.ctx, chat, users, at(1))
	w.ok(err)
	return added
}

func (w *world) remove(chat tidemark.ChatID, user tidemark.UserID) storage.Removed {
	w.Helper()
	removed, err := w.store.RemoveMember(w.ctx, chat, user, at(2))
	w.ok(err)
	return removed
}

func (w *world) roster(chat tidemark.ChatID) *tidemark.Roster {
	w.Helper()
	rosters, err := w.store.Rosters(w.ctx, []tidemark.ChatID{chat})
	w.ok(err)
	w.equal("number of rosters", len(rosters), 1)
	return rosters[0]
}

// member returns a current member.
func (w *world) member(chat tidemark.ChatID, user tidemark.UserID) tidemark.Member {
	w.Helper()
	m, found := w.roster(chat).Member(user)
	if !found {
		w.Fatalf("%s is not a member of %s", user, chat)
	}
	return m
}

func (w *world) info(chat tidemark.ChatID) tidemark.Chat {
	w.Helper()
	c, err := w.store.Chat(w.ctx, chat)
	w.ok(err)
	return c
}

// raise advances one watermark row, which must not be refused.
func (w *world) raise(
	user tidemark.UserID, chat tidemark.ChatID, r tidemark.Raise, now time.Time,
) storage.Advanced {
	w.Helper()
	advanced, err := w.store.Advance(w.ctx, []storage.Advance{
		{User: user, Chat: chat, Raise: r, Now: now},
	})
	w.ok(err)
	w.equal("number of results", len(advanced), 1)
	w.ok(advanced[0].Err)
	return advanced[0]
}

func (w *world) state(user tidemark.UserID, chat tidemark.ChatID) tidemark.DeliveryState {
	w.Helper()
	states, err := w.store.States(w.ctx, []storage.StateKey{{User: user, Chat: chat}})
	w.ok(err)
	w.equal("number of states", len(states), 1)
	return states[0]
}

// read is Ranges of one range.
func (w *world) read(r storage.Range) ([]tidemark.Message, error) {
	pages, err := w.store.Ranges(w.ctx, []storage.Range{r})
	if err != nil {
		return nil, err
	}
	return pages[0], nil
}

func (w *world) messages(r storage.Range) []tidemark.Message {
	w.Helper()
	if r.Limit == 0 {
		r.Limit = 1_000
	}
	messages, err := w.read(r)
	w.ok(err)
	return messages
}

func (w *world) mark(user tidemark.UserID, chat tidemark.ChatID, first tidemark.Sequence) bool {
	w.Helper()
	written, err := w.store.Mark(w.ctx, []tidemark.PendingDelivery{
		{UserID: user, ChatID: chat, FirstUndelivered: first},
	})
	w.ok(err)
	w.equal("number of results", len(written), 1)
	return written[0]
}

func (w *world) clear(user tidemark.UserID, chat tidemark.ChatID, through tidemark.Sequence) bool {
	w.Helper()
	cleared, err := w.store.Clear(w.ctx, []storage.Clear{
		{User: user, Chat: chat, Through: through},
	})
	w.ok(err)
	w.equal("number of results", len(cleared), 1)
	return cleared[0]
}

// pending returns the first undelivered sequence of each chat that is pending for a user.
func (w *world) pending(user tidemark.UserID) map[tidemark.ChatID]tidemark.Sequence {
	w.Helper()
	rows, more, err := w.store.PendingOf(w.ctx, user, "", storage.MaxBatch)
	w.ok(err)
	w.equal("more", more, false)
	first := map[tidemark.ChatID]tidemark.Sequence{}
	for _, row := range rows {
		if _, double := first[row.ChatID]; double {
			w.Errorf("two pending rows of %s in %s", user, row.ChatID)
		}
		first[row.ChatID] = row.FirstUndelivered
	}
	return first
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("got error %v, want none", err)
	}
}

func (w *world) code(err error, want tidemark.Code) {
	w.Helper()
	if got := tidemark.CodeOf(err); got != want {
		w.Fatalf("got error %v with code %q, want code %q", err, got, want)
	}
}

func (w *world) equal(what string, got, want any) {
	w.Helper()
	if diff := difference(got, want); diff != "" {
		w.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// eventually is equal for a method whose result may be older than the latest.
func (w *world) eventually(what string, get func() any, want any) {
	w.Helper()
	var diff string
	if _, ok := wait.Poll(func() (int, bool) {
		diff = difference(get(), want)
		return 0, diff == ""
	}); !ok {
		w.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// difference tells how two values differ. Empty and nil are the same, and a plain nil wants an empty slice or map.
func difference(got, want any) string {
	if want == nil {
		want = reflect.Zero(reflect.TypeOf(got)).Interface()
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

// insist makes a call again for as long as the store refuses it as Unavailable: where many write to
// one chat, a slow machine serves only some of them in time. It gives up after wait.Hang.
func insist(call func() error) error {
	for began := time.Now(); ; {
		err := call()
		if tidemark.CodeOf(err) != tidemark.Unavailable || time.Since(began) > wait.Hang {
			return err
		}
	}
}

// concurrently runs n calls at once, waits for them, and returns the first error.
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
