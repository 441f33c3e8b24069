package deletion_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/deletion"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// world is a store with chats, and workers.
type world struct {
	t     *testing.T
	ctx   context.Context
	store *memory.Store
}

func newWorld(t *testing.T) *world {
	return &world{t: t, ctx: context.Background(), store: memory.New()}
}

// ok demands that there is no error.
func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// chat creates a chat of alice and bob with n messages, and a pending row of bob.
func (w *world) chat(name string, n int) tidemark.ChatID {
	w.t.Helper()
	id := tidemark.ChatID(name)
	_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID: id, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: time.Now(),
		Creator: "alice", Members: []tidemark.UserID{"alice", "bob"},
	})
	w.ok(err)
	for i := range n {
		key := fmt.Sprint(name, "-", i)
		_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
			ChatID: id, SenderID: "alice", ClientMessageID: key,
			MessageID: tidemark.MessageID(key), CreatedAt: time.Now(),
			Kind: tidemark.KindMessage, ContentType: tidemark.DefaultContentType,
		})
		w.ok(err)
	}
	return id
}

// mark marks a row for bob, as a process does that does not know of the deletion.
func (w *world) mark(chat tidemark.ChatID) {
	w.t.Helper()
	_, err := w.store.Mark(w.ctx, []tidemark.PendingDelivery{
		{UserID: "bob", ChatID: chat, FirstUndelivered: 1},
	})
	w.ok(err)
}

func (w *world) deletes(chat tidemark.ChatID) {
	w.t.Helper()
	_, err := w.store.DeleteChat(w.ctx, chat, time.Now())
	w.ok(err)
}

// begin records that a chat is to be deleted.
func (w *world) begin(by *deletion.Worker, chat tidemark.ChatID) {
	w.t.Helper()
	w.ok(by.Begin(w.ctx, chat))
}

// work runs a worker on a store until the end of the test, or until stop is called.
func (w *world) work(store deletion.Store) (d *deletion.Worker, stop func()) {
	w.t.Helper()
	d = deletion.New(deletion.Config{
		Store: store, Clock: time.Now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return d, stop
}

// later lets time pass, and waits until everything rests.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantLeft checks how many documents there are, and rows of bob.
func (w *world) wantLeft(what string, documents, rows int) {
	w.t.Helper()
	found, _, err := w.store.Documents(w.ctx, "deletion", "", 1_000)
	w.ok(err)
	pending, _, err := w.store.PendingOf(w.ctx, "bob", "", 1_000)
	w.ok(err)
	if len(found) != documents || len(pending) != rows {
		w.t.Errorf("%s: %d documents and %d rows, want %d and %d", what, len(found), len(pending),
			documents, rows)
	}
}

// wantNothing checks that nothing is left of a chat to be removed.
func (w *world) wantNothing(chat tidemark.ChatID) {
	w.t.Helper()
	removed, done, err := w.store.PurgeChat(w.ctx, chat, storage.MaxExpired, true)
	if err != nil || removed > 0 || !done {
		w.t.Errorf("of the chat %s, %d rows are left, done %v, %v", chat, removed, done, err)
	}
}

// TestWorker_removes_what_is_left: the messages at once, and the members a minute later, with what
// came in this minute.
func TestWorker_removes_what_is_left(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		store := &watched{Store: w.store}
		d, _ := w.work(store)
		chat, other := w.chat("big", 1_200), w.chat("other", 3)
		w.mark(other)
		w.begin(d, chat)
		w.deletes(chat)
		d.Wake()
		later(time.Second)
		if store.removed != 1_200 {
			t.Errorf("%d rows were removed at once, want the 1200 messages", store.removed)
		}
		w.mark(chat)
		d.Wake()
		later(50 * time.Second)
		w.wantLeft("before a minute is over", 1, 2)
		later(2 * time.Minute)
		w.wantLeft("after it", 0, 1)
		w.wantNothing(chat)
		if d.Deleted() != 1 || d.Failed() != 0 {
			t.Errorf("%d chats and %d failures, want 1 and none", d.Deleted(), d.Failed())
		}
		found, err := w.store.Chat(w.ctx, other)
		if err != nil || found.State != tidemark.ChatLive || found.MemberCount != 2 {
			t.Errorf("the other chat is %+v, %v", found, err)
		}
	})
}

// TestWorker_finds_what_nobody_said: the process ended after the step, or the worker is another
// process.
func TestWorker_finds_what_nobody_said(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d, stop := w.work(w.store)
		stop()
		for n := range 250 {
			chat := w.chat(fmt.Sprint("chat-", n), 2)
			w.begin(d, chat)
			w.deletes(chat)
		}
		next, _ := w.work(w.store)
		later(5 * time.Minute)
		w.wantLeft("after a while", 0, 0)
		if next.Deleted() != 250 {
			t.Errorf("%d chats, want 250", next.Deleted())
		}
	})
}

// TestWorker_deleted_is_gone_only_if_it_was_deleted: a chat that was not deleted is left alone. If
// the deletion follows within an hour, the worker still knows of it.
func TestWorker_deleted_is_gone_only_if_it_was_deleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		d, _ := w.work(w.store)
		kept, slow := w.chat("kept", 2), w.chat("slow", 2)
		w.begin(d, kept)
		w.begin(d, slow)
		w.begin(d, "none")
		later(50 * time.Minute)
		w.wantLeft("before an hour is over", 3, 0)
		w.deletes(slow)
		later(5 * time.Minute)
		w.wantNothing(slow)
		w.wantLeft("when one was deleted", 2, 0)
		later(10 * time.Minute)
		w.wantLeft("after an hour", 0, 0)
		found, err := w.store.Chat(w.ctx, kept)
		if err != nil || found.State != tidemark.ChatLive || found.MemberCount != 2 {
			t.Errorf("the chat that was kept is %+v, %v", found, err)
		}
		// It is asked for again.
		w.begin(d, kept)
		w.deletes(kept)
		d.Wake()
		later(5 * time.Minute)
		w.wantLeft("at the second time", 0, 0)
		w.wantNothing(kept)
	})
}

