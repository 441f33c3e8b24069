package retention_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/retention"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

const day = 24 * time.Hour

// world is a store with chats, and sweepers.
type world struct {
	t     *testing.T
	ctx   context.Context
	store *memory.Store
	log   logged
	sent  int
}

func newWorld(t *testing.T) *world {
	return &world{t: t, ctx: context.Background(), store: memory.New()}
}

// logged is what sweepers log. Safe for concurrent use: a sweeper logs when it likes.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// chat creates a chat with n messages of now.
func (w *world) chat(name string, n int) tidemark.ChatID {
	w.t.Helper()
	id := tidemark.ChatID(name)
	_, _, err := w.store.CreateChat(w.ctx, storage.NewChat{
		ID: id, Type: tidemark.Group, History: tidemark.HistoryFull, CreatedAt: time.Now(),
		Creator: "alice", Members: []tidemark.UserID{"alice"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.send(id, n)
	return id
}

func (w *world) send(chat tidemark.ChatID, n int) {
	w.t.Helper()
	for range n {
		w.sent++
		_, err := storage.AppendOne(w.ctx, w.store, tidemark.Draft{
			ChatID: chat, SenderID: "alice", ClientMessageID: fmt.Sprint(w.sent),
			MessageID: tidemark.MessageID(fmt.Sprint(w.sent)), CreatedAt: time.Now(),
			Kind: tidemark.KindMessage, ContentType: tidemark.DefaultContentType,
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// sweep runs a sweeper on a store until the end of the test, or until stop is called.
func (w *world) sweep(
	store retention.Store, keep time.Duration,
) (s *retention.Sweeper, stop func()) {
	w.t.Helper()
	return w.sweepWith(store, keep, time.Now)
}

func (w *world) sweepWith(
	store retention.Store, keep time.Duration, clock func() time.Time,
) (s *retention.Sweeper, stop func()) {
	w.t.Helper()
	s, err := retention.New(retention.Config{
		Store: store, Keep: keep, Clock: clock,
		Log: slog.New(slog.NewTextHandler(&w.log, nil)),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	w.t.Cleanup(stop)
	return s, stop
}

// later lets time pass, and waits until everything rests.
func later(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) wantFloor(chat tidemark.ChatID, want tidemark.Sequence) {
	w.t.Helper()
	got, err := w.store.Chat(w.ctx, chat)
	if err != nil || got.Floor != want {
		w.t.Errorf("the floor of %s is %d, want %d (%v)", chat, got.Floor, want, err)
	}
}

// TestSweeper_removes_what_is_too_old once a day, in all chats, and nothing else.
func TestSweeper_removes_what_is_too_old(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		big, young, empty := w.chat("big", 1_200), w.chat("young", 0), w.chat("empty", 0)
		for n := range 450 {
			w.chat(fmt.Sprint("chat-", n), 1)
		}
		time.Sleep(5 * day)
		w.send(big, 3)
		w.send(young, 2)
		time.Sleep(5 * day)
		s, _ := w.sweep(w.store, 9*day)
		later(time.Hour)
		w.wantFloor(big, 1_201)
		w.wantFloor(young, 1)
		w.wantFloor(empty, 1)
		for n := range 450 {
			w.wantFloor(tidemark.ChatID(fmt.Sprint("chat-", n)), 2)
		}
		if got := s.Removed(); got != 1_650 {
			t.Errorf("removed %d messages, want 1650", got)
		}
		if got := strings.Count(w.log.String(), "messages=1650"); got != 1 {
			t.Errorf("the log has %d lines about 1650 messages:\n%s", got, w.log.String())
		}
		later(3 * day)
		w.wantFloor(young, 1)
		later(2 * day)
		w.wantFloor(young, 3)
		w.wantFloor(big, 1_204)
	})
}

// TestSweeper_several_share_a_pass: each chat is looked at once a day, by one of them.
func TestSweeper_several_share_a_pass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for n := range 600 {
			w.chat(fmt.Sprint("chat-", n), 1)
		}
		time.Sleep(10 * day)
		looks := &watched{Store: w.store}
		var all []*retention.Sweeper
		for range 3 {
			s, _ := w.sweep(looks, 9*day)
			all = append(all, s)
		}
		later(23 * time.Hour)
		if sum := all[0].Removed() + all[1].Removed() + all[2].Removed(); sum != 600 {
			t.Errorf("%d messages were removed, want 600", sum)
		}
		if looks.pages != 3 {
			t.Errorf("%d pages were read in a day, want 3", looks.pages)
		}
		if got := strings.Count(w.log.String(), "messages=600"); got != 1 {
			t.Errorf("the log says %d times that 600 messages were removed", got)
		}
	})
}

// TestSweeper_goes_on_where_another_one_ended: the process ends in the middle of a chat, of which
// some messages are below the floor and not removed yet.
func TestSweeper_goes_on_where_another_one_ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for n := range 300 {
			w.chat(fmt.Sprintf("chat-%03d", n), 2)
		}
		time.Sleep(10 * day)
		failing := &watched{Store: w.store, fail: "chat-250", half: true}
		_, stop := w.sweep(failing, 9*day)
		for failing.failures() == 0 {
			later(time.Second)
		}
		stop()
		w.wantFloor("chat-249", 3)
		w.wantFloor("chat-251", 1)
		next := &watched{Store: w.store}
		w.sweep(next, 9*day)
		later(10 * time.Minute)
		w.wantFloor("chat-250", 3)
		w.wantFloor("chat-299", 3)
		if next.first != "chat-250" {
			t.Errorf("the first chat is %s, want the one in which the other one ended", next.first)
		}
		if next.pages != 1 {
			t.Errorf("%d pages were read, want the last one", next.pages)
		}
	})
}

// TestSweeper_one_bad_chat_delays_no_other: it is tried again, and left to the next pass.
func TestSweeper_one_bad_chat_delays_no_other(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for n := range 300 {
			w.chat(fmt.Sprintf("chat-%03d", n), 2)
		}
		time.Sleep(10 * day)
		store := &watched{Store: w.store, fail: "chat-100", unreadable: "chat-200"}
		s, _ := w.sweep(store, 9*day)
		later(time.Hour)
		w.wantFloor("chat-100", 1)
		w.wantFloor("chat-200", 1)
		w.wantFloor("chat-101", 3)
		w.wantFloor("chat-299", 3)
		if tries := store.failures(); tries != 3 || s.Failed() != 2 {
			t.Errorf("%d tries of a chat, and %d failures; want 3 and 2", tries, s.Failed())
		}
		store.heal()
		later(day)
		w.wantFloor("chat-100", 3)
		w.wantFloor("chat-200", 3)
	})
}

