package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"gopkg.in/yaml.v3"

	"github.com/tidemark-im/tidemark/test/wait"
)

// call makes a request with a token, and returns the status, the header and the body.
// If user is "", it sends no token.
func call(
	t *testing.T, user, method, url, body string, header ...string,
) (int, http.Header, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if user != "" {
		request.Header.Set("Authorization", "Bearer "+user)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, string(answer)
}

// must is call that fails the test unless the status is want. It returns the body.
func must(t *testing.T, want int, user, method, url, body string, header ...string) string {
	t.Helper()
	got, _, answer := call(t, user, method, url, body, header...)
	if got != want {
		t.Fatalf("%s %s: %d, want %d: %s", method, url, got, want, answer)
	}
	return answer
}

// dial opens a WebSocket.
func dial(t *testing.T, url, user, query string) *websocket.Conn {
	t.Helper()
	o := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if user != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+user)
	}
	ws, _, err := websocket.Dial(t.Context(),
		"ws"+strings.TrimPrefix(url, "http")+"/api/v1/ws"+query, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// read reads frames until one contains a text, and returns this frame.
func read(t *testing.T, ws *websocket.Conn, want string) string {
	t.Helper()
	for {
		_, frame, err := ws.Read(t.Context())
		if err != nil {
			t.Fatalf("waiting for %s: %v", want, err)
		}
		if strings.Contains(string(frame), want) {
			return string(frame)
		}
	}
}

func say(t *testing.T, ws *websocket.Conn, frames ...string) {
	t.Helper()
	for _, frame := range frames {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
}

// stream opens an event stream and reads until it contains a text.
// The stream stays open until the test ends.
func stream(t *testing.T, user, url, want string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		request.Header.Set("Authorization", "Bearer "+user)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		response.Body.Close()
	})
	var got []byte
	for b := make([]byte, 4096); !strings.Contains(string(got), want); {
		n, err := response.Body.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			t.Fatalf("waiting for %s: %v after %s", want, err, got)
		}
	}
}

