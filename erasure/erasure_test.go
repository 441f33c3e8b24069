package erasure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

const zoe tidemark.UserID = "zoe-canary"

// world is a store with chats of zoe, and a core that does what the server does.
type world struct {
	t     *testing.T
	ctx   context.Context
	store *memory.Store
	core  *core
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, ctx: context.Background(), store: memory.New()}
	w.core = &core{store: w.store}
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// core stands for the server. Its ended counts ended sessions.
type core struct {
	store  *memory.Store
	mu     sync.Mutex
	ended  int
	reread map[tidemark.ChatID]bool
	// announce is called before an announcement, and fails it. Nil lets all pass.
	announce func() error
}

func (c *core) EndSessions(context.Context, tidemark.UserID, tidemark.SessionID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended++
	return nil
}

func (c *core) LeaveForGood(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) error {
	_, err := c.store.RemoveMember(ctx, chat, user, time.Now())
	if tidemark.CodeOf(err) == tidemark.Denied {
		_, err = c.store.CloseDirect(ctx, chat, user, time.Now())
	}
	if tidemark.CodeOf(err) == tidemark.NotMember {
		return nil
	}
	return err
}

func (c *core) Reread(_ context.Context, chat tidemark.ChatID, _ tidemark.Sequence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reread == nil {
		c.reread = map[tidemark.ChatID]bool{}
	}
	c.reread[chat] = true
}

// chat creates a chat of zoe and bob with n messages of both, which name the other.
func (w *world) chat(name string, kind tidemark.ChatType, n int) tidemark.ChatID {
	w.t.Helper()
	id := tidemark.ChatID(name)
	_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID: id, Type: kind, History: tidemark.HistoryFull, CreatedAt: time.Now(),
		Creator: zoe, Members: []tidemark.UserID{zoe, "bob"},
	})
	w.ok(err)
	for i := range n {
		for from, to := range map[tidemark.UserID]tidemark.UserID{zoe: "bob", "bob": zoe} {
			key := fmt.Sprint(name, "-", i, "-", from)
			_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
				ChatID: id, SenderID: from, ClientMessageID: key, Content: "by " + string(from),
				MessageID: tidemark.MessageID(fmt.Sprint(name, i, len(from))),
				CreatedAt: time.Now(), Kind: tidemark.KindMessage,
				ContentType: tidemark.DefaultContentType,
				Mentions:    tidemark.NewMentions(false, []tidemark.UserID{to}),
			})
			w.ok(err)
		}
	}
	_, err = w.store.Advance(w.ctx, []storage.Advance{
		{User: zoe, Chat: id, Raise: tidemark.Raise{Acked: 1}, Now: time.Now()},
	})
	w.ok(err)
	return id
}

func (w *world) log() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func (w *world) register(ledger *erasure.Ledger) *erasure.Register {
	w.t.Helper()
	r, err := erasure.OpenRegister(w.ctx, w.store, ledger, w.log(), time.Now)
	w.ok(err)
	return r
}

func (w *world) worker(r *erasure.Register, store erasure.Store) *erasure.Worker {
	entries, err := audit.New(audit.Config{Store: w.store, Logger: w.log(), Clock: time.Now})
	w.ok(err)
	return erasure.New(erasure.Config{
		Register: r, Store: store, Core: w.core, Log: w.log(), Entries: entries,
	})
}

// work runs a worker until stop is called, or until the test ends.
func (w *world) work(worker *erasure.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() { worker.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return stop
}

// later lets time pass, and waits until everything rests.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// audited stores an entry of the audit log that names zoe.
func (w *world) audited() {
	w.t.Helper()
	w.ok(w.store.RecordAudit(w.ctx, storage.AuditEntry{
		ID: storage.NewAuditID(time.Now()), Actor: zoe, Operation: "putBan",
		State: storage.AuditBegun,
	}))
}

// nothingLeft checks that nothing in the store names zoe.
func (w *world) nothingLeft(what string) {
	w.t.Helper()
	if found := traces(w.t, w.store); len(found) > 0 {
		w.t.Errorf("%s: zoe is in %v", what, found)
	}
}

// traces returns where a store has something of zoe, as far as its methods tell.
func traces(t *testing.T, s *memory.Store) (found []string) {
	t.Helper()
	ctx := context.Background()
	note := func(where string, v any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprintf("%+v", v), string(zoe)) {
			found = append(found, where)
		}
	}
	chats, _, _, err := s.EachChat(ctx, "", 1_000)
	note("chats", chats, err)
	for _, id := range chats {
		chat, err := s.Chat(ctx, id)
		note("chat", chat, err)
		members, _, err := s.MembersSince(ctx, storage.MembersQuery{Chat: id, Limit: 1_000})
		note("members", members, err)
		pages, err := s.Ranges(ctx, []storage.Range{{Chat: id, Limit: 10_000, Bare: true}})
		note("messages", pages, err)
	}
	entries, _, err := s.ListAudit(ctx, storage.AuditPage{Limit: storage.MaxAudit})
	note("the audit log", entries, err)
	naming, _, _, err := s.ChatsNaming(ctx, zoe, "", 500)
	note("chats that name zoe", append(naming, make([]tidemark.ChatID, 0)...), err)
	if len(naming) > 0 {
		found = append(found, "chats that name zoe")
	}
	rows, _, err := s.PendingOf(ctx, zoe, "", 100)
	note("rows", rows, err)
	for _, kind := range []string{"erasure", "erasing", "erased"} {
		documents, _, err := s.Documents(ctx, kind, "", 1_000)
		for _, d := range documents {
			note("document "+kind, string(d.Value)+d.Name, err)
		}
	}
	return found
}

