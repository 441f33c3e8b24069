package tracing_test

import (
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/tracing"
)

const (
	trace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	span   = "00f067aa0ba902b7"
	header = "00-" + trace + "-" + span + "-01"
)

func TestParseParent(t *testing.T) {
	const none = ""
	for _, tc := range []struct {
		name, header, trace string
		sampled             bool
	}{
		{"sampled", header, trace, true},
		{"not sampled", header[:53] + "00", trace, false},
		{"other flags beside", header[:53] + "03", trace, true},
		{"a later version", "cc" + header[2:], trace, true},
		{"a later version with more", "cc" + header[2:] + "-what", trace, true},
		{"a later version with something else", "cc" + header[2:] + ".what", none, false},
		{"this version with more", header + "-what", none, false},
		{"a version that does not exist", "ff" + header[2:], none, false},
		{"absent", "", none, false},
		{"cut", header[:54], none, false},
		{"upper case", "00-" + "4BF92F3577B34DA6A3CE929D0E0E4736-" + span + "-01", none, false},
		{"no digits", "00-" + trace[:31] + "x-" + span + "-01", none, false},
		{"no trace", "00-00000000000000000000000000000000-" + span + "-01", none, false},
		{"no span", "00-" + trace + "-0000000000000000-01", none, false},
		{"other separators", "00_" + trace + "_" + span + "_01", none, false},
	} {
		got, sampled := tracing.ParseParent(tc.header)
		if got.Valid() != (tc.trace != none) || sampled != tc.sampled ||
			got.Valid() && (got.Trace.String() != tc.trace || got.Span.String() != span) {
			t.Errorf("%s: %s %s, %v", tc.name, got.Trace, got.Span, sampled)
		}
	}
}

func TestDecide_whose_decision_counts(t *testing.T) {
	caller, _ := tracing.ParseParent(header)
	var off *tracing.Tracer
	none := tracing.Context{}
	for _, tc := range []struct {
		name    string
		tracer  *tracing.Tracer
		caller  tracing.Context
		sampled bool
		want    bool
	}{
		{"off", off, caller, true, false},
		{"nobody decides, and none is wanted", tracing.New(0), none, false, false},
		{"nobody decides, and all are wanted", tracing.New(1), none, false, true},
		{"the caller samples", tracing.New(0), caller, true, true},
		{"the caller does not", tracing.New(1), caller, false, false},
	} {
		parent, got := tc.tracer.Decide(tc.caller, tc.sampled)
		if got != tc.want || got && tc.sampled && parent != tc.caller ||
			got && (parent.Trace == tracing.TraceID{}) {
			t.Errorf("%s: %v %v, want %v", tc.name, parent, got, tc.want)
		}
	}
}

// TestTrace_bounded_whoever_asks: callers cannot make a node trace more.
func TestTrace_bounded_whoever_asks(t *testing.T) {
	tracer := tracing.New(1)
	caller, _ := tracing.ParseParent(header)
	traced := 0
	for range 10 * tracing.MaxPerSecond {
		if _, yes := tracer.Decide(caller, true); yes {
			traced++
		}
	}
	// The test may take a moment.
	if most := 2 * tracing.MaxPerSecond; traced < tracing.MaxPerSecond || traced > most {
		t.Errorf("%d messages are traced, want %d to %d", traced, tracing.MaxPerSecond, most)
	}
	if got := tracer.Count.Refused.Load(); got != int64(10*tracing.MaxPerSecond-traced) {
		t.Errorf("%d are counted as refused", got)
	}
	if _, yes := tracer.Decide(tracing.Context{}, false); !yes {
		t.Error("callers used up what the node's own share needs")
	}
}

// TestTrace_bounded_queue: without an exporter nothing blocks.
func TestTrace_bounded_queue(t *testing.T) {
	tracer, recorded := tracing.New(1), make(chan struct{})
	go func() {
		defer close(recorded)
		for range tracing.MaxQueued + 3 {
			tracer.Record(tracing.Span{Name: "x"})
		}
	}()
	select {
	case <-recorded:
	case <-time.After(wait.Hang):
		t.Fatal("Record blocks")
	}
	if got := tracer.Counters()["trace_spans_total{dropped}"]; got != 3 {
		t.Errorf("%d spans are dropped, want 3", got)
	}
}

// TestTracer_nil_traces_nothing: none of its methods needs a Tracer.
func TestTracer_nil_traces_nothing(t *testing.T) {
	var off *tracing.Tracer
	off.Record(tracing.Span{Name: "x"})
	select {
	case s := <-off.Spans():
		t.Errorf("%+v is recorded", s)
	default:
	}
	for name, count := range off.Counters() {
		if count != 0 {
			t.Errorf("%s is %d", name, count)
		}
	}
}

func TestContext_binary_form(t *testing.T) {
	c, _ := tracing.ParseParent(header)
	if got := tracing.FromBinary(string(c.Append(nil))); got != c {
		t.Errorf("got %v, want %v", got, c)
	}
	for _, text := range []string{"", "x", string(c.Append(nil)) + "x"} {
		if got := tracing.FromBinary(text); got.Valid() {
			t.Errorf("%q is %v", text, got)
		}
	}
	child := c.Child()
	if child.Trace != c.Trace || child.Span == c.Span || !child.Valid() {
		t.Errorf("the child of %v is %v", c, child)
	}
}
