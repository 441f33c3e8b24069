package sse_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

const waitTime = wait.Hang

// open sends GET /events as a user. more holds names and values of further headers.
func open(
	t *testing.T, s *transporttest.Stack, user string, query url.Values, more ...string,
) *transporttest.EventStream {
	t.Helper()
	h := http.Header{"Authorization": {"Bearer dev:" + user}, "Accept-Encoding": {"gzip"}}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return transporttest.DialSSE(t, s, http.DefaultTransport, query, h)
}

// find returns the next event of a type.
func find(t *testing.T, c *transporttest.EventStream, kind tidemark.EventType) transporttest.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for {
		ev, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("waiting for %s: %v", kind, err)
		}
		if ev.Type == kind {
			return ev
		}
	}
}

func payload[T any](t *testing.T, ev transporttest.Event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(ev.Payload, &v); err != nil {
		t.Fatalf("%s: %v", ev.Payload, err)
	}
	return v
}

func TestHead_keeps_proxies_from_buffering_and_changing(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	c := open(t, s, "alice", nil)
	want := map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
		"X-Accel-Buffering": "no", "Content-Encoding": "",
	}
	for name, value := range want {
		if got := c.Response.Header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	if c.Response.Header.Get("X-Request-Id") == "" || c.Response.StatusCode != http.StatusOK {
		t.Errorf("status %d, request id %q",
			c.Response.StatusCode, c.Response.Header.Get("X-Request-Id"))
	}
	find(t, c, tidemark.EventSession)
	if c.Retry < 1000 || c.Retry > 3000 {
		t.Errorf("retry is %d ms, want 1 to 3 s", c.Retry)
	}
}

func TestComments_come_at_least_every_heartbeat(t *testing.T) {
	const heartbeat = 300 * time.Millisecond
	s := transporttest.New(t, transporttest.Options{Core: server.Config{Heartbeat: heartbeat}})
	request, err := http.NewRequestWithContext(wait.Context(t), http.MethodGet, s.URL+"/events",
		nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer dev:bob")
	response, err := s.Transport(t).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines, caughtUp, comments := bufio.NewScanner(response.Body), false, 0
	for comments < 3 && lines.Scan() {
		switch line := lines.Text(); {
		case line == ":" && caughtUp:
			comments++
		case line == "event: caught_up":
			caughtUp = true
		case strings.HasPrefix(line, "event: ") && caughtUp:
			t.Fatalf("an event came: %s", line)
		}
	}
	if comments < 3 {
		t.Errorf("%d comments came in %v, want one at least every %v: %v",
			comments, wait.Hang, heartbeat, lines.Err())
	}
}

func TestPosition_header_wins_over_query(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 3)
	for _, tt := range []struct {
		header, query int // 0: none; n: after message n; -1: malformed
		want          int
	}{{1, 0, 2}, {0, 2, 3}, {1, 2, 2}, {2, 1, 3}, {1, -1, 2}} {
		c := open(t, s, "bob", nil)
		positions := map[int]string{-1: "nonsense"}
		for n := 1; n <= 3; n++ {
			find(t, c, tidemark.EventMessage)
			positions[n] = c.LastEventID
		}
		c.Cut()
		more := []string{}
		if tt.header != 0 {
			more = append(more, "Last-Event-ID", positions[tt.header])
		}
		c = open(t, s, "bob", url.Values{"last_event_id": {positions[tt.query]}}, more...)
		if !payload[struct{ Resumed bool }](t, find(t, c, tidemark.EventSession)).Resumed {
			t.Fatalf("%+v: not resumed", tt)
		}
		got := payload[struct{ Sequence int }](t, find(t, c, tidemark.EventMessage)).Sequence
		if got != tt.want {
			t.Errorf("%+v: goes on with message %d", tt, got)
		}
		c.Cut()
	}
}

func TestPosition_that_is_none_resets(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	for _, id := range []string{
		"nonsense", "17", ".", ".1", "abc.", "abc.-1", "abc.99999999999999999999999", "a.b.c",
		"-.0", "💥.1",
	} {
		c := open(t, s, "alice", nil, "Last-Event-ID", id)
		if payload[struct{ Resumed bool }](t, find(t, c, tidemark.EventSession)).Resumed {
			t.Errorf("%q was resumed", id)
		}
		got := payload[struct{ Reason string }](t, find(t, c, tidemark.EventReset))
		if got.Reason != "unknown_session" {
			t.Errorf("%q: reset for %q", id, got.Reason)
		}
		c.Cut()
	}
}

func TestRefusal_is_an_HTTP_status(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	for _, tt := range []struct {
		name, user string
		query      url.Values
		status     int
		code       string
	}{
		{"no user", "", nil, 401, "UNAUTHENTICATED"},
		{"a bad device", "alice", url.Values{"device_id": {"no spaces"}}, 400, "INVALID"},
		{"a bad flag", "alice", url.Values{"status_updates": {"maybe"}}, 400, "INVALID"},
	} {
		c := open(t, s, tt.user, tt.query)
		var problem struct{ Code string }
		if err := json.NewDecoder(c.Response.Body).Decode(&problem); err != nil {
			t.Errorf("%s: the body is no problem: %v", tt.name, err)
		}
		if c.Response.StatusCode != tt.status || problem.Code != tt.code ||
			c.Response.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, want %d %s",
				tt.name, c.Response.StatusCode, problem.Code, tt.status, tt.code)
		}
	}
}

