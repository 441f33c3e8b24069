package server_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// markless is a store that cannot mark.
type markless struct{ storage.Store }

func (*markless) Mark(context.Context, []tidemark.PendingDelivery) ([]bool, error) {
	return nil, errDown
}

func TestOpen_sessions_per_user_are_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newWorld(t).node("a")
		var last *client
		for range 32 {
			last = a.open("bob")
		}
		_, err := a.Open(a.ctx, openRequest{User: "bob"})
		wantCode(t, "the 33rd session", err, tidemark.Exhausted)
		a.open("alice")
		last.goodbye()
		a.open("bob")
		if n := a.Counters()["sessions"]; n != 33 {
			t.Errorf("%d sessions are counted, want 33", n)
		}
	})
}

func TestOpen_the_same_device_again_ends_the_older_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		older := a.open("bob", onDevice("phone"))
		older.drain()
		a.send("alice", chat)
		older.drain()
		newer := a.open("bob", onDevice("phone"))
		_, err := older.Next(a.ctx, nil, false) // at once, and not when its lease is refreshed
		wantCode(t, "Next of the older one", err, tidemark.Replaced)
		want(t, "the newer one", messagesOf(newer.drain()), "message ab 1")
		if n := len(w.leases("bob")); n != 1 {
			t.Errorf("%d leases, want 1", n)
		}
		if err := older.Close(a.ctx); err != nil {
			t.Error(err)
		}
		a.send("alice", chat)
		want(t, "the newer one, after the older connection went away",
			messagesOf(newer.drain()), "message ab 2")
	})
}

// The newer session is on another node: the older one finds its lease gone, and in the end both have everything.
func TestOpen_the_same_device_on_another_node_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		older := a.open("bob", onDevice("phone"))
		older.drain()
		older.Detach() // its network went away
		newer := b.open("bob", onDevice("phone"))
		newer.drain()
		var got []string
		for range 20 {
			a.send("alice", chat)
			time.Sleep(10 * time.Second)
			got = append(got, messagesOf(newer.drain())...)
		}
		time.Sleep(2 * time.Minute)
		got = append(got, messagesOf(newer.drain())...)
		slices.Sort(got)
		if got = slices.Compact(got); len(got) != 20 {
			t.Errorf("the newer session got %d of 20: %v", len(got), got)
		}
	})
}

func TestSession_resume_memory_is_bounded_and_older_positions_are_reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInMemory(t)
		a := w.node("a")
		ab, bc := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		begin := bob.last
		for range 700 { // a run each, since they alternate
			a.send("alice", ab)
			bob.drain()
			a.send("carol", bc)
			bob.drain()
		}
		late := bob.last - 200
		again := a.open("bob", resuming(bob.Session(), begin))
		again.last = bob.last
		want(t, "a position older than the memory", again.drain()[:2], "open resumed=false",
			"reset unknown_position")
		again = a.open("bob", resuming(bob.Session(), late))
		if events, err := again.Next(a.ctx, nil, false); err != nil || len(events) == 0 || line(t, events[0]) != "open resumed=true" {
			t.Errorf("a position within the memory: %v, %v", events, err)
		}
	})
}

// What the client confirms, the session forgets.
func TestSession_confirm_trims_the_resume_memory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorldInMemory(t)
		a := w.node("a")
		ab, bc := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		begin := bob.last
		for n := range tidemark.Sequence(700) {
			a.send("alice", ab)
			a.send("carol", bc)
			bob.drain()
			bob.Ack(server.Ack{Chat: ab, Acked: n + 1}, server.Ack{Chat: bc, Acked: n + 1})
		}
		settle()
		bob.drain()
		a.send("alice", ab)
		bob.drain()
		confirmed := bob.last
		again := a.open("bob", resuming(bob.Session(), confirmed-1))
		again.last = bob.last
		want(t, "from the confirmed position", again.drain()[:1], "open resumed=true")
		early := a.open("bob", resuming(bob.Session(), begin))
		early.last = again.last
		want(t, "from before it", early.drain()[:2], "open resumed=false", "reset unknown_position")
	})
}

