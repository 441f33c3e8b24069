// Package bustest is the suite that every bus passes. A test of a bus is one line:
//
//	bustest.Run(t, func(t *testing.T) bus.Bus { return local.New() })
package bustest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/test/wait"
)

// Within is how long the suite waits for an event.
const Within = wait.Hang

// Run runs the suite. open returns a new bus for each test.
func Run(t *testing.T, open func(t *testing.T) bus.Bus) {
	tests := map[string]func(*suite){
		"every kind of event arrives whole":             kinds,
		"an event goes to its node only":                addressed,
		"nobody listens: NotFound or Unavailable":       nobody,
		"after stop has returned no call begins":        stop,
		"a node may subscribe again after stop":         again,
		"a second subscription of a node is a Conflict": twice,
		"concurrent publications all arrive":            concurrent,
		"publications fail one by one":                  several,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(&suite{T: t, ctx: t.Context(), b: open(t)}) })
	}
}

type suite struct {
	*testing.T
	ctx context.Context
	b   bus.Bus
}

// inbox has the events that a node received.
type inbox struct {
	mu     sync.Mutex
	events []bus.Event
	came   signal.Flag
}

func (in *inbox) handle(e bus.Event) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.events = append(in.events, e)
	in.came.Set()
}

func (in *inbox) got() []bus.Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]bus.Event(nil), in.events...)
}

// wait waits until n events have arrived, and returns them.
func (in *inbox) wait(s *suite, n int) []bus.Event {
	s.Helper()
	deadline := time.Now().Add(Within)
	for {
		if got := in.got(); len(got) >= n {
			return got
		}
		if came, _ := in.came.WaitUntil(s.ctx, deadline); !came {
			s.Fatalf("%d events came within %v, want %d", len(in.got()), Within, n)
		}
	}
}

// subscribe subscribes a node until the test ends or stop is called.
func (s *suite) subscribe(n registry.Node) (in *inbox, stop func()) {
	s.Helper()
	in = &inbox{came: signal.New()}
	end, err := s.b.Subscribe(s.ctx, n, bus.Subscriber{Receive: in.handle})
	if err != nil {
		s.Fatalf("Subscribe(%v): %v", n, err)
	}
	stop = sync.OnceFunc(end)
	s.Cleanup(stop)
	return in, stop
}

func (s *suite) publish(n registry.Node, e bus.Event) {
	s.Helper()
	if err := bus.PublishOne(s.ctx, s.b, n, e); err != nil {
		s.Fatalf("Publish to %v: %v", n, err)
	}
}

var (
	nodeA = registry.Node{ID: "a", Boot: "1"}
	nodeB = registry.Node{ID: "b", Boot: "1"}
)

func notification(sequence tidemark.Sequence) bus.Event {
	return bus.Event{Notification: &bus.Notification{Chat: "c", Sequence: sequence}}
}

