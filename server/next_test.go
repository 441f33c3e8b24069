package server_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server"
)

func TestNext_storage_down_for_a_while_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("ab", "alice", "bob")
		for range 300 {
			a.send("alice", chat)
		}
		bob := a.open("bob")
		w.failing()
		lines := bob.drain() // `session` needs no storage; all other events do
		want(t, "while storage is down", lines, "open resumed=false")
		stop := bob.collect()
		time.Sleep(time.Minute)
		w.before.clear()
		time.Sleep(time.Second)
		got := messagesOf(stop())
		if len(got) != 300 {
			t.Fatalf("got %d messages, want 300", len(got))
		}
		for i, l := range got {
			if want := fmt.Sprintf("message ab %d", i+1); l != want {
				t.Fatalf("event %d is %q, want %q", i, l, want)
			}
		}
	})
}

// TestFollow_storage_down_for_a_while_loses_nothing: no goroutine repeats the reads, so the session
// wakes its reader when it is time.
func TestFollow_storage_down_for_a_while_loses_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool signal.Pool
		t.Cleanup(pool.Close)
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("ab", "alice", "bob")
		for range 300 {
			a.send("alice", chat)
		}
		bob := a.open("bob")
		w.failing()
		var writer signal.Runner
		var calls, messages atomic.Int32
		bob.Follow(&writer)
		writer.Start(&pool, func() signal.Left {
			calls.Add(1)
			events, err := bob.Next(w.ctx, nil, false)
			for _, ev := range events {
				if ev.Type == tidemark.EventMessage {
					messages.Add(1)
				}
			}
			switch {
			case err != nil:
				return signal.Over
			case len(events) == 0:
				return signal.Nothing
			}
			return signal.More
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := calls.Load(); n < 100 || n > 300 {
			t.Errorf("%d calls in a minute, want 4 a second", n)
		}
		w.before.clear()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := messages.Load(); n != 300 {
			t.Errorf("got %d messages, want 300", n)
		}
		a.send("alice", chat)
		synctest.Wait()
		if n := messages.Load(); n != 301 {
			t.Errorf("got %d messages after another one, want 301", n)
		}
	})
}

// TestNext_of_a_node_that_stops_is_no_failure_of_storage: the node begins to stop while a session
// reads from storage.
func TestNext_of_a_node_that_stops_is_no_failure_of_storage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newCluster(t)
		a := w.node("a", func(cfg *server.Config) { cfg.TailMessages = 1 })
		chat := a.chat("ab", "alice", "bob")
		for range 2 {
			a.send("alice", chat)
		}
		bob := a.open("bob")
		var stopped sync.WaitGroup
		var once sync.Once
		w.before.set(func(method string) error {
			if method == "Ranges" {
				once.Do(func() {
					stopped.Go(func() {
						if err := a.Stop(w.ctx); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Second)
				})
			}
			return nil
		})
		var err error
		for err == nil {
			_, err = bob.Next(w.ctx, nil, true)
		}
		wantCode(t, "Next", err, tidemark.Unavailable)
		if n := a.Counters()["storage_failures_total"]; n != 0 {
			t.Errorf("%d failures of storage are counted, want none", n)
		}
		stopped.Wait()
	})
}

// TestNext_storage_that_fails_now_and_then_loses_nothing: while storage fails at random, every
// appended message arrives in order.
func TestNext_storage_that_fails_now_and_then_loses_nothing(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			w := newCluster(t)
			a := w.node("a", func(cfg *server.Config) {
				cfg.TailMessages, cfg.HotChats, cfg.KnownStates = 2, 1, 1
			})
			chats := []tidemark.ChatID{
				a.chat("ab", "alice", "bob"), a.chat("bc", "carol", "bob"),
				a.chat("bd", "dave", "bob"),
			}
			senders := []tidemark.UserID{"alice", "carol", "dave"}
			bob := a.open("bob")
			events := len(bob.drain())
			var mu sync.Mutex
			dice := rand.New(rand.NewPCG(seed, 1))
			w.before.set(func(string) error {
				mu.Lock()
				defer mu.Unlock()
				if dice.IntN(4) == 0 {
					return errDown
				}
				return nil
			})
			stop := bob.collect()
			for i := range 60 {
				_, _ = a.sendKey(senders[i%3], chats[i%3], fmt.Sprintf("k%d", i), "x")
				time.Sleep(10 * time.Millisecond)
			}
			w.before.clear()
			time.Sleep(time.Minute)
			lines := stop()
			events += len(lines)
			if n := a.Counters()["deliveries_total"]; n != int64(events) {
				t.Errorf("seed %d: %d deliveries are counted, want %d", seed, n, events)
			}
			next := map[tidemark.ChatID]tidemark.Sequence{}
			for _, l := range messagesOf(lines) {
				var chat tidemark.ChatID
				var n tidemark.Sequence
				if _, err := fmt.Sscanf(l, "message %s %d", &chat, &n); err != nil {
					t.Fatal(err)
				}
				if n > next[chat]+1 {
					t.Errorf("seed %d: %s got %d after %d", seed, chat, n, next[chat])
				}
				next[chat] = n
			}
			for _, chat := range chats {
				if head := w.head(chat); next[chat] != head {
					t.Errorf("seed %d: %s was sent up to %d, want %d",
						seed, chat, next[chat], head)
				}
			}
		})
	}
}
