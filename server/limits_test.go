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

// markless is a store that cannot mark rows.
type markless struct{ storage.Store }

func (*markless) Mark(context.Context, []tidemark.PendingDelivery) ([]bool, error) {
	return nil, errDown
}

func TestOpen_sessions_per_user_are_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCluster(t).node("a")
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
			t.Errorf("got %d sessions counted, want 33", n)
		}
	})
}

// TestOpen_sessions_per_user_are_bounded_without_a_registry: a node that cannot count the sessions
// of other nodes still counts its own.
func TestOpen_sessions_per_user_are_bounded_without_a_registry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		down := new(atomic.Bool)
		a := w.node("a", w.cutOffBy(down))
		down.Store(true)
		for range 32 {
			a.open("bob")
		}
		_, err := a.Open(a.ctx, openRequest{User: "bob"})
		wantCode(t, "the 33rd session", err, tidemark.Exhausted)
	})
}

func TestOpen_the_same_device_again_ends_the_older_session(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		older := a.open("bob", onDevice("phone"))
		older.drain()
		a.send("alice", chat)
		older.drain()
		newer := a.open("bob", onDevice("phone"))
		_, err := older.Next(a.ctx, nil, false) // at once, before any heartbeat
		wantCode(t, "Next of the older session", err, tidemark.Replaced)
		want(t, "the newer session", messagesOf(newer.drain()), "message ab 1")
		if n := len(w.leases("bob")); n != 1 {
			t.Errorf("got %d leases, want 1", n)
		}
		if err := older.Close(a.ctx); err != nil {
			t.Error(err)
		}
		a.send("alice", chat)
		want(t, "the newer session, after the older connection closed",
			messagesOf(newer.drain()), "message ab 2")
	})
}

// TestOpen_the_same_device_on_another_node_loses_nothing: the older session finds that its lease
// was replaced. The newer session gets every message.
func TestOpen_the_same_device_on_another_node_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a, b := w.node("a"), w.node("b")
		chat := a.chat("ab", "alice", "bob")
		older := a.open("bob", onDevice("phone"))
		older.drain()
		older.Detach() // its connection was cut
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
			t.Errorf("the newer session got %d of 20 messages: %v", len(got), got)
		}
	})
}

func TestSession_resume_memory_is_bounded_and_older_positions_are_reset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
		a := w.node("a")
		ab, bc := a.chat("ab", "alice", "bob"), a.chat("bc", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		begin := bob.last
		for range 700 { // each message starts a run, because the chats alternate
			a.send("alice", ab)
			bob.drain()
			a.send("carol", bc)
			bob.drain()
		}
		late := bob.last - 200
		again := a.open("bob", resuming(bob.Session(), begin))
		again.last = bob.last
		want(t, "a position older than the memory", again.drain()[:2],
			"open resumed=false", "reset unknown_position")
		again = a.open("bob", resuming(bob.Session(), late))
		events, err := again.Next(a.ctx, nil, false)
		if err != nil || len(events) == 0 || line(t, events[0]) != "open resumed=true" {
			t.Errorf("a position within the memory: got %v, %v", events, err)
		}
	})
}

// TestSession_confirm_trims_the_resume_memory: the session forgets what the client has confirmed.
func TestSession_confirm_trims_the_resume_memory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClusterInMemory(t)
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
		want(t, "from before it", early.drain()[:2],
			"open resumed=false", "reset unknown_position")
	})
}

// heapInUse returns the bytes in use after a garbage collection.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestSession_a_slow_client_holds_no_messages: the memory of a session that is not read does not
// grow with the messages that wait.
func TestSession_a_slow_client_holds_no_messages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 8_000 // the noise of the heap is some 100 KB
		grown := func(chat tidemark.ChatID, a *core) int64 {
			before := heapInUse()
			for i := range messages {
				if _, err := a.sendKey("alice", chat, fmt.Sprintf("k%d", i), "x"); err != nil {
					t.Fatal(err)
				}
			}
			settle()
			return int64(heapInUse()) - int64(before)
		}
		w := newClusterInMemory(t)
		a := w.node("a")
		without := grown(a.chat("ac", "alice", "carol"), a)
		chat := a.chat("ab", "alice", "bob")
		var slow []*client
		for range 32 {
			slow = append(slow, a.open("bob"))
		}
		with := grown(chat, a)
		if extra := with - without; extra > 32*messages {
			t.Errorf("32 sessions that are not read hold %d bytes more after %d messages, "+
				"want less than a byte for each session and message", extra, messages)
		}
		seen := 0
		for _, l := range slow[31].drain() {
			if len(messagesOf([]string{l})) == 1 {
				seen++
			}
		}
		if seen != messages {
			t.Errorf("got %d messages in the end, want %d", seen, messages)
		}
	})
}