// TestWorker_erased_nowhere: a user with groups, direct chats and late writes.
func TestWorker_erased_nowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for n := range 3 {
			w.chat(fmt.Sprint("group-", n), tidemark.Group, 4)
		}
		direct := w.chat("direct", tidemark.Direct, 700)
		w.audited()
		r := w.register(nil)
		worker := w.worker(r, w.store)
		w.work(worker)
		w.ok(r.Erased(zoe))
		status, err := r.Begin(w.ctx, zoe)
		if w.ok(err); status.State != "erasing" {
			t.Errorf("it begins as %+v", status)
		}
		if err := r.Erased(zoe); tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("the user is refused with %v", err)
		}
		later(20 * time.Second)
		if got := traces(t, w.store); len(got) < 4 {
			t.Errorf("before the nodes know, only %v names them", got)
		}
		later(60 * time.Second)
		// Acknowledgements that were under way.
		_, err = w.store.Advance(w.ctx, []storage.Advance{
			{User: zoe, Chat: direct, Raise: tidemark.Raise{Acked: 4}, Now: time.Now()},
		})
		w.ok(err)
		_, err = w.store.Mark(w.ctx, []tidemark.PendingDelivery{
			{UserID: zoe, ChatID: "group-1", FirstUndelivered: 1},
		})
		w.ok(err)
		w.audited() // by a node that did not know yet
		later(5 * time.Minute)
		w.nothingLeft("at the end")
		if got := len(w.announced(direct)); got != 7 {
			t.Errorf("%d announcements of 700 messages, want 7", got)
		}
		if status, err = r.Status(w.ctx, zoe); status.State != "erased" || err != nil ||
			status.CompletedAt.IsZero() || status.MessagesWiped != 712 ||
			status.MessagesRenamed != 712 {
			t.Errorf("it ends as %+v, %v", status, err)
		}
		if worker.Erased() != 1 || worker.Failed() != 0 || w.core.ended < 2 ||
			len(w.core.reread) != 4 {
			t.Errorf("%d users, %d failures, %d times sessions ended, %v", worker.Erased(),
				worker.Failed(), w.core.ended, w.core.reread)
		}
		before, err := r.Begin(w.ctx, zoe)
		if w.ok(err); before.State != "erased" {
			t.Errorf("a repetition is %+v", before)
		}
		if err := w.register(nil).Erased(zoe); tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("another node says %v", err)
		}
	})
}

var errKilled = errors.New("the test kills it")

// failing fails its calls from the n-th on, like a process that ended: nothing happens any more. If
// after is set, the n-th happens, and its answer is lost.
type failing struct {
	*memory.Store
	mu    sync.Mutex
	left  int
	after bool
	kill  func()
}

func fails[T any](f *failing, call func() (T, error)) (T, error) {
	var none T
	f.mu.Lock()
	f.left--
	left := f.left
	f.mu.Unlock()
	switch {
	case left < 0:
		return none, errKilled
	case left == 0:
		if f.after {
			_, _ = call()
		}
		f.kill()
		return none, errKilled
	}
	return call()
}

func (f *failing) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	return fails(f, func() (uint64, error) { return f.Store.PutDocument(ctx, d) })
}

func (f *failing) EraseMessages(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, p storage.ErasePage,
) (storage.ErasedPage, error) {
	return fails(f, func() (storage.ErasedPage, error) {
		return f.Store.EraseMessages(ctx, chat, e, p)
	})
}

func (f *failing) EraseMember(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, limit int,
) (bool, error) {
	return fails(f, func() (bool, error) { return f.Store.EraseMember(ctx, chat, e, limit) })
}