func TestTicket_reconnects_as_EventSource_does(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	chat := s.Group("alice", "bob")
	r, err := http.NewRequest(http.MethodPost, s.URL+"/tickets", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer dev:bob")
	response, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var made struct{ Ticket string }
	if err := json.NewDecoder(response.Body).Decode(&made); err != nil {
		t.Fatal(err)
	}
	query := url.Values{"ticket": {made.Ticket}}
	last := ""
	for round := range 3 { // the same URL each time, with the Last-Event-ID of the session
		h := http.Header{}
		if last != "" {
			h.Set("Last-Event-ID", last)
		}
		s.Send("alice", chat, round+1, 1)
		c := transporttest.DialSSE(t, s, http.DefaultTransport, query, h)
		if c.Response.StatusCode != http.StatusOK {
			t.Fatalf("round %d: status %d", round, c.Response.StatusCode)
		}
		got := payload[struct{ Sequence int }](t, find(t, c, tidemark.EventMessage)).Sequence
		if got != round+1 {
			t.Fatalf("round %d: message %d", round, got)
		}
		last = c.LastEventID
		c.Cut()
	}
	again := transporttest.DialSSE(t, s, http.DefaultTransport, query, http.Header{})
	if again.Response.StatusCode != http.StatusUnauthorized {
		t.Errorf("the ticket opens a second session: status %d", again.Response.StatusCode)
	}
}

func TestToken_ends_the_stream_when_it_expires(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	s := transporttest.New(t, transporttest.Options{Auth: auth.Config{JWTSecret: secret}})
	// Whole seconds: the first one ends in one to two. If it ends before the stream is open, the
	// next one lasts twice as long.
	var c *transporttest.EventStream
	for lasts, status := 2*time.Second, 0; status != http.StatusOK; lasts *= 2 {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			Subject: "alice", ExpiresAt: jwt.NewNumericDate(time.Now().Add(lasts)),
		}).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		c = open(t, s, "", nil, "Authorization", "Bearer "+token)
		if status = c.Response.StatusCode; status != http.StatusOK && lasts > wait.Hang {
			t.Fatalf("a token that lasts for %v is answered %d", lasts, status)
		}
	}
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for err == nil {
		_, err = c.Next(ctx)
	}
	if !strings.Contains(err.Error(), "UNAUTHENTICATED") {
		t.Errorf("the stream ended with %v, want an error event", err)
	}
}

// TestHTTP10_is_delimited_by_the_close: some proxies still use HTTP/1.0 to the server.
func TestHTTP10_is_delimited_by_the_close(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", base.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(waitTime))
	_, _ = fmt.Fprintf(conn, "GET %s/events HTTP/1.0\r\nAuthorization: Bearer dev:alice\r\n\r\n",
		base.Path)
	lines := bufio.NewReader(conn)
	response, err := http.ReadResponse(lines, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(response.TransferEncoding) != 0 || !response.Close {
		t.Errorf("transfer encoding %v, close %v: want none, and close",
			response.TransferEncoding, response.Close)
	}
	body := bufio.NewReader(response.Body)
	for line := ""; line != "event: session\n"; {
		if line, err = body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = s.SSE.Shutdown(context.Background()) }()
	rest, err := io.ReadAll(body)
	if err != nil || !strings.HasPrefix(string(rest), "data: {") {
		t.Errorf("the rest of the body is %q, %v", rest, err)
	}
}

func TestHTTP2_serves_the_same_stream(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{HTTP2: true})
	chat := s.Group("alice", "bob")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	h := http.Header{"Authorization": {"Bearer dev:bob"}}
	first := transporttest.DialSSE(t, s, transport, nil, h)
	if first.Response.ProtoMajor != 2 {
		t.Fatalf("the answer came by %s", first.Response.Proto)
	}
	find(t, first, tidemark.EventCaughtUp)
	last := first.LastEventID
	second := transporttest.DialSSE(t, s, transport, nil, http.Header{
		"Authorization": {"Bearer dev:bob"}, "Last-Event-Id": {last},
	})
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	var err error
	for err == nil {
		_, err = first.Next(ctx)
	}
	if !strings.Contains(err.Error(), "replaced") {
		t.Errorf("the older stream ended with %v", err)
	}
	s.Send("alice", chat, 1, 200)
	for want := 1; want <= 200; want++ {
		got := payload[struct{ Sequence int }](t, find(t, second, tidemark.EventMessage)).Sequence
		if got != want {
			t.Fatalf("got message %d, want %d", got, want)
		}
	}
	second.Cut()
	transporttest.Eventually(t, "the server notices that the client has gone",
		func() bool { return s.SSE.Connections() == 0 })
}

// TestGone_client_detaches_at_once: the server reads the client's close, and needs no failed write.
func TestGone_client_detaches_at_once(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{Core: server.Config{Heartbeat: time.Hour}})
	c := open(t, s, "alice", nil)
	find(t, c, tidemark.EventCaughtUp)
	c.Cut()
	transporttest.Eventually(t, "the server notices",
		func() bool { return s.SSE.Connections() == 0 })
}

// An EventSource whose page does not close it reconnects by itself. After REPLACED that is late.
func TestReplaced_stream_stays_away(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	first := open(t, s, "alice", nil)
	session := payload[struct {
		ID string `json:"session_id"`
	}](t, find(t, first, tidemark.EventSession))
	again := url.Values{"session_id": {session.ID}, "after_event_id": {"1"}}
	find(t, open(t, s, "alice", again), tidemark.EventSession)
	var err error
	for err == nil {
		_, err = first.Next(wait.Context(t))
	}
	if !errors.Is(err, transporttest.ErrReplaced) || first.Retry < 3_600_000 {
		t.Errorf("%v, and to come back after %d ms", err, first.Retry)
	}
}