func kinds(s *suite) {
	in, _ := s.subscribe(nodeA)
	leases := []registry.Lease{
		{User: "bob", Device: "phone", Node: "a", Boot: "1", Session: "s"},
		{User: "eve", Device: "tab", Node: "a", Boot: "1", Session: "t"},
	}
	draft := tidemark.Draft{
		ChatID:          "c",
		SenderID:        "alice",
		ClientMessageID: "k",
		Content:         "héllo\n\"",
		Kind:            tidemark.KindMessage,
		ContentType:     "text/plain",
		Attachments:     []byte(`[{"a": 1}]`),
		MessageID:       "m",
		CreatedAt:       time.UnixMilli(1_700_000_000_123).UTC(),
	}
	message := draft.Message(7, 3)
	want := []bus.Event{
		{
			To: leases,
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: 7,
				Message:  &message,
				Encoded:  message.AppendJSON(nil),
			},
		},
		{
			To: leases[:1],
			Notification: &bus.Notification{
				Chat:     "c",
				Sequence: tidemark.MaxSequence,
				Marked:   true,
			},
		},
		{
			To: leases,
			Status: &bus.Status{
				Updates: []tidemark.StatusUpdate{
					{ChatID: "c", UserID: "bob", Boundary: tidemark.Boundary{
						Acked: 5, Read: 4, AckedAt: 1_769_853_605_100, ReadAt: 1,
					}},
					{ChatID: "c"},
				},
				Version: 9,
			},
		},
		{
			To: leases,
			Membership: &bus.Membership{
				Changes: []tidemark.MembershipChange{
					{ChatID: "c", UserID: "eve", Change: tidemark.Removed},
				},
				Version: 10,
				Members: tidemark.MaxMembers,
			},
		},
		{
			To: leases,
			Update: &bus.Update{
				ChatUpdate: tidemark.ChatUpdate{ChatID: "c", Version: 2}, MembersVersion: 3,
			},
		},
		{
			To: leases,
			Update: &bus.Update{
				ChatUpdate: tidemark.ChatUpdate{ChatID: "c", Version: 2}, MembersVersion: 3,
				Receipts: true,
			},
		},
		{To: leases, Own: &bus.Own{Chat: "c"}},
		{To: leases, Own: &bus.Own{}},
		{To: leases, Typing: &tidemark.Typing{ChatID: "c", UserID: "bob"}},
		{Presence: &bus.Presence{
			From: nodeB, Looking: true, At: 1, Came: []tidemark.UserID{"bob"},
			Left: []tidemark.UserID{"eve"}, Changed: []tidemark.UserID{"carol"},
		}},
		{
			Membership: &bus.Membership{
				Changes: []tidemark.MembershipChange{
					{
						ChatID: "c", UserID: "eve", Change: tidemark.Added,
						Role: tidemark.Ordinary,
					},
					{
						ChatID: "c", UserID: "bob", Change: tidemark.MetadataChanged,
						Role: tidemark.Admin,
					},
				},
				Version: 1 << 60,
			},
		},
		{Access: &bus.Access{User: "bob"}},
		{Request: &bus.Request{ID: "q1", Session: "s", User: "bob", To: nodeB, Hops: 1}},
		{Transfer: &bus.Transfer{ID: "q1", Snapshot: []byte("{\"x\":\n\"\x00\"}")}},
		{
			Seek: &bus.Seek{
				ID:        "q2",
				Session:   "s",
				User:      "bob",
				Positions: []byte("{}"),
				From:      nodeB,
			},
		},
		{End: &bus.End{ID: "q3", Session: "s", User: "bob", From: nodeB}},
		{Done: &bus.Done{ID: "q2"}},
		{Survey: &bus.Survey{ID: "q4", From: nodeB}},
		{Report: &bus.Report{ID: "q4", Node: nodeB, Figures: []byte("{\"n\":\n1}")}},
	}
	for i, e := range want {
		s.publish(nodeA, e)
		got := in.wait(s, i+1)
		if diff := cmp.Diff(e, got[i]); diff != "" {
			s.Errorf("event %d (-want +got):\n%s", i, diff)
		}
	}
}

func addressed(s *suite) {
	a, _ := s.subscribe(nodeA)
	b, _ := s.subscribe(nodeB)
	other, _ := s.subscribe(registry.Node{ID: "a", Boot: "2"}) // another life of the node
	s.publish(nodeA, notification(1))
	s.publish(nodeB, notification(2))
	if got := a.wait(s, 1); got[0].Notification.Sequence != 1 {
		s.Errorf("a got %d, want 1", got[0].Notification.Sequence)
	}
	if got := b.wait(s, 1); got[0].Notification.Sequence != 2 {
		s.Errorf("b got %d, want 2", got[0].Notification.Sequence)
	}
	if n := len(a.got()) + len(b.got()) + len(other.got()); n != 2 {
		s.Errorf("%d events came, want 2", n)
	}
}