// fillHeap returns the bytes in use once the garbage is collected.
func fillHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A client that never reads holds no messages: what its session costs does not depend on how many wait.
func TestSession_a_slow_client_holds_no_messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 2_000
		grown := func(chat tidemark.ChatID, a *core) int64 {
			before := fillHeap()
			for i := range messages {
				if _, err := a.sendKey("alice", chat, fmt.Sprintf("k%d", i), "x"); err != nil {
					t.Fatal(err)
				}
			}
			settle()
			return int64(fillHeap()) - int64(before)
		}
		w := newWorldInMemory(t)
		a := w.node("a")
		without := grown(a.chat("ac", "alice", "carol"), a)
		chat := a.chat("ab", "alice", "bob")
		var slow []*client
		for range 32 {
			slow = append(slow, a.open("bob"))
		}
		with := grown(chat, a)
		if extra := with - without; extra > 32*messages {
			t.Errorf("32 sessions that do not read hold %d bytes more after %d messages: a byte "+
				"for each of them is too much", extra, messages)
		}
		seen := 0
		for _, l := range slow[31].drain() {
			if len(messagesOf([]string{l})) == 1 {
				seen++
			}
		}
		if seen != messages {
			t.Errorf("it got %d messages in the end, want %d", seen, messages)
		}
	})
}

// fewer returns TIDEMARK_MANY_CHATS where a test would make `usual` chats: a chat costs milliseconds on some stores.
func fewer(t *testing.T, usual int) int {
	given := os.Getenv("TIDEMARK_MANY_CHATS")
	if given == "" {
		return usual
	}
	chats, err := strconv.Atoi(given)
	if err != nil || chats < 1_000 {
		t.Fatalf("TIDEMARK_MANY_CHATS is %q, not a number from 1000", given)
	}
	return min(chats, usual)
}

// manyChats makes a direct chat of bob's with a message for each of n others.
func (w *world) manyChats(n int) {
	w.t.Helper()
	atOnce(n, func(i int) {
		chat, user := tidemark.ChatID(fmt.Sprintf("c%05d", i)), tidemark.UserID(fmt.Sprintf("u%05d",
			i))
		_, _, err := w.raw.CreateChat(w.ctx, storage.NewChat{
			ID:        chat,
			Type:      tidemark.Direct,
			History:   tidemark.HistoryFull,
			CreatedAt: time.Now(),
			Creator:   user,
			Members:   []tidemark.UserID{"bob", user},
		})
		if err != nil {
			w.t.Error(err)
			return
		}
		w.appendDead(user, chat, "k")
	})
}

// More chats wake a session than its map holds: it looks again, and loses nothing.
func TestSession_overflow_of_the_wake_set_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fit, chats = 300, 700
		w := newWorld(t)
		a := w.node("a", func(cfg *server.Config) { cfg.SessionChats = fit })
		w.manyChats(chats)
		bob := a.open("bob")
		got := map[tidemark.ChatID]bool{}
		// A look at all chats is 3 pages. More than three of them without an event is a loop, which is ended by letting storage fail.
		var compares atomic.Int64
		looped := false
		w.before.set(func(method string) error {
			if method == "Behind" && compares.Add(1) > 9 {
				looped = true
				return errDown
			}
			return nil
		})
		acknowledging := false
		for idle := 0; idle < 20 && !looped; {
			compares.Store(0)
			events, err := bob.Next(w.ctx, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 0 {
				if !acknowledging && len(got) != fit {
					t.Errorf("%d chats arrived before he acknowledged any, want as many as the "+
						"map holds", len(got))
				}
				acknowledging = true
				for chat := range got {
					bob.Ack(server.Ack{Chat: chat, Acked: 1})
				}
				settle()
				idle++
			}
			for _, e := range events {
				if chat, ok := strings.CutPrefix(line(t, e), "message "); ok {
					got[tidemark.ChatID(chat[:6])] = true
				}
				if e.Type == tidemark.EventCaughtUp && len(got) < chats {
					t.Errorf("caught_up came after %d of %d chats", len(got), chats)
				}
			}
			if len(got) == chats {
				break
			}
		}
		if !acknowledging {
			t.Error("everything arrived before he acknowledged any: the map is not bounded")
		}
		if len(got) != chats {
			t.Errorf("%d chats arrived, want %d", len(got), chats)
		}
		if looped {
			t.Error("the session looked again and again while there was no room")
		}
		settle()
	})
}

