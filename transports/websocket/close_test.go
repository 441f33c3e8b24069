package websocket_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/test/wait"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/origin"
	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// closed reads until the server closes the connection. It returns the code and the reason.
func closed(t *testing.T, c *transporttest.Socket) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for {
		if _, err := c.Next(ctx); err != nil {
			if err == transporttest.ErrReplaced {
				return 4409, ""
			}
			var frame websocket.CloseError
			if !errors.As(err, &frame) {
				t.Fatalf("the connection ended without a close frame: %v", err)
			}
			return int(frame.Code), frame.Reason
		}
	}
}

func TestRefusal_is_a_close_code_after_the_upgrade(t *testing.T) {
	origins, err := origin.New(origin.Config{
		Allow: []string{"https://app.example.com"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := transporttest.New(t, transporttest.Options{
		Core:    server.Config{SessionsPerUser: 1},
		Origins: origins,
	})
	connect(t, s, "busy")
	origin := func(o string) func(*websocket.DialOptions) {
		return func(d *websocket.DialOptions) { d.HTTPHeader.Set("Origin", o) }
	}
	tests := []struct {
		name  string
		user  tidemark.UserID
		query url.Values
		edit  func(*websocket.DialOptions)
		code  int
	}{
		{"no credentials", "", nil, nil, 4401},
		{"a bad ticket", "", url.Values{"ticket": {"nonsense"}}, nil, 4401},
		{
			"a bad token",
			"alice", nil,
			func(d *websocket.DialOptions) { d.HTTPHeader.Set("Authorization", "Bearer nonsense") },
			4401,
		},
		{"a foreign origin", "alice", nil, origin("https://evil.example.com"), 4403},
		{"too many sessions", "busy", nil, nil, 4429},
		{"a bad device", "alice", url.Values{"device_id": {"no spaces"}}, nil, 1008},
		{"a bad kind of confirmation", "alice", url.Values{"own": {"none"}}, nil, 1008},
		{"a bad position", "alice",
			url.Values{"session_id": {"x"}, "after_event_id": {"-1"}}, nil, 1008},
	}
	for _, tt := range tests {
		edit := tt.edit
		if edit == nil {
			edit = func(*websocket.DialOptions) {}
		}
		code, reason := closed(t, transporttest.DialWebSocket(t, s, tt.query, tt.user, edit))
		if code != tt.code || reason == "" {
			t.Errorf("%s: closed with %d %q, want %d", tt.name, code, reason, tt.code)
		}
	}
	c := transporttest.DialWebSocket(t, s, nil, "alice", origin("https://app.example.com"))
	next(t, c, "session")
}

func TestSubprotocol_is_chosen_if_offered(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	for _, tt := range []struct {
		offer []string
		want  string
	}{
		{[]string{"tidemark.v1"}, "tidemark.v1"},
		{[]string{"other", "tidemark.v1"}, "tidemark.v1"},
		{nil, ""},
		{[]string{"other"}, ""},
	} {
		c := transporttest.DialWebSocket(t, s, nil, "alice",
			func(o *websocket.DialOptions) { o.Subprotocols = tt.offer })
		next(t, c, "session")
		if got := c.Subprotocol(); got != tt.want {
			t.Errorf("offered %v: chose %q, want %q", tt.offer, got, tt.want)
		}
	}
}

func TestRequest_that_is_no_upgrade_gets_a_problem(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	response, err := (&http.Client{Transport: s.Transport(t)}).Get(s.URL + "/ws")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusBadRequest ||
		got != "application/problem+json" {
		t.Errorf("got %d %s, want 400 and a problem", response.StatusCode, got)
	}
}

func TestFrames_that_cannot_be_taken_close(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	ctx := context.Background()

	binary := connect(t, s, "alice")
	if err := binary.Conn.Write(ctx, websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if code, _ := closed(t, binary); code != 1003 {
		t.Errorf("a binary frame closes with %d, want 1003", code)
	}

	garbled := connect(t, s, "alice")
	text := []byte("{\"type\":\"ping\",\"request_id\":\"\xff\"}")
	if err := garbled.Conn.Write(ctx, websocket.MessageText, text); err != nil {
		t.Fatal(err)
	}
	if code, _ := closed(t, garbled); code != 1007 {
		t.Errorf("a frame that is not UTF-8 closes with %d, want 1007", code)
	}

	large := connect(t, s, "alice")
	frame := []byte(`{"type":"ping","padding":"` + strings.Repeat("x", 1<<20) + `"}`)
	_ = large.Conn.Write(ctx, websocket.MessageText, frame) // the server may close meanwhile
	if code, _ := closed(t, large); code != 1009 {
		t.Errorf("a frame of 1 MiB closes with %d, want 1009", code)
	}

	most := connect(t, s, "alice")
	padded := `{"type":"ping","padding":"` + strings.Repeat("x", 400<<10-28) + `"}`
	if err := most.Conn.Write(ctx, websocket.MessageText, []byte(padded)); err != nil {
		t.Fatal(err)
	}
	next(t, most, "pong")
}

// TestHeartbeat_two_pings_unanswered_close_4408: if the machine is too slow for a client to answer
// in time, the test repeats with fewer pings.
func TestHeartbeat_two_pings_unanswered_close_4408(t *testing.T) {
	for heartbeat := 300 * time.Millisecond; !pings(t, heartbeat); heartbeat *= 2 {
		if heartbeat > wait.Hang/4 {
			t.Fatalf("a client that answers is closed with pings every %v", heartbeat)
		}
	}
}

// pings tests a client that answers no pings. It returns whether another client, which answers
// them, stays connected.
func pings(t *testing.T, heartbeat time.Duration) bool {
	t.Helper()
	s := transporttest.New(t, transporttest.Options{Core: server.Config{Heartbeat: heartbeat}})
	answering := connect(t, s, "alice")
	ended := answering.CloseRead(context.Background()) // answers pings from now on
	start := time.Now()
	conn, lines := handshake(t, s, "bob")
	frames := readFrames(t, conn, lines)
	if elapsed := time.Since(start); elapsed < 2*heartbeat {
		t.Errorf("closed after %v, before two pings could be answered", elapsed)
	}
	if last := frames[len(frames)-1]; last != "8:4408" ||
		strings.Count(strings.Join(frames, " "), "9:") != 2 {
		t.Errorf("the server sent %v, want two pings and then close 4408", frames)
	}
	stays := ended.Err() == nil
	answering.Cut()
	transporttest.Eventually(t, "the connection is gone",
		func() bool { return s.WebSocket.Connections() == 0 })
	return stays
}

func TestToken_ends_the_stream_when_it_expires(t *testing.T) {
	secret := []byte("0123456789abcdef0123456789abcdef")
	s := transporttest.New(t, transporttest.Options{Auth: auth.Config{JWTSecret: secret}})
	// exp has whole seconds, so the first token ends after 1 to 2 s. If it ends before the stream
	// is open, the next one lasts twice as long.
	var c *transporttest.Socket
	for lasts, opened := 2*time.Second, false; !opened && lasts < wait.Hang; lasts *= 2 {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			Subject: "alice", ExpiresAt: jwt.NewNumericDate(time.Now().Add(lasts)),
		}).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		c = transporttest.DialWebSocket(t, s, nil, "",
			func(o *websocket.DialOptions) { o.HTTPHeader.Set("Authorization", "Bearer "+token) })
		ev, err := c.Next(wait.Context(t))
		opened = err == nil && ev.Type == tidemark.EventSession
	}
	if code, reason := closed(t, c); code != 4401 {
		t.Errorf("closed with %d %q, want 4401", code, reason)
	}
}

func TestShutdown_closes_with_1012(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	c := connect(t, s, "alice")
	done := make(chan error, 1)
	go func() { done <- s.WebSocket.Shutdown(context.Background()) }()
	if code, reason := closed(t, c); code != 1012 ||
		!strings.HasPrefix(reason, "restarting; retry-after=") {
		t.Errorf("closed with %d %q, want 1012", code, reason)
	}
	if err := <-done; err != nil {
		t.Errorf("stopping: %v", err)
	}
	response, err := (&http.Client{Transport: s.Transport(t)}).Get(s.URL + "/ws")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a connection while stopping gets %d, want 503", response.StatusCode)
	}
}

// TestDeaf_client_is_cut_and_its_session_waits: a client that reads nothing for the write timeout
// is cut, and its session loses nothing.
func TestDeaf_client_is_cut_and_its_session_waits(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{
		WriteTimeout: 3 * time.Second,
		HTTP:         transporttest.SmallSendBuffers,
	})
	chat := s.Group("alice", "bob")
	small := &http.Client{Transport: s.TransportOver(t, &http.Transport{
		DialContext: transporttest.SmallReceiveBuffers().DialContext,
	})}
	c := transporttest.DialWebSocket(t, s, nil, "bob",
		func(o *websocket.DialOptions) { o.HTTPClient = small })
	open := decode[struct {
		SessionID string `json:"session_id"`
	}](t, next(t, c, "session"))
	caughtUp := next(t, c, "caught_up")
	text := strings.Repeat("x", 60<<10)
	sent := 0
	wait.For(t, "the client is cut", func() (int, bool) {
		if sent < 20 { // 1 MB, more than the kernel buffers
			s.SendText("alice", chat, fmt.Sprint(sent), text)
			sent++
		}
		return sent, s.WebSocket.Connections() == 0
	})
	again := transporttest.DialWebSocket(t, s,
		url.Values{"session_id": {open.SessionID}, "after_event_id": {fmt.Sprint(caughtUp.ID)}},
		"bob")
	if got := decode[struct{ Resumed bool }](t, next(t, again, "session")); !got.Resumed {
		t.Error("the session was not resumed")
	}
	for want := 1; want <= sent; want++ {
		got := decode[struct{ Sequence int }](t, next(t, again, "message")).Sequence
		if got != want {
			t.Fatalf("got message %d, want %d", got, want)
		}
	}
}