func (s *suite) wantNobody(n registry.Node) {
	s.Helper()
	err := bus.PublishOne(s.ctx, s.b, n, notification(1))
	if code := tidemark.CodeOf(err); code != tidemark.NotFound && code != tidemark.Unavailable {
		s.Errorf("Publish to %v, where nobody listens: %v, want %s, or %s",
			n, err, tidemark.NotFound, tidemark.Unavailable)
	}
}

func nobody(s *suite) {
	s.subscribe(nodeA)
	s.wantNobody(nodeB)
	s.wantNobody(registry.Node{ID: "a", Boot: "0"})
}

func stop(s *suite) {
	var mu sync.Mutex
	stopped, late := false, 0
	end, err := s.b.Subscribe(s.ctx, nodeA, bus.Subscriber{Receive: func(bus.Event) {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			late++
		}
	}})
	if err != nil {
		s.Fatal(err)
	}
	var publishing sync.WaitGroup
	begun := make(chan struct{}, 4)
	for range 4 {
		publishing.Go(func() {
			for i := range 500 {
				_ = bus.PublishOne(s.ctx, s.b, nodeA, notification(1))
				if i == 10 {
					begun <- struct{}{}
				}
			}
		})
	}
	<-begun
	end()
	mu.Lock()
	stopped = true
	mu.Unlock()
	publishing.Wait()
	mu.Lock()
	defer mu.Unlock()
	if late > 0 {
		s.Errorf("%d calls began after stop had returned", late)
	}
	s.wantNobody(nodeA)
}

func again(s *suite) {
	_, end := s.subscribe(nodeA)
	end()
	in, _ := s.subscribe(nodeA)
	s.publish(nodeA, notification(3))
	if got := in.wait(s, 1); got[0].Notification.Sequence != 3 {
		s.Errorf("got %d, want 3", got[0].Notification.Sequence)
	}
}

func twice(s *suite) {
	in, _ := s.subscribe(nodeA)
	_, err := s.b.Subscribe(s.ctx, nodeA, bus.Subscriber{Receive: func(bus.Event) {}})
	if tidemark.CodeOf(err) != tidemark.Conflict {
		s.Errorf("a second subscription: %v, want %s", err, tidemark.Conflict)
	}
	s.publish(nodeA, notification(1))
	in.wait(s, 1)
}

func several(s *suite) {
	if errs := s.b.Publish(s.ctx, nil); len(errs) != 0 {
		s.Errorf("Publish of nothing: %v", errs)
	}
	in, _ := s.subscribe(nodeA)
	errs := s.b.Publish(s.ctx, []bus.Publication{
		{Node: nodeA, Event: notification(1)}, {Node: nodeB, Event: notification(2)},
		{Node: nodeA, Event: notification(3)},
	})
	if len(errs) != 3 || errs[0] != nil || errs[2] != nil {
		s.Fatalf("errors %v, want none for a", errs)
	}
	if code := tidemark.CodeOf(errs[1]); code != tidemark.NotFound && code != tidemark.Unavailable {
		s.Errorf("to b, where nobody listens: %v, want %s or %s",
			errs[1], tidemark.NotFound, tidemark.Unavailable)
	}
	if got := in.wait(s, 2); got[0].Notification.Sequence+got[1].Notification.Sequence != 4 {
		s.Errorf("a got %d and %d, want 1 and 3",
			got[0].Notification.Sequence, got[1].Notification.Sequence)
	}
}

func concurrent(s *suite) {
	in, _ := s.subscribe(nodeA)
	const publishers, each = 8, 100
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				e := notification(tidemark.Sequence(p*each + i + 1))
				if err := bus.PublishOne(s.ctx, s.b, nodeA, e); err != nil {
					s.Errorf("Publish: %v", err)
				}
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, e := range in.wait(s, publishers*each) {
		seen[fmt.Sprint(e.Notification.Sequence)] = true
	}
	if len(seen) != publishers*each {
		s.Errorf("%d different events came, want %d", len(seen), publishers*each)
	}
}