// A session may have more to mark than one call to storage takes. If its map was full, it marks everything all the same, or leaves no proof that its rows
// are all.
func TestR_WAKESET_close_marks_everything_however_much(t *testing.T) {
	chats := fewer(t, storage.MaxBatch+600)
	synctest.Test(t, func(t *testing.T) {
		fit := chats - 300
		w := newWorld(t)
		a := w.node("a", func(cfg *server.Config) { cfg.SessionChats = fit })
		w.manyChats(chats)
		bob := a.open("bob")
		bob.drain()
		bob.goodbye()
		rows, _, err := w.raw.PendingOf(w.ctx, "bob", "", 2*chats)
		if err != nil || len(rows) < min(fit, storage.MaxBatch+1) {
			t.Errorf("%d rows, %v, want more than one call takes", len(rows), err)
		}
		other := w.ghost("other", time.Minute)
		opened, err := w.reg.Open(w.ctx, registry.LeaseRequest{Lease: registry.Lease{User: "bob", Device: "tablet", Node: other.ID, Boot: other.Boot, Session: "s"}, TTL: time.Minute})
		if err != nil || opened.Proof != nil && len(rows) < chats {
			t.Errorf("%d rows of %d, and the proof %v, %v", len(rows), chats, opened.Proof, err)
		}
	})
}

// The messages that are kept in memory are bounded, of one chat and of all.
func TestTails_are_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 256 << 10
		a := newWorldInMemory(t).node("a",
			func(cfg *server.Config) { cfg.TailBytes, cfg.HotChats = most, 100 })
		text := strings.Repeat("x", 1_000)
		kept := int64(0)
		for i := range 300 {
			chat := a.chat(tidemark.ChatID(fmt.Sprintf("c%d", i)), "alice", "bob", "carol")
			for n := range 3 {
				if _, err := a.sendKey("alice", chat, fmt.Sprint(n), text); err != nil {
					t.Fatal(err)
				}
			}
			got := a.Counters()["cache_bytes"]
			if got > most {
				t.Fatalf("after %d chats %d bytes are kept, want at most %d", i+1, got, most)
			}
			kept = max(kept, got)
		}
		// Which chats a sweep meets first is chance, so more may go than have to.
		if kept < most/4 {
			t.Errorf("never more than %d bytes are kept", kept)
		}
	})
}

// Acknowledgements are never refused with a frame; what they cost is bounded all the same: those of chats that do not exist wait in a bounded set, and beyond it are dropped.
func TestAcks_that_wait_are_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, more = 200_000, 1_000
		w := newWorldInMemory(t)
		a := w.node("a")
		bob := a.open("bob")
		bob.drain()
		release := make(chan struct{})
		w.before.set(func(string) error { <-release; return nil })
		bob.Ack(server.Ack{Chat: "first", Acked: 1})
		settle() // it is being written, as long as that may take
		for i := range most + more {
			bob.Ack(server.Ack{Chat: tidemark.ChatID(fmt.Sprintf("n%d", i)), Acked: 1})
		}
		if got := a.Counters()["acks_dropped_total"]; got != more {
			t.Errorf("%d acknowledgements were dropped, want %d", got, more)
		}
		for range 100_000 { // of one chat are one
			bob.Ack(server.Ack{Chat: "n0", Acked: 1})
		}
		if got := a.Counters()["acks_dropped_total"]; got != more {
			t.Errorf("%d acknowledgements were dropped, want %d", got, more)
		}
		w.before.clear()
		close(release)
		settle()
	})
}
