package erasure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/erasure"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// watched is a core that checks something before a pass for zoe changes anything, and that refuses
// to leave one chat.
type watched struct {
	*core
	before  func()
	refused tidemark.ChatID
}

func (c *watched) EndSessions(
	ctx context.Context, user tidemark.UserID, except tidemark.SessionID,
) error {
	if user == zoe && c.before != nil {
		c.before()
	}
	return c.core.EndSessions(ctx, user, except)
}

func (c *watched) LeaveForGood(
	ctx context.Context, chat tidemark.ChatID, user tidemark.UserID,
) error {
	if chat == c.refused {
		return storage.BeingImported(chat)
	}
	return c.core.LeaveForGood(ctx, chat, user)
}

// TestWorker_erased_nowhere_after_a_late_tombstone: the process that began ended between the job
// and the tombstone, and an hour has passed. Other nodes refuse the user before a pass begins.
func TestWorker_erased_nowhere_after_a_late_tombstone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.chat("group", tidemark.Group, 1)
		other := w.register(nil)
		// The document of the queue, the job, and the queue again. Then comes the tombstone.
		ending := &failing{Store: w.store, left: 4, kill: func() {}}
		one, err := erasure.OpenRegister(w.ctx, ending, nil, w.log(), time.Now)
		w.ok(err)
		if _, err := one.Begin(w.ctx, zoe); err == nil {
			t.Fatal("the process did not end")
		}
		ctx, cancel := context.WithCancel(w.ctx)
		var running sync.WaitGroup
		running.Go(func() { other.Run(ctx) })
		later(time.Hour)
		_, err = w.register(nil).Begin(w.ctx, "another")
		w.ok(err)
		later(10 * time.Second)
		w.ok(other.Erased(zoe))
		passes := 0
		watch := &watched{core: w.core, before: func() {
			passes++
			if err := other.Erased(zoe); tidemark.CodeOf(err) != tidemark.Denied {
				t.Errorf("when pass %d begins, the other node says %v", passes, err)
			}
		}}
		w.work(erasure.New(erasure.Config{
			Register: w.register(nil), Store: w.store, Core: watch, Log: w.log(),
		}))
		later(10 * time.Minute)
		w.nothingLeft("at the end")
		if passes < 2 {
			t.Errorf("%d passes, want 2", passes)
		}
		cancel()
		running.Wait()
	})
}

// silent is a store whose first erasure of messages happens, and gets no answer.
type silent struct {
	*memory.Store
	once sync.Once
}

func (s *silent) EraseMessages(
	ctx context.Context, chat tidemark.ChatID, e tidemark.Erasure, p storage.ErasePage,
) (done storage.ErasedPage, err error) {
	done, err = s.Store.EraseMessages(ctx, chat, e, p)
	s.once.Do(func() {
		done, err = storage.ErasedPage{}, tidemark.Errorf(tidemark.Unavailable, "no answer")
	})
	return done, err
}

// TestWorker_erased_nowhere_in_caches: nodes drop a chat also if the wipe got no answer.
func TestWorker_erased_nowhere_in_caches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		group := w.chat("group", tidemark.Group, 2)
		r := w.register(nil)
		w.work(w.worker(r, &silent{Store: w.store}))
		_, err := r.Begin(w.ctx, zoe)
		w.ok(err)
		later(10 * time.Minute)
		w.nothingLeft("at the end")
		if !w.core.reread[group] {
			t.Error("no node dropped what it has of the chat")
		}
	})
}

// TestWorker_leaves_out_a_chat_that_is_imported: the other chats do not wait for the import.
func TestWorker_leaves_out_a_chat_that_is_imported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const importing tidemark.ChatID = "a"
		_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
			ID: importing, Type: tidemark.Group, History: tidemark.HistoryFull,
			State: tidemark.ChatImporting, CreatedAt: time.Now(),
			Creator: zoe, Members: []tidemark.UserID{zoe, "bob"},
		})
		w.ok(err)
		w.chat("b", tidemark.Group, 2)
		r := w.register(nil)
		w.work(erasure.New(erasure.Config{
			Register: r, Store: w.store, Log: w.log(),
			Core: &watched{core: w.core, refused: importing},
		}))
		_, err = r.Begin(w.ctx, zoe)
		w.ok(err)
		later(10 * time.Minute)
		chats, _, _, err := w.store.ChatsNaming(w.ctx, zoe, "", 10)
		if w.ok(err); len(chats) != 1 || chats[0] != importing {
			t.Errorf("%v name zoe, want only the one that is imported", chats)
		}
		status, err := r.Status(w.ctx, zoe)
		if w.ok(err); status.State != "erasing" {
			t.Errorf("it is %+v", status)
		}
	})
}

