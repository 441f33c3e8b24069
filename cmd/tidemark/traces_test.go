package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/tracing/otlp/otlptest"
)

// callerTrace and callerSpan are those of a caller that records its own spans.
const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	traceparent = "00-" + callerTrace + "-" + callerSpan + "-01"
)

const sendSpan = "POST /api/v1/chats/:chat_id/messages"

// tree returns the spans of a trace, one a line below its parent, with what failed. Spans of one
// parent are ordered by name and node.
func tree(spans []otlptest.Span, trace, parent, indent string) (lines []string) {
	slices.SortStableFunc(spans, func(a, b otlptest.Span) int {
		return strings.Compare(a.Name+a.Node, b.Name+b.Node)
	})
	for _, s := range spans {
		if s.Trace == trace && s.Parent == parent {
			lines = append(lines, strings.TrimSpace(indent+s.Name+" @"+s.Node+" "+s.Failed))
			for _, below := range tree(spans, trace, s.ID, "") {
				lines = append(lines, "  "+below)
			}
		}
	}
	return lines
}

// named returns a test of whether n spans of a name have come.
func named(name string, n int) func([]otlptest.Span) bool {
	return func(spans []otlptest.Span) bool {
		for _, s := range spans {
			if s.Name == name {
				n--
			}
		}
		return n <= 0
	}
}

// sendTraced sends a message as Ann, as a part of the caller's trace.
func sendTraced(t *testing.T, url, key, content string) {
	t.Helper()
	must(t, http.StatusCreated, "dev:ann", "POST", url+"/api/v1/chats/team/messages",
		`{"client_message_id":"`+key+`","content":"`+content+`"}`, "Traceparent", traceparent)
}

const ackOne = `{"type":"ack","payload":{"chat_id":"team","last_acked_sequence":1}}`

// TestTrace_from_a_send_to_the_acknowledgement sends by REST, and acknowledges on a WebSocket.
func TestTrace_from_a_send_to_the_acknowledgement(t *testing.T) {
	cleanEnvironment(t)
	collector := otlptest.Start(t)
	t.Setenv(traceHeadersVariable, "X-Key=a%20secret")
	url := startServer(t, "--dev", "--store", "sqlite:"+filepath.Join(t.TempDir(), "a.db"),
		"--node", "n1", "--trace-endpoint", collector.URL, "--trace-sample", "0")
	createTeam(t, url)
	bob := dial(t, url, "dev:bob", "")
	read(t, bob, `"caught_up"`)
	sendTraced(t, url, "k1", "canary-content")
	read(t, bob, "canary-content")
	say(t, bob, ackOne)
	// Of these, the first has no valid credentials, and nobody samples the others.
	must(t, http.StatusUnauthorized, "nobody", "POST", url+"/api/v1/chats/team/messages",
		`{"client_message_id":"k1","content":"a"}`, "Traceparent", traceparent)
	must(t, http.StatusCreated, "dev:ann", "POST", url+"/api/v1/chats/team/messages",
		`{"client_message_id":"k2","content":"b"}`)
	must(t, http.StatusCreated, "dev:ann", "POST", url+"/api/v1/chats/team/messages",
		`{"client_message_id":"k3","content":"c"}`, "Traceparent", traceparent[:53]+"00")
	spans := collector.Await(t, named("acknowledge", 1))
	want := wantTree(t, spans, "n1")
	if len(spans) != want {
		t.Errorf("%d spans, want %d", len(spans), want)
	}
	for _, s := range spans {
		if s.End.Before(s.Start) {
			t.Errorf("%s ends before it starts", s.Name)
		}
	}
	if got := collector.Heads()[0].Get("X-Key"); got != "a secret" {
		t.Errorf("the collector got the header %q", got)
	}
	checkExamples(t, url)
	poll(t, func() error { // they are counted after the collector's answer
		values, _, _ := series(t, url+"/metrics")
		if got := values[`tidemark_trace_spans_total{outcome="sent"}`]; got != float64(want) {
			return fmt.Errorf("%v spans are counted, want %d", got, want)
		}
		return nil
	})
}

// checkExamples checks that latencies name the trace, for those who ask for OpenMetrics.
func checkExamples(t *testing.T, url string) {
	t.Helper()
	text := must(t, http.StatusOK, "", http.MethodGet, url+"/metrics", "",
		"Accept", "application/openmetrics-text;version=1.0.0")
	for _, name := range []string{
		`tidemark_http_seconds_bucket{method="POST",route="/api/v1/chats/:chat_id/messages"`,
		`tidemark_storage_seconds_bucket{operation="append"`,
	} {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(line, name) &&
				strings.Contains(line, `# {trace_id="`+callerTrace+`"}`)
		}
		if !found {
			t.Errorf("no bucket of %s names the trace", name)
		}
	}
}