func (f *failing) EraseUser(
	ctx context.Context, user tidemark.UserID, limit int,
) (bool, error) {
	return fails(f, func() (bool, error) { return f.Store.EraseUser(ctx, user, limit) })
}

// TestWorker_erased_nowhere_after_a_kill: the process ends before or after each write, and another
// one ends with what a process without a kill has. The aliases are the same in a chat.
func TestWorker_erased_nowhere_after_a_kill(t *testing.T) {
	kills := 0
	for n, whole := 1, false; !whole; n++ {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				groups := []tidemark.ChatID{
					w.chat("a", tidemark.Group, 2), w.chat("b", tidemark.Direct, 2),
				}
				r := w.register(nil)
				_, err := r.Begin(w.ctx, zoe)
				w.ok(err)
				killed := make(chan struct{})
				store := &failing{
					Store: w.store, left: n, after: after, kill: func() { close(killed) },
				}
				stop := w.work(w.worker(r, store))
				later(5 * time.Minute)
				select {
				case <-killed:
					kills++
				default:
					whole = true
				}
				stop()
				next := w.register(nil)
				if err := next.Erased(zoe); tidemark.CodeOf(err) != tidemark.Denied {
					t.Errorf("after write %d, the next process says %v", n, err)
				}
				w.work(w.worker(next, w.store))
				later(20 * time.Minute)
				w.nothingLeft(fmt.Sprintf("after write %d, after %v", n, after))
				if status, err := next.Status(w.ctx, zoe); err != nil || status.State != "erased" {
					t.Errorf("after write %d, it is %+v, %v", n, status, err)
				}
				w.oneAlias(groups)
				for _, chat := range groups {
					w.announced(chat)
				}
			})
		}
	}
	if kills < 16 {
		t.Errorf("%d kills, want at least one before and after each of 8 writes", kills)
	}
}

// oneAlias checks that each chat has one alias, and that no two chats have the same.
func (w *world) oneAlias(chats []tidemark.ChatID) {
	w.t.Helper()
	seen := map[tidemark.UserID]tidemark.ChatID{}
	for _, id := range chats {
		pages, err := w.store.Ranges(w.ctx, []storage.Range{{Chat: id, Limit: 1_000, Bare: true}})
		w.ok(err)
		var alias tidemark.UserID
		for _, m := range pages[0] {
			if m.SenderID == "bob" {
				continue
			}
			if alias != "" && m.SenderID != alias {
				w.t.Errorf("%s has the aliases %s and %s", id, alias, m.SenderID)
			}
			alias = m.SenderID
		}
		if other, twice := seen[alias]; twice {
			w.t.Errorf("%s and %s have the same alias", id, other)
		}
		seen[alias] = id
	}
}

// TestWorker_held_is_kept: the erasure waits for a hold, says so, and goes on at its end.
func TestWorker_held_is_kept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		held := w.chat("held", tidemark.Group, 3)
		w.chat("other", tidemark.Group, 3)
		hold, free := true, false
		_, err := w.store.UpdateChat(w.ctx, held, storage.ChatChange{Hold: &hold})
		w.ok(err)
		r := w.register(nil)
		w.work(w.worker(r, w.store))
		_, err = r.Begin(w.ctx, zoe)
		w.ok(err)
		later(time.Hour)
		status, err := r.Status(w.ctx, zoe)
		if w.ok(err); status.State != "waiting" || status.HeldChats != 1 {
			t.Errorf("it waits as %+v", status)
		}
		pages, err := w.store.Ranges(w.ctx, []storage.Range{
			{Chat: held, Limit: 100, Bare: true}, {Chat: "other", Limit: 100, Bare: true},
		})
		w.ok(err)
		for i, want := range []int{3, 0} {
			got := 0
			for _, m := range pages[i] {
				if m.Content == "by "+string(zoe) {
					got++
				}
			}
			if got != want {
				t.Errorf("chat %d has %d messages of theirs, want %d", i, got, want)
			}
		}
		_, err = w.store.UpdateChat(w.ctx, held, storage.ChatChange{Hold: &free})
		w.ok(err)
		later(30 * time.Minute)
		w.nothingLeft("when the hold has ended")
	})
}

// TestRegister_erased_nowhere_on_other_nodes: they learn of it within seconds.
func TestRegister_erased_nowhere_on_other_nodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, other := w.register(nil), w.register(nil)
		ctx, cancel := context.WithCancel(w.ctx)
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx) })
		for _, user := range []tidemark.UserID{"first", "second"} {
			_, err := one.Begin(w.ctx, user)
			w.ok(err)
			w.ok(other.Erased(user))
			later(10 * time.Second)
			if err := other.Erased(user); tidemark.CodeOf(err) != tidemark.Denied {
				t.Errorf("%s on the other node: %v", user, err)
			}
		}
		w.ok(other.Erased("third"))
		cancel()
		running.Wait()
	})
}