// leaveWaiting starts a request that waits for its answer until the test ends.
func leaveWaiting(t *testing.T, user, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+user)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if response, err := http.DefaultTransport.RoundTrip(request); err == nil {
			response.Body.Close()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// series returns the metrics of a URL: the values by name and labels, and the types by name.
func series(
	t *testing.T, url string,
) (values map[string]float64, types map[string]string, text string) {
	t.Helper()
	text = must(t, http.StatusOK, "", http.MethodGet, url, "")
	values, types = make(map[string]float64), make(map[string]string)
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if fields := strings.Fields(line); strings.HasPrefix(line, "# TYPE tidemark_") {
			types[fields[2]] = fields[3]
		}
		at := strings.LastIndexByte(line, ' ')
		if line == "" || line[0] == '#' || at < 0 {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		values[line[:at]] = v
	}
	return values, types, text
}

// debugging matches the line of the log that has the URL of --debug-listen.
var debugging = regexp.MustCompile(
	`msg="serving profiles and metrics" url=(http://127\.0\.0\.1:\d+)`)

// traffic does everything that a metric counts, over every transport.
// It returns the least value that each series must have then.
func traffic(t *testing.T, url string) map[string]float64 {
	t.Helper()
	api := url + "/api/v1"
	must(t, 201, "dev:ann", "POST", api+"/chats",
		`{"type":"group","chat_id":"team","member_ids":["bob","cid"]}`)
	message := `{"client_message_id":"m1","content":"hello"}`
	must(t, 201, "dev:ann", "POST", api+"/chats/team/messages", message)
	must(t, 200, "dev:ann", "POST", api+"/chats/team/messages", message)
	must(t, 201, "dev:bob", "POST", api+"/tickets", "")
	must(t, 404, "dev:ann", "GET", api+"/chats/unknown", "")
	must(t, 404, "dev:ann", "GET", url+"/never/heard/of/"+strings.Repeat("x", 40), "")
	must(t, 409, "dev:ann", "POST", api+"/chats",
		`{"type":"group","chat_id":"team","member_ids":["eve"]}`)
	must(t, 405, "dev:ann", "BREW", api+"/chats", "")

	bob := dial(t, url, "dev:bob", "?device=phone")
	var open struct {
		Payload struct {
			SessionID string `json:"session_id"`
		}
	}
	if err := json.Unmarshal([]byte(read(t, bob, `"session"`)), &open); err != nil {
		t.Fatal(err)
	}
	read(t, bob, `"hello"`)
	say(t, bob,
		`{"type":"ack","payload":{"chat_id":"team","last_acked_sequence":1}}`,
		`{"type":"ack","payload":{"chat_id":"team","last_acked_sequence":99}}`,
		`{"type":"ack","payload":{"chat_id":"elsewhere","last_acked_sequence":1}}`,
		`{"type":"ack","payload":{"chat_id":"team","acked":1}}`,
		`{"type":"ack","payload":{"chat_id":"team","last_acked_sequence":"x"}}`,
		`{"type":"typing","payload":{"chat_id":"team"}}`,
		`{"type":"no such thing","request_id":"r1"}`)
	read(t, bob, `"r1"`)
	stream(t, "dev:cid", api+"/events", `"hello"`)
	stream(t, "dev:fay", api+"/events", "caught_up")
	must(t, 204, "dev:fay", "DELETE", api+"/sessions", "")
	var page struct {
		Session string `json:"session_id"`
		Events  []struct{ ID int }
	}
	answer := must(t, 200, "dev:ann", "GET", api+"/poll?wait_seconds=0&device=laptop", "")
	if err := json.Unmarshal([]byte(answer), &page); err != nil {
		t.Fatal(err)
	}
	last := page.Events[len(page.Events)-1].ID
	leaveWaiting(t, "dev:ann",
		fmt.Sprintf("%s/poll?wait_seconds=50&session_id=%s&after_event_id=%d",
			api, page.Session, last))
	say(t, bob, `{"type":"send_message","request_id":"r2",`+
		`"payload":{"chat_id":"team","client_message_id":"m2","content":"hi"}}`)
	read(t, bob, `"r2"`)
	second := dial(t, url, "dev:bob", "?session_id="+open.Payload.SessionID+"&after_event_id=1")
	read(t, second, `"session"`)
	read(t, dial(t, url, "dev:eve", "?session_id=nobody&after_event_id=1"), `"reset"`)
	leaver := dial(t, url, "dev:dan", "")
	read(t, leaver, `"session"`)
	_ = leaver.Close(websocket.StatusNormalClosure, "")
	const messages = "/api/v1/chats/:chat_id/messages"
	return map[string]float64{
		`tidemark_build_info{version="dev"}`:                                                1,
		"tidemark_sends_total":                                                              3,
		"tidemark_sends_duplicate_total":                                                    1,
		"tidemark_deliveries_total":                                                         4,
		"tidemark_notifications_total":                                                      2,
		"tidemark_acks_total":                                                               2,
		`tidemark_acks_refused_total{reason="malformed"}`:                                   0,
		`tidemark_acks_refused_total{reason="beyond_head"}`:                                 0,
		`tidemark_acks_refused_total{reason="not_a_member"}`:                                1,
		"tidemark_advances_moved_total":                                                     1,
		"tidemark_status_updates_total":                                                     1,
		"tidemark_typing_total":                                                             1,
		"tidemark_pending_rows_written_total":                                               2,
		"tidemark_clears_total":                                                             1,
		"tidemark_opens_total":                                                              6,
		"tidemark_resumes_total":                                                            1,
		"tidemark_resets_total":                                                             1,
		"tidemark_replaced_total":                                                           1,
		"tidemark_sessions":                                                                 4,
		"tidemark_tickets":                                                                  1,
		`tidemark_connections{transport="websocket"}`:                                       2,
		`tidemark_connections{transport="sse"}`:                                             1,
		`tidemark_connections{transport="longpoll"}`:                                        0,
		`tidemark_sse_errors_total{code="REPLACED"}`:                                        1,
		`tidemark_websocket_closes_total{code="1000"}`:                                      1,
		`tidemark_websocket_closes_total{code="4409"}`:                                      1,
		`tidemark_websocket_errors_total{code="INVALID"}`:                                   3,
		`tidemark_http_errors_total{code="NOT_FOUND"}`:                                      2,
		`tidemark_http_errors_total{code="METHOD_NOT_ALLOWED"}`:                             1,
		`tidemark_http_requests_total{method="GET",route="none",status="404"}`:              1,
		`tidemark_http_requests_total{method="GET",route="/api/v1/ws",status="101"}`:        4,
		`tidemark_http_requests_total{method="GET",route="/api/v1/events",status="200"}`:    2,
		`tidemark_http_requests_total{method="POST",route="` + messages + `",status="201"}`: 1,
		`tidemark_http_seconds_count{method="POST",route="` + messages + `"}`:               2,
		`tidemark_storage_seconds_count{operation="append"}`:                                3,
		`tidemark_storage_errors_total{code="CONFLICT",operation="create_chat"}`:            1,
		"tidemark_commit_seconds_count":                                                     3,
		"tidemark_commit_sends_sum":                                                         2,
		"tidemark_commit_acks_sum":                                                          1,
		"tidemark_catch_ups":                                                                0,
		"tidemark_cache_bytes":                                                              1,
	}
}

// documented returns the names in the tables of docs/observability.md.
func documented(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	return namesIn(string(page))
}

// documentedForSeveral returns the documented names that only a node of a cluster has.
func documentedForSeveral(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Several nodes")
	section, _, _ = strings.Cut(section, "\n## ")
	return namesIn(section)
}

func namesIn(text string) []string {
	var names []string
	rows := regexp.MustCompile("(?m)^\\| `(tidemark_[a-z_]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(text, -1) {
		names = append(names, row[1])
	}
	slices.Sort(names)
	return names
}

// TestMetrics_are_what_is_documented_and_move drives every transport, on SQLite, and checks all of
// /metrics.
func TestMetrics_are_what_is_documented_and_move(t *testing.T) {
	cleanEnvironment(t)
	url, log := startLogged(t, "--dev", "--store",
		"sqlite:"+filepath.Join(t.TempDir(), "a.db"), "--debug-listen", "127.0.0.1:0")
	want := traffic(t, url)
	var types map[string]string
	var text string
	poll(t, func() error {
		values, now, body := series(t, url+"/metrics")
		types, text = now, body
		var missing []string
		for name, least := range want {
			if got, there := values[name]; !there || got < least {
				missing = append(missing,
					fmt.Sprintf("%s is %v, want at least %v", name, got, least))
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("%s", strings.Join(missing, "\n"))
		}
		return nil
	})
	// dynamodb_test.go checks the metrics of DynamoDB, and peers_test.go those of a cluster.
	several := documentedForSeveral(t)
	here := slices.DeleteFunc(documented(t), func(name string) bool {
		return strings.HasPrefix(name, "tidemark_dynamodb_") || slices.Contains(several, name)
	})
	if diff := cmp.Diff(here, slices.Sorted(maps.Keys(types))); diff != "" {
		t.Errorf("-docs/observability.md +/metrics:\n%s", diff)
	}
	for name, kind := range types {
		if (kind == "counter") != strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a %s", name, kind)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, made := range []string{"xxxx", "BREW", "team", "elsewhere", "bob"} {
		if strings.Contains(text, made) {
			t.Errorf("a caller made a label of %q", made)
		}
	}
	debug := debugging.FindStringSubmatch(log.String())
	if debug == nil {
		t.Fatalf("no address for debugging in %s", log.String())
	}
	if _, there, _ := series(t, debug[1]+"/metrics"); !cmp.Equal(there, types) {
		t.Error("the debug port has other metrics")
	}
	t.Run("board and alerts name only these", func(t *testing.T) { checkDeployed(t, text) })
}

// metricName matches the metrics of an expression, but no functions, keywords, labels or strings.
var metricName = regexp.MustCompile(`\b(?:tidemark|go|process|probe|promhttp)_[a-z_]+|\bup\b`)

// checkDeployed checks that the board and the alerts use only metrics that exist.
func checkDeployed(t *testing.T, text string) {
	known := map[string]bool{"up": true, "probe_success": true}
	for _, found := range regexp.MustCompile(`(?m)^[a-z_]+`).FindAllString(text, -1) {
		known[found] = true
	}
	for _, name := range documentedForSeveral(t) {
		known[name] = true // peers_test.go checks that they exist
	}
	var board struct {
		UID    string `json:"uid"`
		Panels []struct {
			ID      int    `json:"id"`
			Type    string `json:"type"`
			Title   string `json:"title"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	raw, err := os.ReadFile("../../deploy/grafana/tidemark.json")
	if err == nil {
		err = json.Unmarshal(raw, &board)
	}
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	ids, expressions := make(map[int]bool), make(map[string]string)
	for _, p := range board.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if len(p.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", p.Title)
		}
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("the panel %q has the id %d and the place %v", p.Title, p.ID, p.GridPos)
		}
		ids[p.ID] = true
		for i, target := range p.Targets {
			expressions[fmt.Sprintf("%s, %d", p.Title, i)] = target.Expr
		}
	}
	want := []string{
		"Health", "Delivery", "Storage", "Connections", "Resources", "Several nodes",
	}
	if board.UID != "tidemark" || !cmp.Equal(want, rows) {
		t.Errorf("the board %q has the rows %q", board.UID, rows)
	}
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Labels      map[string]string
				Annotations map[string]string
			}
		}
	}
	raw, err = os.ReadFile("../../deploy/prometheus/alerts.yml")
	if err == nil {
		err = yaml.Unmarshal(raw, &alerts)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			expressions[rule.Alert] = rule.Expr
			if rule.Labels["severity"] == "" || rule.Annotations["summary"] == "" ||
				rule.Annotations["meaning"] == "" {
				t.Errorf("the alert %s does not say how bad it is, or what it means", rule.Alert)
			}
		}
	}
	if len(expressions) < 60 {
		t.Errorf("only %d expressions were found", len(expressions))
	}
	for where, expression := range expressions {
		names := metricName.FindAllString(expression, -1)
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s: there is no %s", where, name)
			}
		}
		for _, pair := range []string{"()", "{}", "[]"} {
			if strings.Count(expression, pair[:1]) != strings.Count(expression, pair[1:]) {
				t.Errorf("%s: %s is not balanced", where, expression)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s: %s names no metric", where, expression)
		}
	}
}

func TestDebugListen_is_for_this_machine_and_metrics_for_nobody_else(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv(secretVariable, testSecret)
	// If an address is accepted, run serves until the context ends.
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
	defer cancel()
	for _, address := range []string{
		"0.0.0.0:6060", ":6060", "10.0.0.1:6060", "example.org:6060", "6060",
	} {
		var log logBuffer
		code := run(ctx, []string{"serve", "--store", "memory:", "--debug-listen", address},
			streams{out: io.Discard, err: &log})
		if code != exitUsage {
			t.Errorf("--debug-listen %s: exit %d, want %d: %s",
				address, code, exitUsage, log.String())
		}
	}
	url, log := startLogged(t, "--store", "memory:", "--debug-listen", "127.0.0.1:0")
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/heap"} {
		must(t, http.StatusNotFound, "", http.MethodGet, url+path, "")
	}
	debug := debugging.FindStringSubmatch(log.String())
	if debug == nil {
		t.Fatalf("no address for debugging in %s", log.String())
	}
	for path, want := range map[string]string{
		"/metrics": "tidemark_sessions 0", "/debug/pprof/": "goroutine",
		"/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": "",
	} {
		got := must(t, http.StatusOK, "", http.MethodGet, debug[1]+path, "")
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %q", path, want)
		}
	}
	must(t, http.StatusNotFound, "", http.MethodGet, debug[1]+"/api/v1/chats", "")

	public := startServer(t, "--store", "memory:", "--public-metrics")
	must(t, http.StatusOK, "", http.MethodGet, public+"/metrics", "")
	must(t, http.StatusNotFound, "", http.MethodGet, public+"/debug/pprof/", "")
}

func TestMetricsToken_opens_metrics_to_those_who_know_it(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv(secretVariable, testSecret)
	const token = "correct-horse-battery"
	for value, flags := range map[string][]string{
		"short": nil, "with a space in it": nil, "ümlaut-ümlaut-ümlaut": nil,
		token: {"--public-metrics"},
	} {
		t.Setenv(metricsVariable, value)
		var log logBuffer
		code := run(t.Context(), append([]string{"serve", "--store", "memory:"}, flags...),
			streams{out: io.Discard, err: &log})
		if code != exitUsage || strings.Contains(log.String(), value) {
			t.Errorf("%q %v: exit %d, want %d: %s", value, flags, code, exitUsage, log.String())
		}
	}
	t.Setenv(metricsVariable, token)
	url := startServer(t, "--store", "memory:")
	for _, header := range []string{
		"", token, "Bearer " + token + "x", "Bearer " + token[1:], "Basic " + token,
	} {
		must(t, http.StatusUnauthorized, "", http.MethodGet, url+"/metrics", "",
			"Authorization", header)
	}
	got := must(t, http.StatusOK, "", http.MethodGet, url+"/metrics", "",
		"Authorization", "Bearer "+token)
	if !strings.Contains(got, "tidemark_sessions 0") {
		t.Errorf("the metrics are %.200s", got)
	}
}

func TestLogFlags_flag_variable_and_file(t *testing.T) {
	cleanEnvironment(t)
	file := write(t, "c.yaml",
		"log-format: json\nlog-level: warn\ndebug-listen: 127.0.0.1:1\npublic-metrics: true\n"+
			"trace-endpoint: http://h:1\n")
	t.Setenv("TIDEMARK_TRACE_SAMPLE", "0.5")
	t.Setenv("TIDEMARK_LOG_LEVEL", "error")
	got, err := parseServe(t, "--config", file, "--debug-listen", "127.0.0.1:2")
	if err != nil {
		t.Fatal(err)
	}
	want := observeFlags{
		LogFormat:     "json",
		LogLevel:      "error",
		DebugListen:   "127.0.0.1:2",
		PublicMetrics: true,
		Traces:        traceFlags{Endpoint: "http://h:1", Sample: 0.5},
	}
	if got.Observe != want {
		t.Errorf("got %+v, want %+v", got.Observe, want)
	}
	for _, bad := range []observeFlags{
		{LogFormat: "xml", LogLevel: "info"}, {LogFormat: "text", LogLevel: "loud"},
	} {
		if _, _, err := bad.log(io.Discard); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}