// TestSweeper_who_is_overtaken_stops: a call of its store takes so long that another process has
// taken the pass over, and ended it.
func TestSweeper_who_is_overtaken_stops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for n := range 10 {
			w.chat(fmt.Sprintf("chat-%03d", n), 2)
		}
		time.Sleep(10 * day)
		slow := &watched{Store: w.store, slow: "chat-004", takes: time.Hour}
		w.sweep(slow, 9*day)
		later(2 * time.Minute)
		next := &watched{Store: w.store}
		w.sweep(next, 9*day)
		later(10 * time.Minute)
		w.wantFloor("chat-009", 3)
		pages := next.pages
		later(2 * time.Hour)
		if slow.pages+next.pages != pages+1 {
			t.Errorf("a further pass began: %d pages and %d", slow.pages, next.pages)
		}
		if got := strings.Count(w.log.String(), "from all chats"); got != 1 {
			t.Errorf("the log has %d passes:\n%s", got, w.log.String())
		}
	})
}

// TestSweeper_a_wrong_clock_stops_nobody: a process whose clock is a year ahead says that the next
// pass is due in a year.
func TestSweeper_a_wrong_clock_stops_nobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ahead := func() time.Time { return time.Now().Add(365 * day) }
		_, stop := w.sweepWith(w.store, 9*day, ahead)
		later(time.Hour)
		stop()
		chat := w.chat("team", 2)
		time.Sleep(10 * day)
		w.sweep(w.store, 9*day)
		later(time.Hour)
		w.wantFloor(chat, 3)
	})
}

