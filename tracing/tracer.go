package tracing

import (
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/time/rate"
)

// MaxPerSecond is how many messages a node traces in a second by its own share, and how many more
// because their callers ask for it. MaxQueued is how many spans wait for the exporter.
const (
	MaxPerSecond = 100
	MaxQueued    = 4096
)

// Tracer decides which messages are traced, and queues their spans. A nil *Tracer traces nothing.
// It is safe for concurrent use.
type Tracer struct {
	// ratio is the share of messages that are traced, among those without a caller's decision.
	ratio float64
	// own bounds the messages that are traced by ratio, and asked those whose callers decide. So
	// callers cannot use up what ratio needs.
	own, asked *rate.Limiter
	queue      chan Span
	Count      Counters
}

// Counters count messages and spans. They only grow.
type Counters struct {
	// Refused counts messages beyond MaxPerSecond. Dropped counts spans for which the queue had no
	// room, Sent those that a collector took, and Failed those that it did not take.
	Refused, Dropped, Sent, Failed atomic.Int64
}

// New returns a Tracer that traces a share of all messages, from 0 to 1. Messages whose callers
// record their own spans are traced too.
func New(ratio float64) *Tracer {
	return &Tracer{
		ratio: ratio,
		own:   rate.NewLimiter(MaxPerSecond, MaxPerSecond),
		asked: rate.NewLimiter(MaxPerSecond, MaxPerSecond),
		queue: make(chan Span, MaxQueued),
	}
}

// Decide decides whether a message is traced. parent is the parent of this node's first span. Its
// Span is zero if the trace begins here. A caller's decision counts before ratio, so that its
// traces are whole. MaxPerSecond bounds each of both.
func (t *Tracer) Decide(caller Context, sampled bool) (parent Context, traced bool) {
	if t == nil {
		return Context{}, false
	}
	wanted, limit := rand.Float64() < t.ratio, t.own
	if caller.Valid() {
		//rule:trace_bounded.callers-have-their-own-limit
		wanted, limit = sampled, t.asked
	}
	switch {
	case !wanted:
		return Context{}, false
	//rule:trace_bounded.limit-traced-messages
	case !limit.Allow():
		t.Count.Refused.Add(1)
		return Context{}, false
	case caller.Valid():
		return caller, true
	}
	return Context{Trace: newTraceID()}, true
}

// Record queues a finished span. It never blocks: without room, the span is dropped and counted.
func (t *Tracer) Record(s Span) {
	if t == nil {
		return
	}
	//rule:trace_bounded.drop-without-room
	select {
	case t.queue <- s:
	default:
		t.Count.Dropped.Add(1)
	}
}

// Spans returns the queue of finished spans, for one exporter. That of a nil *Tracer is nil: it
// never has one.
func (t *Tracer) Spans() <-chan Span {
	if t == nil {
		return nil
	}
	return t.queue
}

// Counters returns the counters by name, as a transport shows them.
func (t *Tracer) Counters() map[string]int64 {
	count := new(Counters)
	if t != nil {
		count = &t.Count
	}
	return map[string]int64{
		"trace_refused_total":        count.Refused.Load(),
		"trace_spans_total{dropped}": count.Dropped.Load(),
		"trace_spans_total{sent}":    count.Sent.Load(),
		"trace_spans_total{failed}":  count.Failed.Load(),
	}
}
