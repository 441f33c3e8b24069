package reach

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestHint_waits_for_nothing: neither a send nor an acknowledgement is held up by what the engine
// does, such as looking for what can be settled among many chats.
func TestHint_waits_for_nothing(t *testing.T) {
	e := New(Config{Store: memory.New()})
	e.hints.serving.Store(true)
	e.hints.work(allShards())
	e.ahead.wants = []storage.OutletID{receiptsOf("o")}
	e.mu.Lock()
	defer e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		e.Hint("c")
		e.hintReceipts("c")
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(wait.Hang):
		t.Fatal("a hint waits for the lock of the engine")
	}
	if got := e.hints.take(); len(got) != 2 {
		t.Errorf("got the hints %v", got)
	}
}

// TestHint_goes_to_the_process_of_the_chat, once, and nowhere without outlets.
func TestHint_goes_to_the_process_of_the_chat(t *testing.T) {
	var forwarded []tidemark.ChatID
	e := New(Config{Store: memory.New(), Forward: func(chat tidemark.ChatID) {
		forwarded = append(forwarded, chat)
	}})
	own, other := tidemark.ChatID("own"), tidemark.ChatID("other")
	if storage.ShardOf(own) == storage.ShardOf(other) {
		t.Fatal("the chats have one shard")
	}
	e.hints.work([]int{storage.ShardOf(own)})
	e.Hint(own)
	e.Hint(other)
	if n := len(e.hints.take()); n != 0 || forwarded != nil {
		t.Errorf("without outlets: %d hints kept, %v forwarded", n, forwarded)
	}
	e.hints.serving.Store(true)
	e.Hint(own)
	e.Hint(other)
	e.HintOfAnother(other)
	got := e.hints.take()
	if _, kept := got[own]; len(got) != 1 || !kept || len(forwarded) != 1 || forwarded[0] != other {
		t.Errorf("kept %v, forwarded %v", got, forwarded)
	}
}

// TestHint_has_a_bound: what has no room is counted, and found by the next poll.
func TestHint_has_a_bound(t *testing.T) {
	e := New(Config{Store: memory.New()})
	e.hints.serving.Store(true)
	e.hints.work(allShards())
	for n := range maxHinted + 5 {
		e.Hint(tidemark.ChatID(time.Duration(n).String()))
	}
	kept, dropped := len(e.hints.take()), e.Counters()["outlet_hints_dropped_total"]
	if kept != maxHinted || dropped != 5 {
		t.Errorf("%d hints are kept and %d dropped, want %d and 5", kept, dropped, maxHinted)
	}
}

// BenchmarkHint_without_outlets is what each send pays while there is no outlet.
func BenchmarkHint_without_outlets(b *testing.B) {
	s := New(Config{Store: memory.New()}).Hinting(memory.New())
	ctx := context.Background()
	for b.Loop() {
		_, _ = s.Append(ctx, nil)
	}
}

// TestEngine_aside forwards hints while there are outlets, and delivers nothing itself.
func TestEngine_aside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var forwarded []tidemark.ChatID
		w.forward = func(chat tidemark.ChatID) { forwarded = append(forwarded, chat) }
		w.aside = true
		gateway := w.start(nil)
		w.aside, w.forward = false, nil
		c := w.group()
		time.Sleep(time.Minute)
		gateway.Hint(c)
		if len(forwarded) > 0 {
			t.Errorf("without outlets, %v is forwarded", forwarded)
		}
		worker := w.start(nil)
		w.outlet(worker, NewOutlet{})
		time.Sleep(time.Minute)
		worker.kill()
		w.send(c, gateway)
		time.Sleep(time.Minute)
		if len(forwarded) != 1 || forwarded[0] != c {
			t.Errorf("forwarded %v, want %s once", forwarded, c)
		}
		if n := w.inbox(home).upTo(c); n != 0 {
			t.Errorf("the gateway has delivered message %d", n)
		}
	})
}