// TestClose_reaches_a_client_that_is_still_sending: if the server closed with unread bytes, the
// connection would be reset, and the code lost.
func TestClose_reaches_a_client_that_is_still_sending(t *testing.T) {
	s := transporttest.New(t, transporttest.Options{})
	conn, lines := handshake(t, s, "alice")
	const size = 1 << 20
	frame := append([]byte{0x81, 0xff, 0, 0, 0, 0, 0, size >> 16, 0, 0, 0, 0, 0, 0},
		make([]byte, size)...)
	for range 4 {
		if _, err := conn.Write(frame); err != nil {
			t.Fatalf("the server stopped reading: %v", err)
		}
	}
	if frames := readFrames(t, conn, lines); frames[len(frames)-1] != "8:1009" {
		t.Errorf("the server sent %v, want close 1009", frames)
	}
}

// handshake connects a bare socket that answers no pings.
func handshake(
	t *testing.T, s *transporttest.Stack, user tidemark.UserID,
) (net.Conn, *bufio.Reader) {
	t.Helper()
	base, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", base.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitTime))
	_, err = fmt.Fprintf(conn, "GET %s/ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer dev:%s\r\n\r\n",
		base.Path, base.Host, user)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(conn)
	response, err := http.ReadResponse(lines, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the handshake: %v, %v", response, err)
	}
	return conn, lines
}

// readFrames reads until a close frame. It returns opcode:content of each frame, and 8:code of the
// close frame.
func readFrames(t *testing.T, conn net.Conn, lines *bufio.Reader) []string {
	t.Helper()
	var frames []string
	for {
		head := make([]byte, 2)
		if _, err := io.ReadFull(lines, head); err != nil {
			t.Fatalf("the connection ended without a close frame, after %v: %v", frames, err)
		}
		length := int(head[1] & 0x7f)
		if length == 126 {
			extended := make([]byte, 2)
			if _, err := io.ReadFull(lines, extended); err != nil {
				t.Fatal(err)
			}
			length = int(extended[0])<<8 | int(extended[1])
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(lines, payload); err != nil {
			t.Fatal(err)
		}
		opcode := head[0] & 0xf
		if opcode == 8 {
			return append(frames, fmt.Sprintf("8:%d", int(payload[0])<<8|int(payload[1])))
		}
		frames = append(frames, fmt.Sprintf("%d:%s", opcode, payload))
	}
}
