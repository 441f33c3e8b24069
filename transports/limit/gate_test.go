package limit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/limit"
)

func TestCall_large_ones_count_more(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limit.New(limit.Config{})
		calls := func(cost int) (n int) {
			for ; ; n++ {
				if _, err := l.Call(server.Caller{User: "ann"}, cost); err != nil {
					break
				}
			}
			return n
		}
		if got := calls(limit.LargeCall); got != 200 {
			t.Errorf("%d large calls at once, want 200: a fifth of the burst", got)
		}
		time.Sleep(time.Second) // synctest's clock
		if got := calls(limit.Call); got != 200 {
			t.Errorf("%d calls after a second, want 200", got)
		}
		if err := sends(l, "ann"); err != nil {
			t.Errorf("sends are counted by themselves: %v", err)
		}
		if _, err := l.Call(server.Caller{User: "ann"}, 0); err != nil {
			t.Errorf("what costs nothing: %v", err)
		}
	})
}

func enter(t *testing.T, g *limit.Gate) *limit.Pass {
	t.Helper()
	pass, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pass
}

func TestGate_serves_a_few_at_a_time_in_the_order_of_arrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limit.NewGate(limit.GateConfig{Slots: 2})
		enter(t, g) // keeps its place, so that only one is left and the order shows
		first := enter(t, g)
		var mu sync.Mutex
		var entered []int
		for i := range 10 {
			go func() {
				pass := enter(t, g)
				mu.Lock()
				entered = append(entered, i)
				mu.Unlock()
				time.Sleep(time.Millisecond)
				pass.Leave()
			}()
			synctest.Wait()
		}
		order := func() []int {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(entered)
		}
		if got := order(); len(got) != 0 {
			t.Errorf("%v entered while both places are taken", got)
		}
		first.Leave()
		first.Leave() // the second call does nothing
		time.Sleep(5 * time.Millisecond)
		if got := order(); len(got) > 6 {
			t.Errorf("%d entered one place in 5 ms, each for 1 ms", len(got))
		}
		time.Sleep(time.Second)
		if got := order(); !slices.IsSorted(got) || len(got) != 10 {
			t.Errorf("they entered in the order %v", got)
		}
	})
}

func TestGate_queue_and_wait_are_bounded_and_say_when_to_come_back(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limit.NewGate(limit.GateConfig{Slots: 1, Queue: 3})
		held := enter(t, g)
		refused := make(chan time.Duration, 3)
		start := time.Now()
		for range 3 {
			go func() {
				if _, err := g.Enter(t.Context()); tidemark.CodeOf(err) != tidemark.Unavailable {
					t.Errorf("after the wait: %v", err)
				}
				refused <- time.Since(start)
			}()
		}
		synctest.Wait()
		if _, err := g.Enter(t.Context()); tidemark.CodeOf(err) != tidemark.Unavailable ||
			time.Since(start) > 0 {
			t.Errorf("a fourth in the queue: %v after %v", err, time.Since(start))
		}
		for range 3 {
			if after := <-refused; after != limit.CatchUpWait {
				t.Errorf("refused after %v, want %v", after, limit.CatchUpWait)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("stopping"))
		if _, err := g.Enter(ctx); tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("when its connection ends: %v", err)
		}
		held.Leave()
		enter(t, g).Leave()
	})
}

// TestGate_a_client_that_does_not_read_keeps_nobody_waiting: while a write to the client blocks,
// the next client gets its place.
func TestGate_a_client_that_does_not_read_keeps_nobody_waiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := limit.NewGate(limit.GateConfig{Slots: 1})
		stuck := enter(t, g)
		start := time.Now()
		go func() {
			_ = stuck.During(func() error { time.Sleep(10 * time.Second); return nil })
			stuck.Leave()
		}()
		synctest.Wait()
		next := enter(t, g)
		if waited := time.Since(start); waited > time.Second {
			t.Errorf("the next one waited %v", waited)
		}
		if err := next.During(func() error { return fmt.Errorf("lost") }); err == nil {
			t.Error("the error of the write is gone")
		}
		time.Sleep(time.Minute)
		next.Leave()
		enter(t, g).Leave()
	})
}

func TestGate_nil_admits_everybody(t *testing.T) {
	var g *limit.Gate
	for range 1_000 {
		if err := enter(t, g).During(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGate_counts_clients_inside_waiting_and_refused(t *testing.T) {
	g := limit.NewGate(limit.GateConfig{Slots: 1, Queue: 1, Wait: time.Minute})
	pass, err := g.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := g.Enter(ctx)
		waited <- err
	}()
	deadline := time.Now().Add(wait.Hang)
	for ; g.Counters()["catch_ups_waiting"] == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("no client waits")
		}
	}
	if _, err := g.Enter(t.Context()); err == nil {
		t.Error("a queue of one takes two")
	}
	got := g.Counters()
	cancel()
	<-waited
	want := map[string]int64{"catch_ups": 1, "catch_ups_waiting": 1, "catch_ups_refused_total": 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	pass.Leave()
	if now := g.Counters(); now["catch_ups"] != 0 || now["catch_ups_waiting"] != 0 {
		t.Errorf("when all have left: %v", now)
	}
}
