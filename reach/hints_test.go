package reach

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
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
	var forwarded []string
	e := New(Config{Store: memory.New(), Forward: func(hint string) {
		forwarded = append(forwarded, hint)
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
	e.HintOfAnother(string(other))
	got := e.hints.take()
	if _, kept := got[line{chat: own}]; len(got) != 1 || !kept || len(forwarded) != 1 ||
		forwarded[0] != string(other) {
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

// slowStore takes a second for the backlog of a chat.
type slowStore struct{ Store }

func (slowStore) Backlogs(
	ctx context.Context, _ storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	signal.Pause(ctx, time.Second)
	return nil, false, nil
}

// TestHint_of_receipts_waits_for_no_news: when there is no time for all chats with news, the list
// has the rest of them. It does not have the receipts, so all hints of these are passed on.
func TestHint_of_receipts_waits_for_no_news(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Store: slowStore{memory.New()}})
		e.hints.serving.Store(true)
		e.hints.work(allShards())
		e.own = allShards()
		s := Spec{ID: "o", State: Active, Events: receiptsOnly}
		e.list.Outlets, e.ahead.wants = []Spec{s}, []storage.OutletID{receiptsOf("o")}
		r := &receiver{spec: s, receipts: newReceipts(time.Minute)}
		e.receivers["o"] = r
		for n := range 100 {
			chat := tidemark.ChatID(strconv.Itoa(n))
			e.Hint(chat)
			e.hintReceipts(chat)
		}
		if err := e.turn(t.Context(), false, time.Now().Add(10*time.Second)); err != nil {
			t.Fatal(err)
		}
		if n := len(r.receipts.hinted); n != 100 {
			t.Errorf("the outlet is told of receipts in %d chats, want 100", n)
		}
	})
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
		var forwarded []string
		w.forward = func(hint string) { forwarded = append(forwarded, hint) }
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
		if len(forwarded) != 1 || forwarded[0] != string(c) {
			t.Errorf("forwarded %v, want %s once", forwarded, c)
		}
		if n := w.inbox(home).upTo(c); n != 0 {
			t.Errorf("the gateway has delivered message %d", n)
		}
	})
}
