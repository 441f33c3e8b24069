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
	"strings"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/tracing"
)

// Limits of a request. A batch is repeated, so that a restart of the collector within seconds loses
// nothing. Meanwhile the queue of the Tracer takes what comes, and drops what does not fit.
const (
	maxBatch    = 512
	maxWait     = time.Second
	timeout     = 5 * time.Second
	attempts    = 4
	pause       = time.Second
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
		var refused int
		var again bool
		refused, again, err = e.post(sending, body)
		if err == nil {
			e.count(len(batch)-refused, refused, nil)
			return
		}
		if again && attempt < attempts && signal.Pause(ctx, pause<<(attempt-1)) {
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

// post sends a request. refused is how many spans the collector did not want. again says that the
// same request may succeed later.
func (e *Exporter) post(ctx context.Context, body []byte) (refused int, again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	maps.Copy(r.Header, e.cfg.Headers)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "tidemark/"+e.cfg.Version)
	answer, err := e.client.Do(r)
	if err != nil {
		return 0, true, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch answer.StatusCode {
	case http.StatusOK:
		var done collector.ExportTraceServiceResponse
		if err == nil && proto.Unmarshal(read, &done) == nil {
			refused = int(done.GetPartialSuccess().GetRejectedSpans())
		}
		return refused, false, nil
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		again = true
	}
	return 0, again, fmt.Errorf("the collector answered %s", answer.Status)
}
