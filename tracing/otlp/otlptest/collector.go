// Package otlptest has an OpenTelemetry collector for tests. It takes spans by OTLP over HTTP, as
// others do, and keeps them.
package otlptest

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-im/tidemark/test/wait"
)

// Span is a span as it came. Ids are hexadecimal, and Parent is "" at the top of a trace.
type Span struct {
	Trace, ID, Parent, Name string
	// Node is the service.instance.id of the process that sent it.
	Node       string
	Kind       trace.Span_SpanKind
	Start, End time.Time
	// Links has the ids of linked spans, and Attributes the attributes as texts.
	Links      []string
	Attributes map[string]string
	// Failed is the message of a span whose status is an error.
	Failed string
}

// Collector keeps what is sent to it. It is safe for concurrent use.
type Collector struct {
	// URL is the endpoint.
	URL string

	mu     sync.Mutex
	spans  []Span
	bodies bytes.Buffer
	// answers has the statuses with which the next requests are refused.
	answers []int
	heads   []http.Header
}

// Start returns a collector that listens until the test ends.
func Start(t *testing.T) *Collector {
	t.Helper()
	c := new(Collector)
	server := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Refuse answers the next requests with these statuses.
func (c *Collector) Refuse(statuses ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, statuses...)
}

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads = append(c.heads, r.Header.Clone())
	var request collector.ExportTraceServiceRequest
	switch {
	case len(c.answers) > 0:
		w.WriteHeader(c.answers[0])
		c.answers = c.answers[1:]
	case err != nil, r.Method != http.MethodPost, r.URL.Path != "/v1/traces",
		r.Header.Get("Content-Type") != "application/x-protobuf",
		proto.Unmarshal(body, &request) != nil:
		w.WriteHeader(http.StatusBadRequest)
	default:
		c.bodies.Write(body)
		c.take(&request)
		answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}
}

func (c *Collector) take(request *collector.ExportTraceServiceRequest) {
	for _, from := range request.GetResourceSpans() {
		node := texts(from.GetResource().GetAttributes())["service.instance.id"]
		for _, scope := range from.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := Span{
					Trace: hex.EncodeToString(s.GetTraceId()),
					ID:    hex.EncodeToString(s.GetSpanId()),
					Name:  s.GetName(), Node: node, Kind: s.GetKind(),
					Parent:     hex.EncodeToString(s.GetParentSpanId()),
					Start:      time.Unix(0, int64(s.GetStartTimeUnixNano())),
					End:        time.Unix(0, int64(s.GetEndTimeUnixNano())),
					Attributes: texts(s.GetAttributes()), Failed: s.GetStatus().GetMessage(),
				}
				for _, link := range s.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(link.GetSpanId()))
				}
				c.spans = append(c.spans, span)
			}
		}
	}
}

func texts(attributes []*common.KeyValue) map[string]string {
	found := make(map[string]string)
	for _, a := range attributes {
		if found[a.GetKey()] = a.GetValue().GetStringValue(); found[a.GetKey()] == "" {
			found[a.GetKey()] = fmt.Sprint(a.GetValue().GetIntValue())
		}
	}
	return found
}

// Bodies returns the bytes of all requests that were taken.
func (c *Collector) Bodies() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bodies.String()
}

// Heads returns the headers of all requests.
func (c *Collector) Heads() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.heads)
}

// Spans returns what came.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// Await waits until enough says that all spans have come, and returns them.
func (c *Collector) Await(t *testing.T, enough func([]Span) bool) []Span {
	t.Helper()
	late := time.After(wait.Hang)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		spans := c.Spans()
		if enough(spans) {
			return spans
		}
		select {
		case <-late:
			t.Fatalf("these spans came, and no more: %+v", spans)
		case <-tick.C:
		}
	}
}