// TestTrace_over_two_nodes sends on one node, and reads on another.
func TestTrace_over_two_nodes(t *testing.T) {
	collector := otlptest.Start(t)
	urls, _ := startNodes(t, redis.Database(t), 2, "--trace-endpoint", collector.URL,
		"--trace-sample", "0")
	createTeam(t, urls[0])
	bob := dial(t, urls[1], "dev:bob", "")
	read(t, bob, `"caught_up"`)
	sendTraced(t, urls[0], "k1", "hello")
	read(t, bob, "hello")
	say(t, bob, ackOne)
	spans := collector.Await(t, named("acknowledge", 1))
	wantTree(t, spans, "n2")
}

// wantTree checks the trace of a message that was sent on n1, and received on a node. It returns
// how many spans the trace has.
func wantTree(t *testing.T, spans []otlptest.Span, node string) int {
	t.Helper()
	want := []string{
		sendSpan + " @n1",
		"  send @n1",
		"    append @n1",
		"      commit @n1",
		"    publish @n1",
		"      deliver @" + node,
		"        acknowledge @" + node,
	}
	if diff := cmp.Diff(want, tree(spans, callerTrace, callerSpan, "")); diff != "" {
		t.Errorf("the trace (-want +got):\n%s", diff)
	}
	return len(want)
}

// TestTrace_says_nothing_of_users drives every transport with everything traced, and looks for what
// users wrote and are called.
func TestTrace_says_nothing_of_users(t *testing.T) {
	cleanEnvironment(t)
	collector := otlptest.Start(t)
	url := startServer(t, "--dev", "--store", "sqlite:"+filepath.Join(t.TempDir(), "a.db"),
		"--node", "n1", "--trace-endpoint", collector.URL, "--trace-sample", "1")
	createTeam(t, url)
	bob := dial(t, url, "dev:bob", "?device=canaryphone")
	read(t, bob, `"caught_up"`)
	const n = 5
	for i := range n {
		say(t, bob, fmt.Sprintf(`{"type":"send_message","request_id":"canaryrequest%d",`+
			`"payload":{"chat_id":"team","client_message_id":"canarykey%d",`+
			`"content":"canarycontent","metadata":{"canarydata":1}}}`, i, i))
	}
	read(t, bob, fmt.Sprint("canaryrequest", n-1))
	sendTraced(t, url, "canarykey", "canarycontent")
	spans := collector.Await(t, named("send", n+1))
	roots := 0
	for _, s := range spans {
		if s.Name == "send" && s.Parent == "" {
			roots++
		}
	}
	if roots != n {
		t.Errorf("%d traces begin with a frame, want %d", roots, n)
	}
	for _, secret := range []string{"canary", "ann", "bob", "team", "dev:"} {
		if strings.Contains(collector.Bodies(), secret) {
			t.Errorf("spans have %q", secret)
		}
	}
}

// TestTrace_flags_are_checked has settings that are refused, and what must not be in the message.
func TestTrace_flags_are_checked(t *testing.T) {
	for _, tc := range []struct {
		flags   traceFlags
		headers string
		want    string
	}{
		{traceFlags{Endpoint: "http://127.0.0.1:4318", Sample: 0.5}, "a=b,c=d%2Ce", ""},
		{traceFlags{Sample: 1.5}, "", "--trace-sample is 1.5"},
		{traceFlags{Sample: -1}, "", "--trace-sample is -1"},
		{traceFlags{Endpoint: "127.0.0.1:4318"}, "", "--trace-endpoint is not the URL"},
		{traceFlags{Endpoint: "http://u:secret@h"}, "", "--trace-endpoint is not the URL"},
		{traceFlags{Endpoint: "http://h?secret=1"}, "", "--trace-endpoint is not the URL"},
		{traceFlags{Endpoint: "http://h:4318"}, "", ""},
		{traceFlags{Endpoint: "https://h:4318"}, "a=b", ""},
		{traceFlags{Endpoint: "http://localhost:4318"}, "a=b", ""},
		{traceFlags{Endpoint: "http://[::1]:4318"}, "a=b", ""},
		{traceFlags{Endpoint: "http://h:4318"}, "a=secret",
			traceHeadersVariable + " would be sent in clear text"},
		{traceFlags{Endpoint: "http://127.0.0.1.h:4318"}, "a=secret",
			traceHeadersVariable + " would be sent in clear text"},
		{traceFlags{}, "secret", traceHeadersVariable + " must be NAME=VALUE"},
		{traceFlags{}, "a=%0Asecret", traceHeadersVariable + " must be NAME=VALUE"},
	} {
		t.Setenv(traceHeadersVariable, tc.headers)
		set, err := tc.flags.config()
		if got := fmt.Sprint(err); tc.want != "" && !strings.HasPrefix(got, tc.want) ||
			strings.Contains(got, "secret") || tc.want == "" && err != nil {
			t.Errorf("%+v %q: %v, want %q", tc.flags, tc.headers, err, tc.want)
		}
		if tc.headers == "a=b,c=d%2Ce" && set.headers.Get("c") != "d,e" {
			t.Errorf("the headers are %v", set.headers)
		}
	}
}
