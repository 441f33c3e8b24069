package transports_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/test/services/stores"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/rest"
)

// fetch makes a request that the contract does not describe.
func fetch(t *testing.T, a *api, method, path string, header map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestContract_knows_every_code(t *testing.T) {
	a := start(t, dev())
	var got []string
	for _, code := range []tidemark.Code{
		tidemark.Invalid, tidemark.Unauthenticated, tidemark.NotMember, tidemark.Denied,
		tidemark.NotFound, problem.MethodNotAllowed, tidemark.Conflict, tidemark.Expired,
		tidemark.Replaced, tidemark.Gone, problem.PreconditionFailed, tidemark.TooLarge,
		problem.UnsupportedMediaType, problem.RangeNotSatisfiable, tidemark.InvalidSequence,
		tidemark.Exhausted, tidemark.Internal, tidemark.Unavailable,
	} {
		got = append(got, string(code))
	}
	if diff := cmp.Diff(a.contract.Codes(), got); diff != "" {
		t.Errorf("-openapi.yaml +code:\n%s", diff)
	}
}

func TestOperation_paths(t *testing.T) {
	a := start(t, dev())
	ann := a.as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	send(ann, "c1", "x")
	nobody := as{api: a}
	for _, path := range []string{"//healthz", "//readyz", "//openapi.yaml", "//metrics"} {
		if r := nobody.do("GET", path, ""); r.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, r.StatusCode, r.body)
		}
		if r := fetch(t, a, "HEAD", path[1:], nil); r.StatusCode != 200 {
			t.Errorf("HEAD %s: %d", path, r.StatusCode)
		}
	}
	if got := nobody.do("GET", "//openapi.yaml", "").body; string(got) != string(tidemark.OpenAPI) {
		t.Error("openapi.yaml is another one")
	}
	metrics := string(nobody.do("GET", "//metrics", "").body)
	for _, want := range []string{
		"# TYPE tidemark_sends_total counter", "tidemark_sends_total 1",
		"# TYPE tidemark_sessions gauge", "go_goroutines", "process_resident_memory_bytes",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %q", want)
		}
	}
}

func TestTickets_open_a_stream_and_send_a_beacon(t *testing.T) {
	a := start(t, dev())
	ann := a.as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	send(ann, "c1", "x")
	ticket := get[rest.Ticket](a.as("bob"), 201, "POST", "/tickets", "")
	if d := time.Until(ticket.ExpiresAt); d < 20*time.Second || d > 31*time.Second {
		t.Errorf("the ticket ends in %v", d)
	}
	nobody := as{api: a}
	nobody = nobody.with("Content-Type", "text/plain;charset=UTF-8")
	for range 2 {
		r := nobody.do("POST", "/acks?ticket="+ticket.Ticket,
			`{"chats":[{"chat_id":"team","last_acked_sequence":1}]}`)
		if r.StatusCode != 200 ||
			!strings.Contains(string(r.body), `"user_id":"bob","last_acked_sequence":1`) {
			t.Errorf("%d %s", r.StatusCode, r.body)
		}
	}
	for _, call := range [][2]string{{"POST", "/tickets"}, {"GET", "/chats"}, {"POST", "/sync"}} {
		if r := nobody.do(call[0], call[1]+"?ticket="+ticket.Ticket, ""); r.StatusCode != 401 {
			t.Errorf("%s %s with a ticket: %d %s", call[0], call[1], r.StatusCode, r.body)
		}
	}
}

// The server refuses a body that is too large as soon as it knows: by the declared length, or at
// the limit. The bodies in this test never end.
func TestBody_too_large_is_refused_before_its_end(t *testing.T) {
	for name, head := range map[string]string{
		"declared": "Content-Length: 99999999\r\n\r\n",
		"chunked": fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", 420_000,
			strings.Repeat(" ", 420_000)),
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, dev())
			conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			// A server that reads to the end answers only after limit.RequestWithin.
			deadline := time.Now().Add(limit.RequestWithin - time.Second)
			if err := conn.SetDeadline(deadline); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn,
				"POST /api/v1/chats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer dev:ann\r\n%s",
				head)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			a.contract.Answer(t, "POST", "/api/v1/chats", res, body)
			if res.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%d %s", res.StatusCode, body)
			}
		})
	}
}

func TestShutdown_ends_open_streams_and_lets_calls_finish(t *testing.T) {
	entered := make(chan struct{})
	ended := make(chan error, 1)
	o := dev()
	o.events = func(c echo.Context) error {
		c.Response().WriteHeader(http.StatusOK)
		c.Response().Flush()
		close(entered)
		<-c.Request().Context().Done()
		ended <- context.Cause(c.Request().Context())
		return nil
	}
	a := start(t, o)
	fetch(t, a, "GET", "/api/v1/events", nil)
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), wait.Hang)
	defer cancel()
	if err := a.http.Shutdown(ctx); err != nil {
		t.Fatalf("the shutdown hung on the stream: %v", err)
	}
	if err := <-ended; tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("the stream ended with %v", err)
	}
	rec := httptest.NewRecorder()
	a.handler.ServeHTTP(rec, httptest.NewRequest("GET", "/readyz", nil))
	if rec.Code != 503 {
		t.Errorf("readyz while stopping: %d", rec.Code)
	}
}