// fewer returns the number of chats that a test creates: usual, or TIDEMARK_MANY_CHATS if that is
// less. On some stores a chat costs milliseconds.
func fewer(t *testing.T, usual int) int {
	given := os.Getenv("TIDEMARK_MANY_CHATS")
	if given == "" {
		return usual
	}
	chats, err := strconv.Atoi(given)
	if err != nil || chats < 1_000 {
		t.Fatalf("TIDEMARK_MANY_CHATS is %q, want a number of at least 1000", given)
	}
	return min(chats, usual)
}

// manyChats creates n direct chats of bob with other users. Each has one message.
func (w *cluster) manyChats(n int) {
	w.t.Helper()
	atOnce(n, func(i int) {
		chat := tidemark.ChatID(fmt.Sprintf("c%05d", i))
		user := tidemark.UserID(fmt.Sprintf("u%05d", i))
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

// TestSession_overflow_of_the_ready_chats_loses_nothing: a session is notified of more chats than
// it may hold. It reconciles when there is room, and loses nothing.
func TestSession_overflow_of_the_ready_chats_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fit, chats = 300, 700
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.SessionChats = fit })
		w.manyChats(chats)
		bob := a.open("bob")
		got := map[tidemark.ChatID]bool{}
		// Comparing all chats takes 3 pages. More than 9 pages without an event are a loop. Failing
		// storage ends it.
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
					t.Errorf("%d chats arrived before the first acknowledgement, want %d, as "+
						"many as a session holds", len(got), fit)
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
			t.Error("everything arrived before the first acknowledgement: the limit has no effect")
		}
		if len(got) != chats {
			t.Errorf("got %d chats, want %d", len(got), chats)
		}
		if looped {
			t.Error("the session reconciled in a loop while there was no room")
		}
		settle()
	})
}

// TestR_WAKESET_close_marks_everything_however_much: a closing session may have more rows to mark
// than one call to storage takes. If its set of chats was full, it either marks every row or leaves
// no proof.
func TestR_WAKESET_close_marks_everything_however_much(t *testing.T) {
	chats := fewer(t, storage.MaxBatch+600)
	synctest.Test(t, func(t *testing.T) {
		fit := chats - 300
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.SessionChats = fit })
		w.manyChats(chats)
		bob := a.open("bob")
		bob.drain()
		bob.goodbye()
		rows, _, err := w.raw.PendingOf(w.ctx, "bob", "", 2*chats)
		if err != nil || len(rows) < min(fit, storage.MaxBatch+1) {
			t.Errorf("got %d rows, %v, want more than one call takes", len(rows), err)
		}
		other := w.ghost("other", time.Minute)
		opened, err := w.reg.Open(w.ctx, registry.LeaseRequest{
			Lease: registry.Lease{
				User:    "bob",
				Device:  "tablet",
				Node:    other.ID,
				Boot:    other.Boot,
				Session: "s",
			},
			TTL: time.Minute,
		})
		if err != nil || opened.Proof != nil && len(rows) < chats {
			t.Errorf("got %d of %d rows, and the proof %v, %v, want all rows or no proof",
				len(rows), chats, opened.Proof, err)
		}
	})
}

// TestTails_are_bounded: TailBytes bounds the messages in memory. Package chat tests the bound of
// each chat.
func TestTails_are_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 256 << 10
		a := newClusterInMemory(t).node("a",
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
				t.Fatalf("after %d chats: got %d cached bytes, want at most %d", i+1, got, most)
			}
			kept = max(kept, got)
		}
		// A sweep visits chats in random order, and may drop more than it must.
		if kept < most/4 {
			t.Errorf("got at most %d cached bytes, want at least %d", kept, most/4)
		}
	})
}

// TestAcks_that_wait_are_bounded: an acknowledgement on a stream is never refused by an event.
// Those of chats that do not exist wait in a bounded set, and above the bound they are dropped.
func TestAcks_that_wait_are_bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, more = 200_000, 1_000
		w := newClusterInMemory(t)
		a := w.node("a")
		bob := a.open("bob")
		bob.drain()
		release := make(chan struct{})
		w.before.set(func(string) error { <-release; return nil })
		bob.Ack(server.Ack{Chat: "first", Acked: 1})
		settle() // its write has begun and does not end
		for i := range most + more {
			bob.Ack(server.Ack{Chat: tidemark.ChatID(fmt.Sprintf("n%d", i)), Acked: 1})
		}
		if got := a.Counters()["acks_dropped_total"]; got != more {
			t.Errorf("got %d acknowledgements dropped, want %d", got, more)
		}
		for range 100_000 { // many of one chat are one
			bob.Ack(server.Ack{Chat: "n0", Acked: 1})
		}
		if got := a.Counters()["acks_dropped_total"]; got != more {
			t.Errorf("got %d acknowledgements dropped, want %d", got, more)
		}
		w.before.clear()
		close(release)
		settle()
	})
}
