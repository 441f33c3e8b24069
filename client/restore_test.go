package client

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// TestClient_survives_restore: a backup ends at message 5 of a chat, of which the bot has handled
// 10. Then the server gives 6 to 10 out again. The bot handles the new ones, and acknowledges none
// that it did not handle, whether it was connected or comes back later.
func TestClient_survives_restore(t *testing.T) {
	overEvery(t, func(t *testing.T, over Transport) {
		for name, away := range map[string]bool{"connected": false, "comes back": true} {
			t.Run(name, func(t *testing.T) { restored(t, over, away) })
		}
	})
}

func restored(t *testing.T, over Transport, away bool) {
	store := memory.New()
	o := quick()
	o.Storage = store
	first := transporttest.New(t, o)
	n := newNetwork(t, first.URL)
	chat, whole := first.Group(alice, bob), first.Group(alice, bob)
	kept := &cursors{}
	first.Send(alice, chat, 1, 5)
	first.Send(alice, whole, 1, 5)
	b := newBot(t, n.URL, only(over), stored(kept)).start()
	b.gets(chat, 1, 5)
	b.gets(whole, 1, 5)
	isAcked(t, first, bob, chat, 5)
	isAcked(t, first, bob, whole, 5)
	backup := store.Copy()
	first.Send(alice, chat, 6, 5)
	b.gets(chat, 1, 10)
	isAcked(t, first, bob, chat, 10)
	if away {
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
	}
	before := kept.of(chat).Incarnation

	o.Storage = backup
	second := transporttest.New(t, o)
	var mu sync.Mutex
	let := make(chan struct{})
	unhandled := true
	gate := func(ctx context.Context, m tidemark.Message) error {
		mu.Lock()
		wait := unhandled && m.ChatID == chat
		mu.Unlock()
		if !wait {
			return nil
		}
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	b.answer = gate
	b.mu.Unlock()
	for k := 106; k <= 117; k++ {
		second.SendText(alice, chat, numbers(k, k)[0], numbers(k, k)[0])
	}
	n.lead(second.URL)
	n.cut()
	if away {
		b = newBot(t, n.URL, only(over), stored(kept))
		b.answer = gate
		b.start()
	}
	wait.Until(t, "the cursor is taken back", func() bool {
		return kept.of(chat).Sequence == 5 && kept.of(chat).Incarnation != before
	})
	if got := marks(t, second, bob, chat).Acked; got != 5 {
		t.Errorf("acknowledged %d of the restored chat, and handled only 5 of it", got)
	}
	mu.Lock()
	unhandled = false
	mu.Unlock()
	close(let)
	isAcked(t, second, bob, chat, 17)
	second.Send(alice, whole, 6, 2)
	want := numbers(106, 117)
	if !away {
		want = append(numbers(1, 10), want...)
		b.gets(whole, 1, 7)
	} else {
		b.gets(whole, 6, 7)
	}
	if got := b.contents(chat); !slices.Equal(got, want) {
		t.Errorf("handled %v, want %v", got, want)
	}
	isAcked(t, second, bob, whole, 7)
	if got, want := kept.of(whole).Incarnation, backup.Incarnation(); got != want {
		t.Errorf("the incarnation of the chat that is whole is %s, want %s", got, want)
	}
	for i, c := range kept.history[1:] {
		if c.Incarnation == "" {
			t.Errorf("save %d has no incarnation", i+1)
		}
	}
}

// TestClient_survives_restore_without_cursors: the watermark that was restored is the cursor.
func TestClient_survives_restore_without_cursors(t *testing.T) {
	store := memory.New()
	o := quick()
	o.Storage = store
	first := transporttest.New(t, o)
	n := newNetwork(t, first.URL)
	chat := first.Group(alice, bob)
	b := newBot(t, n.URL).start()
	first.Send(alice, chat, 1, 5)
	b.gets(chat, 1, 5)
	isAcked(t, first, bob, chat, 5)
	backup := store.Copy()
	first.Send(alice, chat, 6, 10)
	b.gets(chat, 1, 15)
	o.Storage = backup
	second := transporttest.New(t, o)
	second.Send(alice, chat, 100, 5)
	n.lead(second.URL)
	n.cut()
	isAcked(t, second, bob, chat, 10)
	if got, want := b.contents(chat), append(numbers(1, 15),
		numbers(100, 104)...); !slices.Equal(got, want) {
		t.Errorf("handled %v, want %v", got, want)
	}
}

// TestClient_survives_restore_before_the_verdict: until the server has judged the cursor of a chat,
// nothing of it is handled or acknowledged. Then its messages come from the history.
func TestClient_survives_restore_before_the_verdict(t *testing.T) {
	c := newBot(t, "http://127.0.0.1:1").Client
	b := newRun(c, func(context.Context, tidemark.Message) error { return nil }).inbox
	var asked []tidemark.Sequence
	b.fetch = func(
		_ context.Context, _ tidemark.ChatID, after tidemark.Sequence, _ int,
	) (page, error) {
		asked = append(asked, after)
		return page{Messages: []tidemark.Message{message(after + 1)}}, nil
	}
	turns := func() (n int) {
		for {
			chat, _ := b.next(time.Now())
			if chat == nil {
				return n
			}
			b.turn(t.Context(), chat)
			n++
		}
	}
	b.session("old", true)
	for n := range tidemark.Sequence(3) {
		b.message(message(n + 1))
	}
	if got := turns(); got != 3 {
		t.Fatalf("%d turns, want 3", got)
	}
	b.message(message(4)) // it waits when the data change
	b.session("new", true)
	b.message(message(3))
	b.message(message(5))
	if got := turns(); got != 0 {
		t.Errorf("%d turns before the verdict, want none", got)
	}
	if got := b.due("new", false); len(got) > 0 {
		t.Errorf("%+v is acknowledged before the verdict", got)
	}
	sent := b.cursors()
	if want := []cursor{{"c", 3, "old"}}; !slices.Equal(sent, want) {
		t.Errorf("cursors %+v, want %+v", sent, want)
	}
	again, err := b.judge(t.Context(), "new", sent, []synced{{
		ChatID: "c", Reset: &reset{Reason: tidemark.ResetRestored, Through: 2},
	}})
	if want := []cursor{{"c", 2, "new"}}; err != nil || !slices.Equal(again, want) {
		t.Errorf("cursors to send again %+v, %v; want %+v", again, err, want)
	}
	if again, err = b.judge(t.Context(), "new", again, nil); err != nil || len(again) > 0 {
		t.Errorf("after the second verdict: %+v, %v", again, err)
	}
	turns()
	if got := b.chats["c"]; got.progress.done != 5 || got.incarnation != "new" {
		t.Errorf("got %+v, want all of the new data up to 5", got)
	}
	if want := []tidemark.Sequence{2, 3, 4}; !slices.Equal(asked, want) {
		t.Errorf("pages after %v, want %v", asked, want)
	}
	got, want := b.due("new", false), []acked{{ChatID: "c", Acked: 5}}
	if !slices.Equal(got, want) {
		t.Errorf("due %+v, want %+v", got, want)
	}
}

// message returns a message of alice.
func message(n tidemark.Sequence) tidemark.Message {
	return tidemark.Message{ChatID: "c", Sequence: n, SenderID: alice, Kind: tidemark.KindMessage}
}