// TestWorker_goes_on_where_another_one_ended: the process ends in the middle of a chat.
func TestWorker_goes_on_where_another_one_ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		chat := w.chat("team", 1_200)
		slow := &watched{Store: w.store, takes: time.Minute}
		d, stop := w.work(slow)
		w.begin(d, chat)
		w.deletes(chat)
		d.Wake()
		later(90 * time.Second)
		stop()
		if slow.removed == 0 || slow.removed == 1_200 {
			t.Fatalf("%d messages were removed, want a part of them", slow.removed)
		}
		next := &watched{Store: w.store}
		w.work(next)
		later(10 * time.Minute)
		w.wantLeft("after a while", 0, 0)
		w.wantNothing(chat)
	})
}

// TestWorker_several_do_not_work_on_one_chat at the same time.
func TestWorker_several_do_not_work_on_one_chat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		chat := w.chat("team", 5_000)
		store := &watched{Store: w.store, takes: 5 * time.Second}
		first, _ := w.work(store)
		w.begin(first, chat)
		w.deletes(chat)
		for range 3 {
			d, _ := w.work(store)
			d.Wake()
		}
		later(30 * time.Minute)
		w.wantLeft("after a while", 0, 0)
		// The messages take ten calls and one more, the members one.
		if store.calls > 13 || store.most > 1 {
			t.Errorf("%d calls, %d at a time; want at most 13, one at a time",
				store.calls, store.most)
		}
	})
}

// TestWorker_who_is_overtaken_stops: a call takes so long that another process takes the chat over.
func TestWorker_who_is_overtaken_stops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		chat := w.chat("team", 3_000)
		slow := &watched{Store: w.store, takes: 10 * time.Minute}
		d, _ := w.work(slow)
		w.begin(d, chat)
		w.deletes(chat)
		d.Wake()
		later(6 * time.Minute)
		next, _ := w.work(w.store)
		later(5 * time.Minute)
		w.wantLeft("when the other one has ended", 0, 0)
		later(3 * time.Hour)
		if slow.calls != 1 || next.Deleted() != 1 || d.Deleted() != 0 || d.Failed() != 0 {
			t.Errorf("%d calls of the slow one, which counts %d chats and %d failures; the other "+
				"one counts %d", slow.calls, d.Deleted(), d.Failed(), next.Deleted())
		}
	})
}

// TestWorker_one_bad_chat_delays_no_other: it is tried again, and left until the claim ends.
func TestWorker_one_bad_chat_delays_no_other(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		store := &watched{Store: w.store, fail: "chat-1"}
		d, _ := w.work(store)
		for n := range 3 {
			chat := w.chat(fmt.Sprint("chat-", n), 2)
			w.begin(d, chat)
			w.deletes(chat)
		}
		_, err := w.store.PutDocument(w.ctx, storage.Document{
			Kind: "deletion", Name: "chat-0-damaged", Value: []byte(`[]`),
		})
		w.ok(err)
		d.Wake()
		later(4 * time.Minute)
		w.wantLeft("while one fails", 2, 0)
		if d.Deleted() != 2 || d.Failed() < 2 {
			t.Errorf("%d chats and %d failures, want 2, and at least 2", d.Deleted(), d.Failed())
		}
		store.heal()
		later(10 * time.Minute)
		w.wantLeft("later", 1, 0)
		w.wantNothing("chat-1")
	})
}

// TestWorker_rests for four fifths of the time.
func TestWorker_rests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		store := &watched{Store: w.store, takes: 100 * time.Millisecond}
		d, _ := w.work(store)
		chat := w.chat("team", 10_000)
		w.begin(d, chat)
		w.deletes(chat)
		began := time.Now()
		d.Wake()
		for store.total() < 10_000 {
			later(100 * time.Millisecond)
		}
		if took, least := time.Since(began), 19*500*time.Millisecond; took < least {
			t.Errorf("the messages were removed in %v, want at least %v", took, least)
		}
	})
}

// watched counts the calls of PurgeChat and what they remove. It fails for one chat, and each call
// takes a time.
type watched struct {
	*memory.Store
	mu             sync.Mutex
	calls, removed int
	at, most       int // calls at one time
	fail           tidemark.ChatID
	takes          time.Duration
}

func (s *watched) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removed
}

func (s *watched) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = ""
}

var errSaid = errors.New("the test says so")

func (s *watched) PurgeChat(
	ctx context.Context, chat tidemark.ChatID, limit int, members bool,
) (removed int, done bool, err error) {
	s.mu.Lock()
	s.calls++
	s.at++
	s.most = max(s.most, s.at)
	fails := s.fail == chat
	s.mu.Unlock()
	if removed, done, err = 0, false, errSaid; !fails {
		removed, done, err = s.Store.PurgeChat(ctx, chat, limit, members)
	}
	time.Sleep(s.takes)
	s.mu.Lock()
	s.at--
	s.removed += removed
	s.mu.Unlock()
	return removed, done, err
}