// TestReplay_erased_nowhere_after_a_restore: the backup is older than the erasure.
func TestReplay_erased_nowhere_after_a_restore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	key := bytes.Repeat([]byte("k"), 32)
	var backup *memory.Store
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.chat("group", tidemark.Group, 3)
		w.chat("direct", tidemark.Direct, 3)
		backup = w.store.Copy()
		ledger, err := erasure.OpenLedger(path, key)
		w.ok(err)
		r := w.register(ledger)
		w.work(w.worker(r, w.store))
		_, err = r.Begin(w.ctx, zoe)
		w.ok(err)
		later(5 * time.Minute)
		w.nothingLeft("before the restore")
		text, err := os.ReadFile(path)
		if w.ok(err); strings.Count(string(text), "\n") != 2 || bytes.Contains(text, []byte(zoe)) {
			t.Errorf("the ledger has %q", text)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.store, w.core.store = backup, backup
		ledger, err := erasure.OpenLedger(path, key)
		w.ok(err)
		r := w.register(ledger)
		if err := r.Erased(zoe); tidemark.CodeOf(err) != tidemark.Denied {
			t.Errorf("before the replay: %v", err)
		}
		w.ok(r.Erased("bob"))
		worker := w.worker(r, w.store)
		w.ok(worker.Replay(w.ctx, w.store))
		for _, where := range traces(t, w.store) {
			if where != "document erasure" {
				t.Errorf("after the replay, zoe is in %s", where)
			}
		}
		w.work(worker)
		later(10 * time.Minute)
		w.nothingLeft("at the end")
	})
}

// TestLedger_survives_a_torn_line, and refuses a damaged one and a short key.
func TestLedger_survives_a_torn_line(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	key := bytes.Repeat([]byte("k"), 32)
	sum := strings.Repeat("0a", 32)
	for text, want := range map[string]tidemark.Code{
		"": "", "2026-01-31T10:00:00Z " + sum + "\n": "", "2026-01-31T10:00:00Z 0a0a": "",
		"2026-": "", "\n\n2026-01-31T10:00:00Z " + sum: "",
		"yesterday " + sum + "\n":                         tidemark.Invalid,
		"2026-01-31T10:00:00Z " + sum + "0a\n":            tidemark.Invalid,
		"2026-01-31T10:00:00Z " + strings.Repeat("x", 64): tidemark.Invalid,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := erasure.OpenLedger(path, key); tidemark.CodeOf(err) != want {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	if _, err := erasure.OpenLedger(path, key[:31]); tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("a short key: %v", err)
	}
}

// broken is a store whose n-th read of messages fails.
type broken struct {
	*memory.Store
	left int
}

func (b *broken) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	if b.left--; b.left == 0 {
		return nil, errKilled
	}
	return b.Store.Ranges(ctx, ranges)
}

// TestExport_ends_only_if_it_is_whole: wherever it fails, it goes on from the last position, and
// has every message.
func TestExport_ends_only_if_it_is_whole(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.chat(fmt.Sprint("group-", n), tidemark.Group, 2)
	}
	for fail := range 8 {
		x := erasure.Exporter{Store: &broken{w.store, fail}, Clock: time.Now}
		kinds, messages := map[string]int{}, map[string]bool{}
		after := ""
		for tries := 0; kinds["end"] == 0 && tries < 3; tries++ {
			err := x.Export(w.ctx, zoe, after, func(line []byte) error {
				var l struct {
					Type    string
					Next    string `json:"next_cursor"`
					Message struct {
						ID     string `json:"message_id"`
						Sender string `json:"sender_id"`
					}
				}
				if err := json.Unmarshal(line, &l); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				if kinds[l.Type]++; l.Type == "position" {
					after = l.Next
				}
				if l.Type == "message" {
					messages[l.Message.ID] = true
					if l.Message.Sender != string(zoe) {
						t.Errorf("a message of another: %s", line)
					}
				}
				return nil
			})
			if (err == nil) != (kinds["end"] == 1) {
				t.Errorf("with failure %d: error %v, and %d ends", fail, err, kinds["end"])
			}
		}
		if kinds["user"] < 1 || kinds["membership"] < 3 || len(messages) != 6 ||
			kinds["end"] != 1 {
			t.Errorf("with failure %d: %v, and %d messages", fail, kinds, len(messages))
		}
	}
	x := erasure.Exporter{Store: w.store, Clock: time.Now}
	err := x.Export(w.ctx, zoe, "?", func([]byte) error { return nil })
	if tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("a bad position: %v", err)
	}
}
