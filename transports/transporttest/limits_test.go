package transporttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// retryReason matches the reason of a close frame that says when to retry.
var retryReason = regexp.MustCompile(`^[a-z].*; retry-after=(\d+\.\d)$`)

// refusal tries to open a stream of a user. It returns the status or close code of the refusal, and
// the seconds after which to retry. SSE says both on the stream, whose head is sent before.
func refusal(
	t *testing.T, s *transporttest.Stack, path string, user tidemark.UserID,
) (status int, after float64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	if path == "/ws" {
		c := transporttest.DialWebSocket(t, s, nil, user)
		for {
			_, err := c.Next(ctx)
			var frame websocket.CloseError
			if errors.As(err, &frame) {
				found := retryReason.FindStringSubmatch(frame.Reason)
				if found == nil {
					t.Fatalf("%d with the reason %q", frame.Code, frame.Reason)
				}
				after, _ = strconv.ParseFloat(found[1], 64)
				return int(frame.Code), after
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if path == "/events" {
		c := transporttest.DialSSE(t, s, http.DefaultTransport, nil,
			http.Header{"Authorization": {"Bearer dev:" + string(user)}})
		if c.Response.StatusCode != http.StatusOK {
			return c.Response.StatusCode, retryAfter(t, c.Response)
		}
		ev, err := c.Next(ctx)
		var said struct{ Code tidemark.Code }
		if ev.Type != tidemark.EventProblem || json.Unmarshal(ev.Payload, &said) != nil {
			t.Fatalf("the stream says %+v, %v", ev, err)
		}
		return problem.Status(said.Code), float64(c.Retry) / 1000
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer dev:"+string(user))
	response, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode, retryAfter(t, response)
}

func retryAfter(t *testing.T, response *http.Response) (seconds float64) {
	t.Helper()
	seconds, err := strconv.ParseFloat(response.Header.Get("Retry-After"), 64)
	if err != nil {
		t.Fatalf("%d with Retry-After %q", response.StatusCode, response.Header.Get("Retry-After"))
	}
	return seconds
}

func TestCatchUps_are_admitted_a_few_at_a_time(t *testing.T) {
	gate := limit.NewGate(limit.GateConfig{Slots: 1, Wait: 50 * time.Millisecond})
	s := transporttest.New(t, transporttest.Options{Gate: gate})
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 300) // three pages
	held, err := gate.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/ws": 1013, "/events": 503, "/poll": 503} {
		if status, after := refusal(t, s, path, "bob"); status != want || after < 1 || after > 5 {
			t.Errorf("%s when all places are taken: %d, retry after %g s", path, status, after)
		}
	}
	held.Leave()
	// Each client gives its place back, whether it waits for more or has gone.
	for round := range 3 {
		for _, dialer := range []transporttest.Dialer{
			transporttest.WebSocket(), transporttest.SSE(), transporttest.LongPoll(),
		} {
			// The place is given back after the last event of a catch-up was written.
			wait.Until(t, "the place is free", func() bool {
				return gate.Counters()["catch_ups"] == 0
			})
			c := dialer.Dial(t, s, transporttest.Position{User: "bob"})
			until(t, c, tidemark.EventCaughtUp)
			if round == 0 {
				c.Cut()
			}
		}
	}
}

func until(t *testing.T, c transporttest.Client, kind tidemark.EventType) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	for {
		ev, err := c.Next(ctx)
		if err != nil {
			t.Fatalf("before %s: %v", kind, err)
		}
		if ev.Type == kind {
			return
		}
	}
}

// TestCatchUps_a_client_that_waits_knows_it: the first bytes come before the place to catch up in.
// A client that goes away meanwhile gives its place in the queue up.
func TestCatchUps_a_client_that_waits_knows_it(t *testing.T) {
	gate := limit.NewGate(limit.GateConfig{Slots: 1, Queue: 2, Wait: time.Hour})
	s := transporttest.New(t, transporttest.Options{
		Gate: gate, Core: server.Config{Heartbeat: time.Hour},
	})
	held, err := gate.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	socket := transporttest.DialWebSocket(t, s, nil, "bob")
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	hello, err := socket.NextFrame(ctx)
	if err != nil || hello.Type != "hello" {
		t.Fatalf("the first frame is %+v, %v", hello, err)
	}
	ask := func() *bare {
		b := dialBare(t, s)
		b.say("GET %s/events HTTP/1.0\r\nAuthorization: Bearer dev:bob\r\n\r\n", b.path)
		return b
	}
	waiting := func(n int64) func() bool {
		return func() bool { return gate.Counters()["catch_ups_waiting"] == n }
	}
	for range 3 { // one more than the queue holds
		gone := ask()
		wait.Until(t, "the client waits", waiting(2))
		_ = gone.Close()
		wait.Until(t, "the client that went away waits no more", waiting(1))
	}
	stream := ask()
	for _, line := range []string{"HTTP/1.1 200 OK\r\n", "\r\n", ":\n"} {
		stream.readTo(line)
	}
	held.Leave()
	until(t, socket, tidemark.EventCaughtUp)
	stream.readTo("event: caught_up\n")
}

// TestCatchUps_a_closed_client_takes_no_session: a client asks for its session and closes its side
// while it waits for a place. It has come back on another connection.
func TestCatchUps_a_closed_client_takes_no_session(t *testing.T) {
	gate := limit.NewGate(limit.GateConfig{Slots: 1, Wait: time.Hour})
	s := transporttest.New(t, transporttest.Options{Gate: gate})
	newest := transporttest.DialSSE(t, s, http.DefaultTransport, nil,
		http.Header{"Authorization": {"Bearer dev:bob"}})
	until(t, newest, tidemark.EventCaughtUp)
	held, err := gate.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	closed := dialBare(t, s)
	closed.say("GET %s/events HTTP/1.0\r\nAuthorization: Bearer dev:bob\r\n"+
		"Last-Event-ID: %s\r\n\r\n", closed.path, newest.LastEventID)
	_ = closed.CloseWrite()
	closed.readTo(":\n")
	closed.readTo(":\n") // the second comment says that the server has noticed
	held.Leave()
	rest, _ := io.ReadAll(closed.lines)
	if !strings.Contains(string(rest), "UNAVAILABLE") {
		t.Errorf("the closed client gets %q, want a problem", rest)
	}
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 1)
	until(t, newest, tidemark.EventMessage)
}

