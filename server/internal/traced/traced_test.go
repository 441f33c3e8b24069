package traced

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/tracing"
)

// node is a node with traces.
type node struct {
	*Messages
	tracer *tracing.Tracer
	root   tracing.Context
}

func newNode() *node {
	tracer := tracing.New(1)
	root, _ := tracer.Decide(tracing.Context{}, false)
	return &node{Messages: New(tracer), tracer: tracer, root: root.Child()}
}

// notify publishes a message of alice to sessions of users. The session of bob is s-bob.
func (n *node) notify(chat tidemark.ChatID, sequence tidemark.Sequence, users ...tidemark.UserID) {
	leases := make([]registry.Lease, len(users))
	for i, user := range users {
		leases[i] = registry.Lease{User: user, Session: "s-" + tidemark.SessionID(user)}
	}
	n.Notified(leases, &bus.Notification{
		Chat: chat, Sequence: sequence, Trace: n.root,
		Message: &tidemark.Message{SenderID: "alice"},
	})
}

// spans returns what was recorded since the last call: the name, the sequence and what failed.
func (n *node) spans() (all []string) {
	for {
		select {
		case s := <-n.tracer.Spans():
			text := s.Name
			for _, a := range s.Attributes {
				if a.Key == "tidemark.sequence" {
					text += fmt.Sprint(" ", a.Number)
				}
			}
			if s.Failed != "" {
				text += ": " + s.Failed
			}
			all = append(all, text)
		default:
			return all
		}
	}
}

func (n *node) expect(t *testing.T, step string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.spans()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", step, diff)
	}
}

func (n *node) expectFollowed(t *testing.T, want int64) {
	t.Helper()
	if got, _ := n.Counts(); got != want {
		t.Errorf("%d messages are followed, want %d", got, want)
	}
}

// TestTrace_to_acknowledgement_is_cumulative: an acknowledgement covers all messages up to it, of
// its user and chat only.
func TestTrace_to_acknowledgement_is_cumulative(t *testing.T) {
	n := newNode()
	for sequence := range tidemark.Sequence(4) {
		n.notify("c", 1+sequence, "alice", "bob", "carol")
	}
	n.notify("d", 1, "bob")
	n.HandedOver("s-bob", "c", 1, 3)
	n.expect(t, "Bob gets three", "deliver 1", "deliver 2", "deliver 3")
	n.HandedOver("s-bob", "c", 2, 4)
	n.expect(t, "Bob gets two of them again", "deliver 4")
	n.HandedOver("s-alice", "c", 1, 4)
	n.HandedOver("s-eve", "c", 1, 4)
	n.expect(t, "neither the author nor a stranger is a recipient")
	n.Acknowledged("bob", "c", 3)
	n.expect(t, "Bob acknowledges", "acknowledge 1", "acknowledge 2", "acknowledge 3")
	n.Acknowledged("bob", "c", 3)
	n.Acknowledged("alice", "c", 4)
	n.expect(t, "nothing moves")
	n.expectFollowed(t, 5)
	n.HandedOver("s-carol", "c", 1, 4)
	n.Acknowledged("carol", "c", 9)
	n.expect(t, "Carol acknowledges all", "deliver 1", "deliver 2", "deliver 3", "deliver 4",
		"acknowledge 1", "acknowledge 2", "acknowledge 3", "acknowledge 4")
	n.expectFollowed(t, 2)
	n.Acknowledged("bob", "c", 4)
	n.Acknowledged("bob", "d", 1) // Bob read it through another node
	n.expect(t, "Bob acknowledges the rest", "acknowledge 4", "acknowledge 1")
	n.expectFollowed(t, 0)
}

