// Package otlp sends spans to an OpenTelemetry collector, by OTLP over HTTP with Protocol Buffers
// (OTLP 1.x, https://opentelemetry.io/docs/specs/otlp/).
package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/tracing"
)

// Limits of a request. A batch is repeated, so that a short restart of the collector loses nothing
// at usual rates: the pauses of a batch add up to 7 s. Meanwhile the queue of the Tracer takes what
// comes, and drops what does not fit.
const (
	maxBatch = 512
	maxWait  = time.Second
	timeout  = 5 * time.Second
	attempts = 4
	// pause is the first pause, and each is twice as long as the one before. maxPause is the
	// longest that a collector may ask for.
	pause       = time.Second
	maxPause    = 10 * time.Second
	maxAnswer   = 64 << 10
	flushWithin = 2 * time.Second
)

// path is where a collector takes spans, below its endpoint.
const path = "/v1/traces"

const contentType = "application/x-protobuf"

// Config configures an Exporter. All fields but Headers are required.
type Config struct {
	// Endpoint is the base URL of the collector, such as http://127.0.0.1:4318.
	Endpoint string
	// Headers are sent with each request, such as credentials. They are never logged.
	Headers http.Header
	Tracer  *tracing.Tracer
	// Version and Node say which program sends the spans.
	Version, Node string
	Logger        *slog.Logger
}

// Exporter sends the spans of a Tracer. Call New, and run Run.
type Exporter struct {
	cfg    Config
	url    string
	client *http.Client
	// down says that the last batch was not taken, and that this was logged.
	down bool
}

// New returns an Exporter. It starts nothing.
func New(cfg Config) *Exporter {
	url := strings.TrimSuffix(cfg.Endpoint, "/")
	if !strings.HasSuffix(url, path) {
		url += path
	}
	return &Exporter{cfg: cfg, url: url, client: &http.Client{
		Timeout: timeout,
		// A redirect would take the headers, and with them the credentials, to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
}

// Run sends spans until ctx ends. Then it sends what is queued, within flushWithin.
func (e *Exporter) Run(ctx context.Context) {
	defer e.client.CloseIdleConnections()
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(flushWithin, cancel) })()
	for ctx.Err() == nil {
		e.deliver(ctx, sending, e.collect(ctx))
	}
	for batch := e.queued(nil); len(batch) > 0; batch = e.queued(nil) {
		e.deliver(ctx, sending, batch)
	}
}

// collect waits for a span, and returns it with those of the next maxWait. It returns what it has
// when ctx ends.
func (e *Exporter) collect(ctx context.Context) []tracing.Span {
	var batch []tracing.Span
	select {
	case first := <-e.cfg.Tracer.Spans():
		batch = append(batch, first)
	case <-ctx.Done():
		return nil
	}
	wait := time.NewTimer(maxWait)
	defer wait.Stop()
	for len(batch) < maxBatch {
		select {
		case next := <-e.cfg.Tracer.Spans():
			batch = append(batch, next)
		case <-wait.C:
			return batch
		case <-ctx.Done():
			return e.queued(batch)
		}
	}
	return batch
}

// queued appends spans that are queued already to a batch, until it is full.
func (e *Exporter) queued(batch []tracing.Span) []tracing.Span {
	for len(batch) < maxBatch {
		select {
		case next := <-e.cfg.Tracer.Spans():
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// deliver sends a batch, and repeats it if the collector is away. When ctx ends it no longer
// repeats. The context of the requests is sending.
func (e *Exporter) deliver(ctx, sending context.Context, batch []tracing.Span) {
	if len(batch) == 0 {
		return
	}
	body, err := proto.Marshal(e.request(batch))
	for attempt := 1; err == nil; attempt++ {
		var got answer
		if got, err = e.post(sending, body); err == nil {
			// Counters never fall, whatever the collector says.
			refused := int(max(0, min(got.refused, int64(len(batch)))))
			e.count(len(batch)-refused, refused, nil)
			return
		}
		wait := max(pause<<(attempt-1), got.after)
		if got.again && attempt < attempts && signal.Pause(ctx, wait) {
			err = nil
		}
	}
	e.count(0, len(batch), err)
}

// count counts the spans of a batch. It logs when the collector goes away, and when it is back.
func (e *Exporter) count(sent, failed int, err error) {
	e.cfg.Tracer.Count.Sent.Add(int64(sent))
	e.cfg.Tracer.Count.Failed.Add(int64(failed))
	switch {
	case err != nil && !e.down:
		e.cfg.Logger.Warn("the collector takes no spans, so traces have gaps; messages do not "+
			"wait for it", "error", err)
	case err == nil && e.down:
		e.cfg.Logger.Info("the collector takes spans again")
	}
	e.down = err != nil
}

// answer is what a collector says to a request.
type answer struct {
	// refused is how many spans of a request that succeeded the collector says it did not want.
	refused int64
	// again says that the same request may succeed later, and after how long to wait at least.
	again bool
	after time.Duration
}

// post sends a request. It returns an error if the collector did not take it.
func (e *Exporter) post(ctx context.Context, body []byte) (got answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	maps.Copy(r.Header, e.cfg.Headers)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "tidemark/"+e.cfg.Version)
	response, err := e.client.Do(r)
	if err != nil {
		return answer{again: true}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if status := response.StatusCode; status >= 200 && status < 300 {
		var done collector.ExportTraceServiceResponse
		if err == nil && proto.Unmarshal(read, &done) == nil {
			got.refused = done.GetPartialSuccess().GetRejectedSpans()
		}
		return got, nil
	}
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		got.again, got.after = true, retryAfter(response.Header)
	}
	return got, fmt.Errorf("the collector answered %s", response.Status)
}

// retryAfter returns how long an answer asks to wait (RFC 9110 §10.2.3), at most maxPause. It is 0
// without a number of seconds. Dates do not count, because clocks differ.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil {
		return 0
	}
	//rule:trace_bounded.collector-asks-for-a-long-pause
	seconds = min(seconds, int(maxPause/time.Second))
	return time.Duration(seconds) * time.Second
}
