package otlp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-im/tidemark/tracing"
	"github.com/tidemark-im/tidemark/tracing/otlp"
)

// answers is a collector that gives one answer after the other, and then takes everything.
type answers struct {
	next []http.Response
	// at has the times of the requests.
	at []time.Time
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.at = append(a.at, time.Now())
	answer := http.Response{StatusCode: http.StatusOK}
	if len(a.next) > 0 {
		answer, a.next = a.next[0], a.next[1:]
	}
	answer.Request = r
	if answer.Body == nil {
		answer.Body = http.NoBody
	}
	return &answer, nil
}

// send sends n spans to a collector, and returns when the answers are there.
func send(t *testing.T, n int, to *answers) *tracing.Tracer {
	t.Helper()
	tracer := tracing.New(1)
	exporter := otlp.NewVia(otlp.Config{
		Endpoint: "http://collector", Tracer: tracer, Logger: slog.New(slog.DiscardHandler),
	}, to)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { exporter.Run(ctx) })
	record(tracer, n)
	time.Sleep(2 * time.Minute)
	cancel()
	running.Wait()
	return tracer
}

// TestRun_trace_bounded_pauses: a pause is as long as the collector asks, at least the exporter's
// own one, and at most ten seconds.
func TestRun_trace_bounded_pauses(t *testing.T) {
	busy := func(after string) http.Response {
		return http.Response{
			StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {after}},
		}
	}
	for _, tc := range []struct {
		after []string
		want  []time.Duration
	}{
		{[]string{"", "", ""}, []time.Duration{1, 2, 4}},
		{[]string{"3", "5", "7"}, []time.Duration{3, 5, 7}},
		{[]string{"0", "1", "3"}, []time.Duration{1, 2, 4}},
		{[]string{"-1", "soon", "Wed, 21 Oct 2099 07:28:00 GMT"}, []time.Duration{1, 2, 4}},
		{[]string{"11", "86400", "9223372036854775807"}, []time.Duration{10, 10, 10}},
	} {
		synctest.Test(t, func(t *testing.T) {
			to := new(answers)
			for _, after := range tc.after {
				to.next = append(to.next, busy(after))
			}
			tracer := send(t, 3, to)
			var got []time.Duration
			for i := range to.at[1:] {
				got = append(got, to.at[i+1].Sub(to.at[i])/time.Second)
			}
			if !slices.Equal(got, tc.want) || tracer.Count.Sent.Load() != 3 {
				t.Errorf("%q: the pauses are %d s and %d spans are sent, want %d s and 3",
					tc.after, got, tracer.Count.Sent.Load(), tc.want)
			}
		})
	}
}

// TestRun_counts_what_the_collector_took: any success counts, and no answer makes a counter fall.
func TestRun_counts_what_the_collector_took(t *testing.T) {
	partial := func(rejected int64) io.ReadCloser {
		body, err := proto.Marshal(&collector.ExportTraceServiceResponse{
			PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: rejected},
		})
		if err != nil {
			t.Fatal(err)
		}
		return io.NopCloser(bytes.NewReader(body))
	}
	for _, tc := range []struct {
		name         string
		answer       http.Response
		sent, failed int64
	}{
		{"all", http.Response{StatusCode: 200}, 3, 0},
		{"accepted", http.Response{StatusCode: 202}, 3, 0},
		{"no content", http.Response{StatusCode: 204}, 3, 0},
		{"not all", http.Response{StatusCode: 200, Body: partial(1)}, 2, 1},
		{"not all of what is accepted", http.Response{StatusCode: 202, Body: partial(1)}, 2, 1},
		{"more than there were", http.Response{StatusCode: 200, Body: partial(99)}, 0, 3},
		{"fewer than none", http.Response{StatusCode: 200, Body: partial(-99)}, 3, 0},
		{"a redirect", http.Response{StatusCode: 302}, 0, 3},
		{"an error", http.Response{StatusCode: 400}, 0, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			count := &send(t, 3, &answers{next: []http.Response{tc.answer}}).Count
			if count.Sent.Load() != tc.sent || count.Failed.Load() != tc.failed {
				t.Errorf("%s: %d are sent and %d failed, want %d and %d", tc.name,
					count.Sent.Load(), count.Failed.Load(), tc.sent, tc.failed)
			}
		})
	}
}