// stuck lets a pass come as far as its second page of chats.
type stuck struct{ erasure.Store }

func (s stuck) ChatsNaming(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.ChatID, tidemark.ChatID, bool, error) {
	if after != "" {
		<-ctx.Done()
		return nil, "", false, ctx.Err()
	}
	return s.Store.ChatsNaming(ctx, user, after, limit)
}

// TestWorker_held_is_kept_and_waits_after_a_whole_pass: in the middle of a pass, other chats than
// the one on hold have the user's messages. So the erasure does not say that it waits for the hold.
func TestWorker_held_is_kept_and_waits_after_a_whole_pass(t *testing.T) {
	for _, c := range []struct {
		name  string
		store func(erasure.Store) erasure.Store
		want  string
	}{
		{"within", func(s erasure.Store) erasure.Store { return stuck{s} }, "erasing"},
		{"after", func(s erasure.Store) erasure.Store { return s }, "waiting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				hold := true
				_, err := w.store.UpdateChat(w.ctx, w.chat("a", tidemark.Group, 1),
					storage.ChatChange{Hold: &hold})
				w.ok(err)
				for i := range 110 {
					w.chat(fmt.Sprintf("b%d", i), tidemark.Group, 1)
				}
				r := w.register(nil)
				w.work(w.worker(r, c.store(w.store)))
				_, err = r.Begin(w.ctx, zoe)
				w.ok(err)
				later(5 * time.Minute)
				status, err := r.Status(w.ctx, zoe)
				if w.ok(err); status.State != c.want || status.HeldChats != 1 {
					t.Errorf("it is %+v, want %s with a chat on hold", status, c.want)
				}
			})
		})
	}
}

// TestWorker_looks_only_at_what_is_not_done: the documents of users who were erased are not read.
func TestWorker_looks_only_at_what_is_not_done(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.register(nil)
		w.work(w.worker(r, w.store))
		for _, user := range []tidemark.UserID{"first", "second"} {
			_, err := r.Begin(w.ctx, user)
			w.ok(err)
			later(10 * time.Minute)
			// The repetition is answered, and asks for nothing.
			status, err := r.Begin(w.ctx, user)
			if w.ok(err); status.State != "erased" {
				t.Errorf("%s is %+v", user, status)
			}
		}
		later(2 * time.Minute)
		queued, _, err := w.store.Documents(w.ctx, "erasing", "", 10)
		if w.ok(err); len(queued) != 0 {
			t.Errorf("the queue still has %v", queued)
		}
	})
}

// TestExport_goes_on_at_the_end: the last position of a whole export leads to no line again.
func TestExport_goes_on_at_the_end(t *testing.T) {
	w := newWorld(t)
	w.chat("group", tidemark.Group, 2)
	x := erasure.Exporter{Store: w.store, Clock: time.Now}
	export := func(after string) (kinds []string, last string) {
		t.Helper()
		w.ok(x.Export(w.ctx, zoe, after, func(line []byte) error {
			var l struct {
				Type  string
				After string `json:"next_cursor"`
			}
			err := json.Unmarshal(line, &l)
			if kinds = append(kinds, l.Type); l.Type == "position" {
				last = l.After
			}
			return err
		}))
		return kinds, last
	}
	all, last := export("")
	slices.Sort(all[3 : len(all)-2]) // messages of both
	if got, want := strings.Join(all, " "),
		"user receipts membership mention mention message message position end"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if rest, _ := export(last); strings.Join(rest, " ") != "end" {
		t.Errorf("from the last position on, it has %v", rest)
	}
}