// TestCatchUps_of_clients_that_do_not_read_keep_nobody_waiting: two clients that do not read have
// more to receive than the kernel buffers, and are never cut. The place of the first goes to the
// second, and that of the second to a client that reads.
func TestCatchUps_of_clients_that_do_not_read_keep_nobody_waiting(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Gate:         limit.NewGate(limit.GateConfig{Slots: 1, Wait: time.Hour}),
		WriteTimeout: time.Hour, HTTP: transporttest.SmallSendBuffers,
	})
	chat := s.Group("alice", "bob")
	text := strings.Repeat("x", 60<<10)
	for i := range 10 {
		s.SendText("alice", chat, fmt.Sprint(i), text)
	}
	other := s.Group("alice", "carol")
	s.Send("alice", other, 1, 1)
	for _, path := range []string{"/events", "/ws"} {
		stuck := dialNotReading(t, s)
		stuck.say("GET %s%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer dev:bob\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", stuck.path, path, stuck.host)
		if _, err := http.ReadResponse(stuck.lines, nil); err != nil {
			t.Fatalf("%s is not answered: %v", path, err)
		}
		for seen := ""; !strings.Contains(seen, "session_id"); {
			b, err := stuck.lines.ReadByte()
			if err != nil {
				t.Fatalf("%s has no place to catch up in: %v after %q", path, err, seen)
			}
			seen += string(b)
		}
	}
	if n := s.SSE.Connections() + s.WebSocket.Connections(); n != 2 {
		t.Errorf("%d streams are open, want the 2 of the clients that do not read", n)
	}
	until(t, transporttest.SSE().Dial(t, s, transporttest.Position{User: "carol"}),
		tidemark.EventCaughtUp)
}

func TestSessions_of_a_user_refused_ones_know_when_to_come_back(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{Core: server.Config{SessionsPerUser: 1}})
	until(t, transporttest.SSE().Dial(t, s, transporttest.Position{User: "bob"}),
		tidemark.EventCaughtUp)
	for path, want := range map[string]int{"/ws": 4429, "/events": 429, "/poll": 429} {
		if status, after := refusal(t, s, path, "bob"); status != want || after < 10 || after > 60 {
			t.Errorf("%s: %d, retry after %g s", path, status, after)
		}
	}
}

// TestCalls_on_a_stream_are_limited: opening a stream and sync_request count as calls. Beyond the
// limit typing is dropped. Acknowledgements are never refused.
func TestCalls_on_a_stream_are_limited(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		Limit: limit.New(limit.Config{
			User: limit.Rates{Calls: limit.Rate{PerSecond: 0.001, Burst: 10}},
		}),
	})
	chat := s.Group("alice", "bob")
	s.Send("alice", chat, 1, 1)
	alice := transporttest.DialWebSocket(t, s, nil, "alice")
	until(t, alice, tidemark.EventCaughtUp)
	c := transporttest.DialWebSocket(t, s, nil, "bob") // 5 of 10
	until(t, c, tidemark.EventCaughtUp)
	c.Write(`{"type":"sync_request","request_id":"one","payload":{}}`) // 10 of 10
	until(t, c, "sync_response")
	c.Write(`{"type":"sync_request","request_id":"two","payload":{}}`)
	ctx, cancel := context.WithTimeout(t.Context(), waitTime)
	defer cancel()
	for {
		ev, err := c.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var problem struct{ Code string }
		_ = json.Unmarshal(ev.Payload, &problem)
		if ev.Type == tidemark.EventProblem && problem.Code == "RATE_LIMITED" &&
			ev.RequestID == "two" {
			break
		}
		if ev.RequestID != "" {
			t.Fatalf("the second is answered by %s %s", ev.Type, ev.Payload)
		}
	}
	for range 3 {
		c.Write(fmt.Sprintf(`{"type":"typing","payload":{"chat_id":%q}}`, chat))
	}
	for range 1_000 {
		c.Write(fmt.Sprintf(`{"type":"ack","payload":{"chat_id":%q,"last_acked_sequence":1}}`,
			chat))
	}
	c.Write(`{"type":"ping","request_id":"end"}`)
	until(t, c, "pong")
	s.Send("alice", chat, 2, 1)
	typing := 0
	for {
		ev, err := alice.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == "typing" {
			typing++
		}
		if ev.Type == tidemark.EventMessage {
			break
		}
	}
	if typing != 0 {
		t.Errorf("%d typing notices beyond the limit reached alice", typing)
	}
	if status, _ := refusal(t, s, "/events", "bob"); status != http.StatusTooManyRequests {
		t.Errorf("another stream: %d, want 429", status)
	}
}
