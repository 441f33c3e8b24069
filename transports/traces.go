package transports

import (
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-im/tidemark/tracing"
)

// sendRoute is the route whose requests are traced.
const sendRoute = BasePath + "/chats/:chat_id/messages"

// requestTrace is the span of a traced request. The zero value has none.
type requestTrace struct {
	tracing.Context
	parent tracing.SpanID
}

// traceKey is the key under which trace stores the span of a request.
const traceKey = "trace"

// trace decides whether a request is traced, and tells the core by its context. A send continues
// the trace of its header traceparent. The caller is known: others could use up all traces of the
// node.
func (t *traffic) trace(c echo.Context) {
	r := c.Request()
	if t.tracer == nil || r.Method != http.MethodPost || c.Path() != sendRoute {
		return
	}
	var span requestTrace
	//rule:trace_to_acknowledgement.continue-the-trace-of-a-caller
	parent, traced := t.tracer.Decide(tracing.ParseParent(r.Header.Get("Traceparent")))
	if traced {
		span = requestTrace{Context: parent.Child(), parent: parent.Span}
		c.Set(traceKey, span)
	}
	c.SetRequest(r.WithContext(tracing.With(r.Context(), span.Context)))
}

// end records the span of a request. route and method have small sets of values.
func (t *traffic) end(span requestTrace, began time.Time, route, method string, status int) {
	if !span.Valid() {
		return
	}
	failed := ""
	if status >= http.StatusInternalServerError {
		failed = strconv.Itoa(status)
	}
	t.tracer.Record(tracing.Span{
		Context: span.Context, Parent: span.parent, Name: method + " " + route,
		Kind: tracing.Server, Start: began, End: time.Now(), Failed: failed,
		Attributes: []tracing.Attribute{
			{Key: "http.request.method", Text: method},
			{Key: "http.route", Text: route},
			{Key: "http.response.status_code", Number: int64(status)},
		},
	})
}

// observe records how long a request took, with its trace as an exemplar.
func (span requestTrace) observe(seconds prometheus.Observer, took time.Duration) {
	if with, ok := seconds.(prometheus.ExemplarObserver); ok && span.Valid() {
		with.ObserveWithExemplar(took.Seconds(),
			prometheus.Labels{"trace_id": span.Trace.String()})
		return
	}
	seconds.Observe(took.Seconds())
}