// TestTrace_to_acknowledgement_of_two_devices: both get the message, and the user acknowledges it
// once, after the device that was first.
func TestTrace_to_acknowledgement_of_two_devices(t *testing.T) {
	n := newNode()
	n.Notified([]registry.Lease{{User: "bob", Session: "a"}, {User: "bob", Session: "b"}},
		&bus.Notification{
			Chat: "c", Sequence: 1, Trace: n.root, Message: &tidemark.Message{SenderID: "alice"},
		})
	n.HandedOver("b", "c", 1, 1)
	first := <-n.tracer.Spans()
	n.HandedOver("a", "c", 1, 1)
	<-n.tracer.Spans()
	n.Acknowledged("bob", "c", 1)
	acknowledged := <-n.tracer.Spans()
	if acknowledged.Parent != first.Span || acknowledged.Start != first.End {
		t.Errorf("%+v does not follow %+v", acknowledged, first)
	}
	n.expect(t, "there is one acknowledgement")
	n.expectFollowed(t, 0)
}

// TestTrace_bounded_in_time: after a minute, what did not happen is in the trace.
func TestTrace_bounded_in_time(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		go n.Run(t.Context())
		n.notify("c", 1, "bob", "carol")
		n.HandedOver("s-bob", "c", 1, 1)
		time.Sleep(followWithin - time.Second)
		n.expect(t, "within the minute", "deliver 1")
		time.Sleep(2 * time.Second)
		n.expect(t, "after it", "acknowledge 1: "+notAcknowledged, "deliver 1: "+notHandedOver)
		n.expectFollowed(t, 0)
	})
}

// TestTrace_bounded_in_number: further messages and recipients are not followed, and counted.
func TestTrace_bounded_in_number(t *testing.T) {
	n := newNode()
	many := make([]tidemark.UserID, 2*maxRecipients)
	for i := range many {
		many[i] = tidemark.UserID(fmt.Sprint("u", i))
	}
	n.notify("c", 1, many...)
	for _, user := range many {
		n.HandedOver("s-"+tidemark.SessionID(user), "c", 1, 1)
	}
	if got := len(n.spans()); got != maxRecipients {
		t.Errorf("%d recipients are followed, want %d", got, maxRecipients)
	}
	for sequence := range tidemark.Sequence(maxMessages + 2) {
		n.notify("c", 2+sequence, "bob")
	}
	if followed, not := n.Counts(); followed != maxMessages || not != 3 {
		t.Errorf("%d messages are followed and %d are not, want %d and 3", followed, not,
			maxMessages)
	}
}

// TestTrace_bounded_deliveries_share_the_lock: deliveries and acknowledgements of messages that are
// not followed do not wait for each other, in the same chat neither.
func TestTrace_bounded_deliveries_share_the_lock(t *testing.T) {
	for name, call := range map[string]func(*node){
		"another chat":          func(n *node) { n.HandedOver("s-bob", "d", 1, 9) },
		"an earlier message":    func(n *node) { n.HandedOver("s-bob", "c", 1, 1) },
		"a later message":       func(n *node) { n.HandedOver("s-bob", "c", 3, 9) },
		"another session":       func(n *node) { n.HandedOver("s-carol", "c", 2, 2) },
		"acked in another chat": func(n *node) { n.Acknowledged("bob", "d", 9) },
		"acked before":          func(n *node) { n.Acknowledged("bob", "c", 1) },
		"acked by another user": func(n *node) { n.Acknowledged("carol", "c", 9) },
	} {
		n, done := newNode(), make(chan struct{})
		n.notify("c", 2, "bob")
		n.mu.RLock()
		defer n.mu.RUnlock()
		go func() {
			defer close(done)
			call(n)
		}()
		select {
		case <-done:
		case <-time.After(wait.Hang):
			t.Fatalf("%s: it waits for the lock", name)
		}
	}
}

// TestSends_link_what_shares_a_commit: appends of two traces name each other.
func TestSends_link_what_shares_a_commit(t *testing.T) {
	n := newNode()
	sends := n.Begin(t.Context(), 3)
	sends.Storing(t.Context())
	sends.Stored(0, &tidemark.Message{Sequence: 1}, false)
	sends.Refused(1, tidemark.Errorf(tidemark.NotMember, "no member"))
	sends.Stored(2, &tidemark.Message{Sequence: 2}, true)
	sends.HandedOver(0, 3, 1, nil)
	sends.HandedOver(2, 3, 1, errors.New("x"))
	links := 0
	for range 3 { // the second append follows directly on the first
		if s := <-n.tracer.Spans(); s.Name == "append" {
			links += len(s.Links)
		}
	}
	if links != 2*2 {
		t.Errorf("two appends have %d links, want 2 each", links)
	}
	n.expect(t, "the rest", "append", "publish", "send 1", "publish: INTERNAL",
		"send 2: INTERNAL")
}

