package reach

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// TestReceiver_begins_nothing_after_its_end: what would begin then waits in the outlet's own
// backlogs, and close need not wait for it.
func TestReceiver_begins_nothing_after_its_end(t *testing.T) {
	w := newWorld(t)
	p := &process{}
	r := newReceiver(Spec{ID: "a"}, &fakeOutlet{w.inbox(home), false, 1, &p.dead}, new(failures),
		new(counts), time.Minute)
	steps := []step{{Event: outlet.Event{ID: "e", Type: outlet.ChatUpdated, Chat: "c"}}}
	if out := <-r.start(line{chat: "c"}, steps); out.accepted != 1 {
		t.Errorf("before its end: %+v", out)
	}
	r.mu.Lock()
	r.closed = true // as close does first; its lane still works
	r.mu.Unlock()
	if out := <-r.start(line{chat: "c"}, steps); !out.unanswered || out.accepted != 0 {
		t.Errorf("after its end: %+v", out)
	}
	if r.queued.Load() != 0 || len(r.busy) != 0 {
		t.Errorf("%d events wait, and %d chats are busy", r.queued.Load(), len(r.busy))
	}
	r.close()
}

// eachOutlet refuses the chat b, and answers for each event.
type eachOutlet struct {
	outlet.Client
	calls int
}

func (o *eachOutlet) DeliverEach(_ context.Context, events []outlet.Event) []*outlet.Refusal {
	o.calls++
	refusals := make([]*outlet.Refusal, len(events))
	for i := range events {
		if events[i].Chat == "b" {
			refusals[i] = &outlet.Refusal{Detail: "not this chat"}
		}
	}
	return refusals
}

func (*eachOutlet) Limits() outlet.Limits { return outlet.Limits{Events: 10, Bytes: 1_000} }

func (*eachOutlet) Close() error { return nil }

// TestReceiver_chats_of_a_delivery_are_answered_each: what others refused in the same delivery does
// not matter to a chat, and nothing is delivered twice.
func TestReceiver_chats_of_a_delivery_are_answered_each(t *testing.T) {
	client := &eachOutlet{}
	r := newReceiver(Spec{ID: "a"}, client, new(failures), new(counts), time.Minute)
	events := []outlet.Event{{Chat: "b"}, {Chat: "c"}, {Chat: "b"}, {Chat: "d"}, {Chat: "c"}}
	refusals, err := r.deliver(t.Context(), func() []outlet.Event { return events })
	if err != nil {
		t.Fatal(err)
	}
	for i, why := range refusals {
		if refused := events[i].Chat == "b"; refused != (why != nil) {
			t.Errorf("event %d: %+v", i, why)
		}
	}
	accepted, refused := r.counts[countAccepted].Load(), r.counts[countRefused].Load()
	logged := r.failures.take()["a"]
	if client.calls != 1 || accepted != 3 || refused != 1 || len(logged) != 1 {
		t.Errorf("%d calls, %d accepted, %d refused, log %v", client.calls, accepted, refused,
			logged)
	}
	r.close()
}

// TestReceiver_remembers_refusals: of many chats that are refused, few are forgotten for others.
func TestReceiver_remembers_refusals(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(Spec{ID: "a"}, &fakeOutlet{w.inbox(home), false, 1, &(&process{}).dead},
		new(failures), new(counts), time.Minute)
	for range refusalsUntilParked {
		for n := range maxAgain + 10 {
			r.retryLater(line{chat: tidemark.ChatID(strconv.Itoa(n))}, &outlet.Refusal{})
		}
	}
	poison := 0
	for _, a := range r.again {
		if a.refusals == refusalsUntilParked {
			poison++
		}
	}
	if len(r.again) != maxAgain || poison < maxAgain*9/10 {
		t.Errorf("of %d chats that were refused %d times, %d are known, want most of %d",
			len(r.again), refusalsUntilParked, poison, maxAgain)
	}
	r.close()
}

// cutOutlet is aborted during its first delivery.
type cutOutlet struct {
	outlet.Client
	abort func()
}

func (o *cutOutlet) Deliver(context.Context, []outlet.Event) (int, *outlet.Refusal) {
	o.abort()
	return 0, &outlet.Refusal{Detail: "the connection was closed"}
}

func (*cutOutlet) Limits() outlet.Limits { return outlet.Limits{Events: 1, Bytes: 1_000} }

func (*cutOutlet) Close() error { return nil }

// TestReceiver_told_or_owed_when_aborted: an outlet that is changed or stopped ends a batch. What
// was not tried any more does not count as accepted.
func TestReceiver_told_or_owed_when_aborted(t *testing.T) {
	ctx, abort := context.WithCancel(t.Context())
	r := newReceiver(Spec{ID: "a"}, &cutOutlet{abort: abort}, new(failures), new(counts),
		time.Minute)
	events := []outlet.Event{{Chat: "b"}, {Chat: "c"}, {Chat: "b"}}
	refusals, err := r.deliver(ctx, func() []outlet.Event { return events })
	for i, why := range refusals {
		if why == nil && err == nil {
			t.Errorf("event %d counts as accepted, and was never delivered", i)
		}
	}
	r.close()
}

func TestEngine_receiver_that_is_down_gets_all_later(t *testing.T) {
	for name, answer := range map[string]answer{
		"refuses": refuse(500),
		"hangs": func(ctx context.Context, _ []outlet.Event) (int, *outlet.Refusal) {
			select {
			case <-ctx.Done():
			case <-time.After(15 * time.Second):
			}
			return 0, &outlet.Refusal{Detail: "no answer"}
		},
		"asks to wait": func(context.Context, []outlet.Event) (int, *outlet.Refusal) {
			return 0, &outlet.Refusal{Status: 429, After: time.Minute}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				p := w.start(nil)
				w.outlet(p, NewOutlet{})
				other := w.outlet(p, NewOutlet{URL: "https://down", Batch: true})
				w.inbox("https://down").does(answer)
				chats := []tidemark.ChatID{w.group(), w.group(), w.group()}
				for n := range 600 {
					w.send(chats[n%3], p)
					time.Sleep(100 * time.Millisecond)
				}
				w.whole(home, 3*time.Second)
				if n := w.backlogs(other); n != 3 {
					t.Errorf("the receiver that is down has %d backlogs, want 3", n)
				}
				time.Sleep(10 * time.Second)
				if n := w.backlogs(storage.AllOutlets); n != 0 {
					t.Errorf("%d backlogs for all are open", n)
				}
				for n := 0; n < 60 && name == "refuses"; n++ { // for an hour, and others go on
					time.Sleep(time.Minute)
					w.send(chats[0], p)
					w.whole(home, 3*time.Second)
				}
				w.inbox("https://down").does(nil)
				w.whole("https://down", 70*time.Minute) // It is tried once an hour.
				w.whole(home, 0)
				time.Sleep(5 * time.Second)
				if n := w.backlogs(other); n != 0 {
					t.Errorf("%d backlogs are left", n)
				}
				for _, c := range chats { // It is up again.
					w.send(c, p)
				}
				time.Sleep(time.Minute + 2*time.Second)
				w.whole("https://down", 0)
			})
		})
	}
}
