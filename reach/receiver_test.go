package reach

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// TestReceiver_begins_nothing_after_its_end: what would begin then waits in the outlet's own
// backlogs, and close need not wait for it.
func TestReceiver_begins_nothing_after_its_end(t *testing.T) {
	w := newWorld(t)
	p := &process{}
	r := newReceiver(Spec{ID: "a"}, &fakeOutlet{w.inbox(home), false, &p.dead}, new(failures),
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
	r := newReceiver(Spec{ID: "a"}, &fakeOutlet{w.inbox(home), false, &(&process{}).dead},
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
