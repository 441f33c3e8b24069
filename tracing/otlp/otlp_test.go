package otlp_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/tracing"
	"github.com/tidemark-im/tidemark/tracing/otlp"
	"github.com/tidemark-im/tidemark/tracing/otlp/otlptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs an exporter until stop is called, or the test ends.
func run(t *testing.T, cfg otlp.Config) (stop func()) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { otlp.New(cfg).Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func record(tracer *tracing.Tracer, n int) {
	parent, _ := tracer.Decide(tracing.Context{}, false)
	for range n {
		tracer.Record(tracing.Span{
			Context: parent.Child(), Name: "x", Kind: tracing.Internal,
			Start: time.Now(), End: time.Now(),
		})
	}
}

func atLeast(n int) func([]otlptest.Span) bool {
	return func(spans []otlptest.Span) bool { return len(spans) >= n }
}

// TestRun_stop_sends_what_is_queued: an orderly stop loses no span.
func TestRun_stop_sends_what_is_queued(t *testing.T) {
	collector, tracer := otlptest.Start(t), tracing.New(1)
	stop := run(t, otlp.Config{Endpoint: collector.URL, Tracer: tracer})
	record(tracer, 1300)
	stop()
	if got := len(collector.Spans()); got != 1300 || tracer.Count.Sent.Load() != 1300 {
		t.Errorf("%d spans came, and %d are counted, want 1300", got, tracer.Count.Sent.Load())
	}
}

// TestRun_repeats_what_a_busy_collector_refuses: 503 is repeated, and 400 is not.
func TestRun_repeats_what_a_busy_collector_refuses(t *testing.T) {
	collector, tracer := otlptest.Start(t), tracing.New(1)
	var log bytes.Buffer
	stop := run(t, otlp.Config{
		Endpoint: collector.URL + "/", Tracer: tracer,
		Headers: http.Header{"Authorization": {"secret"}},
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})
	collector.Refuse(http.StatusServiceUnavailable)
	record(tracer, 1)
	collector.Await(t, atLeast(1))
	collector.Refuse(http.StatusBadRequest)
	record(tracer, 2)
	stop()
	record(tracer, 3) // nobody takes them
	if got := tracer.Counters(); got["trace_spans_total{sent}"] != 1 ||
		got["trace_spans_total{failed}"] != 2 {
		t.Errorf("the counters are %v", got)
	}
	if !strings.Contains(log.String(), "takes no spans") || strings.Contains(log.String(),
		"secret") {
		t.Errorf("the log is %s", log.String())
	}
	for _, head := range collector.Heads() {
		if head.Get("Authorization") != "secret" {
			t.Error("a request has no credentials")
		}
	}
}

// TestRun_trace_bounded_collector_away: nobody waits for a collector that does not answer, and a
// stop does not either.
func TestRun_trace_bounded_collector_away(t *testing.T) {
	hang := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		<-hang
	}))
	defer silent.Close()
	defer close(hang)
	tracer := tracing.New(1)
	stop := run(t, otlp.Config{Endpoint: silent.URL, Tracer: tracer})
	began := time.Now()
	record(tracer, 3*tracing.MaxQueued)
	if took := time.Since(began); took > time.Second {
		t.Errorf("recording took %v", took)
	}
	if tracer.Count.Dropped.Load() == 0 {
		t.Error("no span was dropped")
	}
	stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %v", took)
	}
}

// TestRun_follows_no_redirect: the credentials stay with the collector.
func TestRun_follows_no_redirect(t *testing.T) {
	elsewhere, tracer := otlptest.Start(t), tracing.New(1)
	redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/v1/traces",
		http.StatusTemporaryRedirect))
	defer redirects.Close()
	stop := run(t, otlp.Config{Endpoint: redirects.URL, Tracer: tracer})
	record(tracer, 1)
	stop()
	if len(elsewhere.Heads()) != 0 || tracer.Count.Failed.Load() != 1 {
		t.Error("the spans went to another place")
	}
}

// TestRun_without_spans_does_nothing: it waits without a timer.
func TestRun_without_spans_does_nothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := run(t, otlp.Config{Endpoint: "http://127.0.0.1:1", Tracer: tracing.New(1)})
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took != 0 {
			t.Errorf("the stop took %v", took)
		}
	})
}