// TestSends_refused_draft_has_no_commit: a commit is in the traces of what it stored. A tag of
// another user of the batches is no append.
func TestSends_refused_draft_has_no_commit(t *testing.T) {
	n := newNode()
	sends := n.Begin(t.Context(), 2)
	sends.Storing(t.Context())
	sends.commit.Run = &batch.Run{Calls: 3, Tags: []any{sends.appends(), "another"}}
	sends.Stored(0, &tidemark.Message{Sequence: 1}, false)
	sends.Refused(1, tidemark.Errorf(tidemark.NotMember, "no member"))
	n.expect(t, "one of two is stored", "append", "commit", "append: NOT_A_MEMBER",
		"send: NOT_A_MEMBER")
}

// TestOff_costs_nothing: without a tracer no call allocates, or takes a lock.
func TestOff_costs_nothing(t *testing.T) {
	var off *Messages
	ctx, leases := t.Context(), []registry.Lease{{User: "bob"}}
	notification := &bus.Notification{Message: &tidemark.Message{}}
	if got := testing.AllocsPerRun(100, func() {
		sends := off.Begin(ctx, 1)
		_ = sends.Storing(ctx)
		sends.Stored(0, notification.Message, false)
		sends.HandedOver(0, 1, 1, nil)
		off.Notified(leases, notification)
		off.HandedOver("s", "c", 1, 1)
		off.Acknowledged("bob", "c", 1)
		off.Counts()
	}); got != 0 {
		t.Errorf("%v allocations, want none", got)
	}
}

// BenchmarkMessage is what the calls of one message to one recipient cost: off, on with a message
// that is not sampled, and sampled.
func BenchmarkMessage(b *testing.B) {
	n := newNode()
	for _, tc := range []struct {
		name string
		of   *Messages
		root tracing.Context
	}{
		{"off", nil, n.root},
		{"unsampled", n.Messages, tracing.Context{}},
		{"sampled", n.Messages, n.root},
	} {
		b.Run(tc.name, func(b *testing.B) {
			m, ctx := tc.of, tracing.With(b.Context(), tc.root)
			leases := []registry.Lease{{User: "bob", Session: "s"}}
			stored := &tidemark.Message{SenderID: "alice"}
			notification := &bus.Notification{Chat: "c", Sequence: 1, Message: stored}
			b.ReportAllocs()
			for b.Loop() {
				sends := m.Begin(ctx, 1)
				_ = sends.Storing(ctx)
				notification.Trace = sends.Stored(0, stored, false)
				m.Notified(leases, notification)
				m.HandedOver("s", "c", 1, 1)
				m.Acknowledged("bob", "c", 1)
				sends.HandedOver(0, 1, 1, nil)
			}
		})
	}
}

// BenchmarkDelivery is what the hand-over and the acknowledgement of a message cost that is not
// sampled, on all processors at once: while nothing is followed, while a message of another chat
// is, and while one of the same chat is, for another user.
func BenchmarkDelivery(b *testing.B) {
	for _, tc := range []struct {
		name     string
		followed tidemark.ChatID
	}{{"nothing", ""}, {"another_chat", "other"}, {"same_chat", "c"}} {
		b.Run(tc.name, func(b *testing.B) {
			n := newNode()
			if tc.followed != "" {
				n.notify(tc.followed, 1, "carol")
			}
			b.ReportAllocs()
			b.RunParallel(func(next *testing.PB) {
				for next.Next() {
					n.HandedOver("s-bob", "c", 1, 1)
					n.Acknowledged("bob", "c", 1)
				}
			})
		})
	}
}
