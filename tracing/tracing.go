// Package tracing has the spans of a message's way through the servers, decides which messages are
// traced, and queues finished spans for an exporter.
//
// A span is a value that is recorded once, when it has ended. So nothing has to be closed, and a
// span that never ends costs nothing. Names and ids are those of OpenTelemetry and of W3C Trace
// Context. The package knows no protocol: tracing/otlp sends the spans to a collector.
package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"time"
)

// TraceID names a trace. All its spans have it. Zero is no trace.
type TraceID [16]byte

// String returns the id as 32 lower-case hexadecimal digits.
func (id TraceID) String() string { return hex.EncodeToString(id[:]) }

// SpanID names a span within its trace. Zero is no span.
type SpanID [8]byte

// String returns the id as 16 lower-case hexadecimal digits.
func (id SpanID) String() string { return hex.EncodeToString(id[:]) }

// Context names a span of a traced message. The zero Context says that the message is not traced.
type Context struct {
	Trace TraceID
	Span  SpanID
}

// Valid reports whether c names a span.
func (c Context) Valid() bool { return c.Trace != TraceID{} && c.Span != SpanID{} }

// Child returns a new span of the same trace.
func (c Context) Child() Context { return Context{Trace: c.Trace, Span: newSpanID()} }

// size is the length of the binary form of a Context, in bytes.
const size = len(TraceID{}) + len(SpanID{})

// Append appends the binary form of c to b: the trace id, then the span id.
func (c Context) Append(b []byte) []byte { return append(append(b, c.Trace[:]...), c.Span[:]...) }

// FromBinary returns the Context whose binary form is text. Any other text is no trace.
func FromBinary(text string) (c Context) {
	if len(text) == size {
		copy(c.Trace[:], text)
		copy(c.Span[:], text[len(c.Trace):])
	}
	return c
}

func newTraceID() (id TraceID) {
	for id == (TraceID{}) {
		binary.BigEndian.PutUint64(id[:8], rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id SpanID) {
	for id == (SpanID{}) {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// Kind says which part a span has in its trace. The values are those of OTLP.
type Kind uint8

// The kinds of spans.
const (
	Internal Kind = 1 // work of one node
	Server   Kind = 2 // the request of a caller
	Producer Kind = 4 // a message goes to its recipients
	Consumer Kind = 5 // a message comes to a recipient
)

// Span is a finished span. It is immutable.
type Span struct {
	Context
	// Parent is the span that caused this one, or zero at the top of a trace.
	Parent SpanID
	// Name is a constant: what was done, such as "append".
	Name       string
	Kind       Kind
	Start, End time.Time
	// Links name spans of other traces that share the work.
	Links      []Context
	Attributes []Attribute
	// Failed is a constant text or a code that says why the work failed, or "".
	Failed string
}

// Attribute is a figure or a short text about a span. It is never content of a message, a token or
// an id that users choose.
type Attribute struct {
	Key string
	// Text is the value, or "" if Number is.
	Text   string
	Number int64
}

// decision is the key of a context's decision.
type decision struct{}

// With returns a context that says under which span a message is traced. The zero Context says that
// it is not traced.
func With(ctx context.Context, c Context) context.Context {
	return context.WithValue(ctx, decision{}, c)
}

// From returns what With said. decided is false if nobody has decided yet.
func From(ctx context.Context) (c Context, decided bool) {
	c, decided = ctx.Value(decision{}).(Context)
	return c, decided
}