func TestAcks_many_at_a_time_cost_more(t *testing.T) {
	o := dev()
	o.limit = limit.New(limit.Config{
		User: limit.Rates{Calls: limit.Rate{PerSecond: 0.001, Burst: 5}},
	})
	a := start(t, o)
	entries := func(n int) string {
		of := make([]string, n)
		for i := range of {
			of[i] = fmt.Sprintf(`{"chat_id":"c%d","last_acked_sequence":1}`, i)
		}
		return `{"chats":[` + strings.Join(of, ",") + `]}`
	}
	ann, bob := a.as("ann"), a.as("bob")
	for i, tt := range []struct {
		as      as
		entries int
		want    int
	}{
		{ann, 99, 200}, {ann, 300, 200}, {ann, 0, 429}, // 1, 1 + 3, one too many
		{bob, 400, 200}, {bob, 100, 429}, // 1 + 4
	} {
		if r := tt.as.do("POST", "/acks", entries(tt.entries)); r.StatusCode != tt.want {
			t.Errorf("call %d, of %d entries: %d %s", i, tt.entries, r.StatusCode, r.body)
		}
	}
}

func TestMembers_many_at_a_time_cost_more(t *testing.T) {
	o := dev()
	o.limit = limit.New(limit.Config{
		User: limit.Rates{Calls: limit.Rate{PerSecond: 0.001, Burst: 30}},
	})
	ann := start(t, o).as("ann")
	users := func(n int) string {
		of := make([]string, n)
		for i := range of {
			of[i] = fmt.Sprintf(`"u%d"`, i)
		}
		return `[` + strings.Join(of, ",") + `]`
	}
	for i, tt := range []struct {
		path, body string
		want       int
	}{
		{"/chats", `{"type":"group","chat_id":"a","member_ids":` + users(9) + `}`, 201},   // 5
		{"/chats", `{"type":"group","chat_id":"b","member_ids":` + users(100) + `}`, 201}, // 5 + 10
		{"/chats/a/members", `{"user_ids":` + users(51) + `}`, 200},                       // 5 + 5
		{"/chats/a/members", `{"user_ids":` + users(1) + `}`, 429},
	} {
		if r := ann.do("POST", tt.path, tt.body); r.StatusCode != tt.want {
			t.Errorf("call %d: %d %s, want %d", i, r.StatusCode, r.body, tt.want)
		}
	}
}

// exhausted is a listener that fails once for lack of files and then ends.
type exhausted struct {
	net.Listener
	tried bool
}

// Accept implements net.Listener.
func (l *exhausted) Accept() (net.Conn, error) {
	if l.tried {
		return nil, net.ErrClosed
	}
	l.tried = true
	return nil, &net.OpError{
		Op:  "accept",
		Net: "tcp",
		Err: os.NewSyscallError("accept4", syscall.EMFILE),
	}
}

func TestLog_says_that_nobody_can_connect(t *testing.T) {
	var log bytes.Buffer
	o := dev()
	o.log = slog.New(slog.NewTextHandler(&log, nil))
	a := start(t, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	err = a.handler.HTTPServer("").Serve(&exhausted{Listener: l})
	if !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "level=ERROR") ||
		!strings.Contains(got, "too many open files") {
		t.Errorf("with the files at their limit, the log is %q", got)
	}
}

// Calls run in a context that is detached from their request's. It has ended when the error handler
// looks whether the caller has gone.
func TestLog_says_that_a_call_failed(t *testing.T) {
	var fault atomic.Pointer[error]
	var log bytes.Buffer
	o := dev()
	store := storagetest.Fault(stores.Open(t))
	store.Before = func(string) error {
		if err := fault.Load(); err != nil {
			return *err
		}
		return nil
	}
	o.storage, o.log = store, slog.New(slog.NewTextHandler(&log, nil))
	o.poll = func(echo.Context) error { return *fault.Load() }
	ann := start(t, o).as("ann")
	get[rest.Chat](ann, 201, "POST", "/chats", group)
	for _, tt := range []struct {
		err    error
		status int
		level  string
	}{
		{errors.New("a defect"), 500, "level=ERROR"},
		{tidemark.Errorf(tidemark.Unavailable, "no answer"), 503, "level=WARN"},
	} {
		fault.Store(&tt.err)
		for method, path := range map[string]string{
			"POST": "/chats/team/messages", "PATCH": "/chats/team", "GET": "/poll",
		} {
			log.Reset()
			body := map[string]string{
				"POST": `{"client_message_id":"c1","content":"x"}`, "PATCH": `{"name":"x"}`,
			}[method]
			if r := ann.do(method, path, body); r.StatusCode != tt.status {
				t.Errorf("%s %s: %d, want %d", method, path, r.StatusCode, tt.status)
			}
			if got := log.String(); !strings.Contains(got, tt.level) ||
				!strings.Contains(got, "a request failed") {
				t.Errorf("%s %s answers %d, and the log is %q", method, path, tt.status, got)
			}
		}
	}
	fault.Store(nil)
}

func TestPanic_in_a_handler_is_a_problem(t *testing.T) {
	o := dev()
	o.events = func(echo.Context) error { panic("boom") }
	a := start(t, o)
	if r := a.as("ann").do("GET", "/events", ""); r.StatusCode != 500 || r.code() != "INTERNAL" {
		t.Errorf("%d %s", r.StatusCode, r.body)
	}
}

func TestAnswers_are_not_stored(t *testing.T) {
	ann := start(t, dev()).as("ann")
	for _, path := range []string{"/chats", "/nowhere", "//healthz"} {
		if got := ann.do("GET", path, "").Header.Get("Cache-Control"); got != "no-store" {
			t.Errorf("%s: Cache-Control %q", path, got)
		}
	}
}