// policy changes for how long a chat is kept, and whether it is on hold.
func (w *world) policy(chat tidemark.ChatID, days int, hold bool) {
	w.t.Helper()
	_, err := w.store.UpdateChat(w.ctx, chat, storage.ChatChange{KeepDays: &days, Hold: &hold})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestSweeper_held_is_kept_and_the_shorter_time_wins: of the time for all chats, and of that of a
// chat. Nothing is even tried with a chat that is on hold.
func TestSweeper_held_is_kept_and_the_shorter_time_wins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plain, short, long, held := w.chat("plain", 2), w.chat("short", 2), w.chat("long", 2),
			w.chat("held", 2)
		w.policy(short, 10, false)
		w.policy(long, 100, false)
		w.policy(held, 10, true)
		store := &watched{Store: w.store, fail: held}
		s, _ := w.sweep(store, 20*day)
		wantFloors := func(floors ...tidemark.Sequence) {
			t.Helper()
			for i, chat := range []tidemark.ChatID{plain, short, long, held} {
				w.wantFloor(chat, floors[i])
			}
		}
		later(9 * day)
		wantFloors(1, 1, 1, 1)
		later(3 * day)
		wantFloors(1, 3, 1, 1)
		later(10 * day)
		wantFloors(3, 3, 3, 1)
		later(40 * day)
		wantFloors(3, 3, 3, 1)
		if n := store.failures(); n > 0 || s.Failed() > 0 {
			t.Errorf("%d tries with the chat on hold, and %d failures", n, s.Failed())
		}
		store.heal()
		w.policy(held, 10, false)
		later(2 * day)
		wantFloors(3, 3, 3, 3)
	})
}

// TestSweeper_without_a_time_for_all removes messages only of chats that have a time.
func TestSweeper_without_a_time_for_all(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		plain, short := w.chat("plain", 2), w.chat("short", 2)
		w.policy(short, 8, false)
		store := &watched{Store: w.store, unreadable: plain}
		s, _ := w.sweep(store, 0)
		later(10 * day)
		w.wantFloor(plain, 1)
		w.wantFloor(short, 3)
		later(40 * day)
		w.wantFloor(plain, 1)
		if s.Failed() > 0 {
			t.Error("the first message of a chat that is kept for ever was read")
		}
		w.policy(plain, 30, false)
		store.heal()
		later(2 * day)
		w.wantFloor(plain, 3)
	})
}

// TestSweeper_held_is_kept_if_the_hold_comes_meanwhile: in the middle of the work on the chat.
func TestSweeper_held_is_kept_if_the_hold_comes_meanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		chat := w.chat("team", 1_200)
		time.Sleep(10 * day)
		store := &watched{Store: w.store, slow: chat, takes: time.Minute}
		s, _ := w.sweep(store, 9*day)
		for s.Removed() == 0 {
			later(time.Second)
		}
		w.policy(chat, 0, true)
		later(2 * day)
		found, err := w.store.Chat(w.ctx, chat)
		if err != nil || found.Floor != 501 || s.Failed() > 0 {
			t.Errorf("the floor is %d, %d failures, %v; want 501, and none", found.Floor,
				s.Failed(), err)
		}
		w.policy(chat, 0, false)
		later(2 * day)
		w.wantFloor(chat, 1_201)
	})
}

// TestSweeper_keeps_messages_for_a_week_and_a_day at least.
func TestSweeper_keeps_messages_for_a_week_and_a_day(t *testing.T) {
	_, err := retention.New(retention.Config{
		Store: memory.New(), Keep: retention.MinKeep - 1, Clock: time.Now,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("got %v, want Invalid", err)
	}
}

// watched counts the pages that are read, fails for one chat, and is slow for another.
type watched struct {
	*memory.Store
	mu               sync.Mutex
	pages, failed    int
	first            tidemark.ChatID
	fail, unreadable tidemark.ChatID
	slow             tidemark.ChatID
	// half says that a call that fails has its effect.
	half  bool
	takes time.Duration
}

func (s *watched) failures() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *watched) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.unreadable = "", ""
}

func (s *watched) EachChat(
	ctx context.Context, after tidemark.ChatID, limit int,
) ([]tidemark.ChatID, tidemark.ChatID, bool, error) {
	s.mu.Lock()
	s.pages++
	many := s.pages > 100
	s.mu.Unlock()
	if many {
		return nil, "", false, errSaid // A test of sweepers that never rest would not end.
	}
	return s.Store.EachChat(ctx, after, limit)
}

func (s *watched) Ranges(
	ctx context.Context, ranges []storage.Range,
) ([][]tidemark.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range ranges {
		if r.Chat == s.unreadable {
			return nil, errSaid
		}
	}
	return s.Store.Ranges(ctx, ranges)
}

var errSaid = errors.New("the test says so")

func (s *watched) Expire(
	ctx context.Context, chat tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	s.mu.Lock()
	if s.first == "" {
		s.first = chat
	}
	fails := s.fail == chat
	if fails {
		s.failed++
	}
	s.mu.Unlock()
	if fails && s.half {
		_, _ = s.Store.Expire(ctx, chat, before, limit)
	}
	if fails {
		return storage.Expired{}, errSaid
	}
	if chat == s.slow {
		time.Sleep(s.takes)
	}
	return s.Store.Expire(ctx, chat, before, limit)
}
