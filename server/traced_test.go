package server_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/tracing"
)

// recorded returns the spans that a tracer has, by the order in which they ended.
func recorded(tracer *tracing.Tracer) (spans []tracing.Span) {
	for {
		select {
		case s := <-tracer.Spans():
			spans = append(spans, s)
		default:
			return spans
		}
	}
}

// names returns the names of spans in the order of the alphabet.
func names(spans []tracing.Span) (all []string) {
	for _, s := range spans {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return all
}

// TestTrace_to_acknowledgement_over_a_stream: Bob is connected, and acknowledges two messages with
// one frame. Carol is away: her row is no part of the traces.
func TestTrace_to_acknowledgement_over_a_stream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := tracing.New(1)
		s := start(t, func(c *server.Config) { c.Tracer = tracer })
		chat := s.chat("c", "alice", "bob", "carol")
		bob := s.open("bob")
		bob.drain()
		s.send("alice", chat)
		s.send("alice", chat)
		bob.drain()
		time.Sleep(time.Second)
		sent := recorded(tracer)
		want := []string{
			"append", "append", "deliver", "deliver", "publish", "publish", "send", "send",
		}
		// A store that shares commits names them, too.
		sent = slices.DeleteFunc(sent, func(s tracing.Span) bool { return s.Name == "commit" })
		if diff := cmp.Diff(want, names(sent)); diff != "" {
			t.Fatalf("before the acknowledgement (-want +got):\n%s", diff)
		}
		bob.Ack(server.Ack{Chat: chat, Acked: 2})
		time.Sleep(time.Second)
		acknowledged := recorded(tracer)
		want = []string{"acknowledge", "acknowledge"}
		if diff := cmp.Diff(want, names(acknowledged)); diff != "" {
			t.Fatalf("after it (-want +got):\n%s", diff)
		}
		for _, a := range acknowledged {
			above := slices.IndexFunc(sent, func(s tracing.Span) bool {
				return s.Name == "deliver" && s.Context == tracing.Context{
					Trace: a.Trace, Span: a.Parent,
				}
			})
			if above < 0 || a.Start.Before(sent[above].End) || a.End.Before(a.Start) {
				t.Errorf("%+v follows no delivery", a)
			}
		}
		if acknowledged[0].Trace == acknowledged[1].Trace {
			t.Error("two messages are in one trace")
		}
		if got := s.Counters()["trace_messages"]; got != 0 {
			t.Errorf("%d messages are followed in the end", got)
		}
	})
}

// TestTrace_to_acknowledgement_by_a_call: the transport has decided that the message is traced, and
// Bob acknowledges by a call, outside the stream.
func TestTrace_to_acknowledgement_by_a_call(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := tracing.New(0)
		s := start(t, func(c *server.Config) { c.Tracer = tracer })
		chat := s.chat("c", "alice", "bob")
		bob := s.open("bob")
		bob.drain()
		parent := tracing.Context{Trace: tracing.TraceID{1}, Span: tracing.SpanID{2}}
		ctx := tracing.With(s.ctx, parent)
		sent, err := s.Send(ctx, "alice", tidemark.Draft{
			ChatID: chat, ClientMessageID: "k", Content: "x",
		})
		if err != nil {
			t.Fatal(err)
		}
		s.send("alice", chat) // nobody samples this one
		bob.drain()
		s.ack("bob", chat, sent.Message.Sequence, 0)
		for _, span := range recorded(tracer) {
			if span.Trace != parent.Trace {
				t.Errorf("%s is in the trace %v", span.Name, span.Trace)
			}
			if span.Name == "send" && span.Parent != parent.Span {
				t.Errorf("the send is below %v", span.Parent)
			}
			if span.Name == "acknowledge" {
				return
			}
		}
		t.Error("there is no acknowledgement")
	})
}

// TestTrace_to_acknowledgement_gap_is_no_hand_over: Bob comes back to a chat when a message has
// been stored, and before it is published. Bob is notified of it, and gets a gap in its place.
func TestTrace_to_acknowledgement_gap_is_no_hand_over(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := tracing.New(1)
		w := newCluster(t)
		a := w.node("a", func(c *server.Config) { c.Tracer = tracer })
		chat := a.chat("c", "alice", "bob", "carol")
		bob := a.open("bob")
		bob.drain()
		a.send("alice", chat)
		bob.drain()
		a.remove(chat, "bob")
		bob.drain()
		recorded(tracer)
		w.after.set(once("Append", nil, func() { a.add(chat, "bob") }))
		a.send("alice", chat)
		w.after.clear()
		want(t, "Bob", messagesOf(bob.drain()), "message c 1", "gap c 2-2")
		if followed := a.Counters()["trace_messages"]; followed != 2 {
			t.Errorf("%d messages are followed to Bob, want 2", followed)
		}
		for _, span := range recorded(tracer) {
			if span.Name == "deliver" {
				t.Errorf("a gap ends %+v", span)
			}
		}
	})
}

// BenchmarkSend_traced is BenchmarkSend with a tracer: 0 samples nothing, 1 up to a hundred
// messages a second.
func BenchmarkSend_traced(b *testing.B) {
	for _, ratio := range []float64{0, 1} {
		b.Run(fmt.Sprint(ratio), func(b *testing.B) {
			benchmarkSend(b, func(c *server.Config) { c.Tracer = tracing.New(ratio) })
		})
	}
}
