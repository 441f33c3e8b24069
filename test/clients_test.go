package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/google/go-cmp/cmp"
	"github.com/r3labs/sse/v2"
	"gopkg.in/cenkalti/backoff.v1"

	"github.com/tidemark-im/tidemark/transports/transporttest"
)

// Clients that were not made for Tidemark, against the real binary.

func TestCurl_reads_the_stream(t *testing.T) {
	t.Parallel() // It waits more than it works.
	eachStorage(t, curlReads)
}

func curlReads(t *testing.T, p *process) {
	address := p.serve()
	alice, bob := as(address, "alice"), as(address, "bob")
	chat := alice.direct(t, "bob")

	stdout := &output{}
	curl := exec.CommandContext(t.Context(), "curl", "-sS", "-N", "-H",
		"Authorization: Bearer dev:alice", alice.url+"/api/v1/events")
	curl.Stdout, curl.Stderr = stdout, stdout
	if err := curl.Start(); err != nil {
		t.Fatalf("curl: %v; on Debian: apt-get install -y curl", err)
	}
	defer func() {
		_ = curl.Process.Kill() // it would read endlessly
		_ = curl.Wait()
	}()

	shows := func(pattern string) {
		t.Helper()
		want := regexp.MustCompile(pattern)
		until(t, "curl shows "+pattern, func() bool { return want.MatchString(stdout.String()) },
			stdout.String)
	}
	shows(`(?m)^event: ?session\n(?:.*\n)*data: ?\{"session_id":"`)
	bob.send(t, chat, "hello from bob")
	shows(`(?m)^data: ?\{"chat_id":"` + chat + `","sequence":1,.*"content":"hello from bob"`)
	alice.ack(t, chat, 1)
	sent := alice.send(t, chat, "hello from alice")
	bob.ack(t, chat, sent.Sequence)
	shows(`(?m)^data: ?\{"chat_id":"` + chat +
		`","scope":"member","user_id":"bob","last_acked_sequence":2,"last_read_sequence":\d+,` +
		`"acked_at":"[^"]+","read_at":(null|"[^"]+")\}$`) // null if bob's own message is read later

	for block := range strings.SplitSeq(strings.TrimSuffix(stdout.String(), "\n\n"), "\n\n") {
		for line := range strings.SplitSeq(block, "\n") {
			form := regexp.MustCompile(
				`^(:.*|retry: ?\d+|id: ?[^.]{1,22}\.\d+|event: ?[a-z_]+|data: ?\{.*\})?$`)
			if !form.MatchString(line) {
				t.Errorf("a line that is not Server-Sent Events as documented: %q", line)
			}
		}
	}
}

// output keeps what a process writes.
type output struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// reader is the r3labs client with the wrapper that it needs, and the events it received.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// reader is the r3labs client with the wrapper that it needs, and what it received.
type reader struct {
	client *sse.Client
	conns  *connections

	mu       sync.Mutex // guards the fields below
	opens    []open
	messages []message
}

type open struct {
	Session string `json:"session_id"`
	Resumed bool   `json:"resumed"`

	Incarnation string `json:"incarnation"`
}

func newReader(t *testing.T, u user) *reader {
	t.Helper()
	r := &reader{conns: &connections{}}
	r.client = sse.NewClient(u.url+"/api/v1/events", sse.ClientMaxBufferSize(1<<20))
	r.client.Headers["Authorization"] = "Bearer dev:" + u.name
	r.client.Connection.Transport = transporttest.Checked(t, &http.Transport{
		DialContext:       r.conns.dial,
		DisableKeepAlives: true,
	})
	r.client.ResponseValidator = func(_ *sse.Client, response *http.Response) error {
		if response.StatusCode == http.StatusOK {
			return nil
		}
		response.Body.Close()
		err := fmt.Errorf("the stream is refused: %s", response.Status)
		if response.StatusCode >= 500 {
			return err
		}
		return backoff.Permanent(fmt.Errorf("the stream is refused: %s", response.Status))
	}
	return r
}

// run reads until ctx ends. For the client, a clean end of the stream is neither an error nor a
// reason to stop.
func (r *reader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		forever := backoff.NewExponentialBackOff()
		forever.MaxElapsedTime = 0
		r.client.ReconnectStrategy = backoff.WithContext(forever, ctx)
		if err := r.client.SubscribeRawWithContext(ctx, r.take); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

func (r *reader) take(event *sse.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch string(event.Event) { // A comment or a `retry:` arrives as an event without a type.
	case "session":
		var o open
		if json.Unmarshal(event.Data, &o) == nil {
			r.opens = append(r.opens, o)
		}
	case "message":
		var m message
		if json.Unmarshal(event.Data, &m) == nil {
			r.messages = append(r.messages, m)
		}
	}
}

func (r *reader) received() (opens []open, contents []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.messages {
		contents = append(contents, m.Content)
	}
	return slices.Clone(r.opens), contents
}

// connections dials, and can cut the open connections as a broken network does.
type connections struct {
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

func TestR3labs_resumes_after_a_cut(t *testing.T) {
	t.Parallel() // It waits more than it works.
	eachStorage(t, r3labsResumes)
}

func r3labsResumes(t *testing.T, p *process) {
	address := p.serve()
	alice, bob := as(address, "alice"), as(address, "bob")
	chat := alice.direct(t, "bob")

	ctx, cancel := context.WithCancel(t.Context())
	r := newReader(t, alice)
	ended := make(chan error, 1)
	go func() { ended <- r.run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	const cuts, between = 3, 20
	var want []string
	for n := range cuts + 1 {
		until(t, "the stream is open",
			func() bool { opens, _ := r.received(); return len(opens) == n+1 }, describe(r))
		for range between {
			want = append(want, fmt.Sprint("message ", len(want)+1))
			bob.send(t, chat, want[len(want)-1])
		}
		until(t, "everything has come",
			func() bool { _, got := r.received(); return len(got) >= len(want) }, describe(r))
		if n == cuts {
			break
		}
		r.conns.cut()
		want = append(want, fmt.Sprint("message ", len(want)+1, ", during the cut"))
		bob.send(t, chat, want[len(want)-1])
	}

	opens, got := r.received()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages, in order and once (-want +got):\n%s", diff)
	}
	for i, o := range opens {
		if o.Session != opens[0].Session || o.Resumed != (i > 0) {
			t.Errorf("connection %d: got session %s, resumed %v; want session %s, resumed %v",
				i, o.Session, o.Resumed, opens[0].Session, i > 0)
		}
	}
}

func describe(r *reader) func() string {
	return func() string { return fmt.Sprint(r.received()) }
}

// frame is a frame of the WebSocket, in either direction.
type frame struct {
	ID        int64           `json:"id,omitempty"`
	Type      string          `json:"type"`
	RequestID string          `json:"request_id,omitempty"`
	Payload   json.RawMessage `json:"payload"`
}

func dial(t *testing.T, u user) *websocket.Conn {
	t.Helper()
	url := strings.Replace(u.url, "http://", "ws://", 1) + "/api/v1/ws?ticket=dev:" + u.name
	conn, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{
		Subprotocols: []string{"tidemark.v1"},
		HTTPClient:   &http.Client{Transport: transporttest.Checked(t, http.DefaultTransport)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	if got := conn.Subprotocol(); got != "tidemark.v1" {
		t.Errorf("subprotocol: got %q, want tidemark.v1", got)
	}
	return conn
}

func write(t *testing.T, conn *websocket.Conn, kind, requestID string, payload any) {
	t.Helper()
	frame := map[string]any{"type": kind, "payload": payload}
	if requestID != "" {
		frame["request_id"] = requestID
	}
	if err := wsjson.Write(t.Context(), conn, frame); err != nil {
		t.Fatal(err)
	}
}

// next reads frames until one has the type, and want returns true for its decoded payload.
func next[T any](t *testing.T, conn *websocket.Conn, kind string, want func(T) bool) (frame, T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for {
		var f frame
		if err := wsjson.Read(ctx, conn, &f); err != nil {
			t.Fatalf("waiting for a frame of type %s: %v", kind, err)
		}
		if f.Type == "problem" {
			t.Fatalf("waiting for a frame of type %s: error %s", kind, f.Payload)
		}
		if f.Type != kind {
			continue
		}
		var payload T
		if err := json.Unmarshal(f.Payload, &payload); err != nil {
			t.Fatalf("%s: %v in %s", kind, err, f.Payload)
		}
		if want(payload) {
			return f, payload
		}
	}
}

func TestCoderWebSocket_sends_receives_and_acknowledges(t *testing.T) { eachStorage(t, coderSends) }

func coderSends(t *testing.T, p *process) {
	address := p.serve()
	alice, bob := as(address, "alice"), as(address, "bob")
	chat := alice.direct(t, "bob")
	a, b := dial(t, alice), dial(t, bob)
	for _, conn := range []*websocket.Conn{a, b} {
		next(t, conn, "session", func(o open) bool { return o.Session != "" && !o.Resumed })
	}

	write(t, a, "send_message", "r-1", map[string]any{
		"chat_id": chat, "client_message_id": "c-1", "content": "over the socket",
	})
	answer, confirmed := next(t, a, "send_message_ack", func(message) bool { return true })
	if answer.RequestID != "r-1" {
		t.Errorf("request_id: got %q, want r-1", answer.RequestID)
	}
	if want := (message{ChatID: chat, Sequence: 1, ClientMessageID: "c-1"}); confirmed != want {
		t.Errorf("send_message_ack: got %+v, want %+v", confirmed, want)
	}

	event, received := next(t, b, "message", func(message) bool { return true })
	if event.ID == 0 {
		t.Error("a message has no event id")
	}
	want := message{
		ChatID:          chat,
		Sequence:        1,
		SenderID:        "alice",
		ClientMessageID: "c-1",
		Content:         "over the socket",
	}
	if received != want {
		t.Errorf("message: got %+v, want %+v", received, want)
	}

	write(t, b, "ack", "", map[string]any{"chat_id": chat, "last_acked_sequence": 1})
	next(t, a, "status_update",
		func(s state) bool { return s == state{ChatID: chat, UserID: "bob", Acked: 1} })
	write(t, b, "read", "", map[string]any{"chat_id": chat, "last_read_sequence": 1})
	next(t, a, "status_update",
		func(s state) bool { return s == state{ChatID: chat, UserID: "bob", Acked: 1, Read: 1} })

	var stored state
	bob.call(t, http.MethodGet, "/chats/"+chat+"/delivery-state", nil, &stored)
	if want := (state{ChatID: chat, UserID: "bob", Acked: 1, Read: 1}); stored != want {
		t.Errorf("stored: got %+v, want %+v", stored, want)
	}
	err := a.Close(websocket.StatusNormalClosure, "")
	if err != nil && !errors.Is(err, net.ErrClosed) {
		t.Errorf("closing in good order: %v", err)
	}
}
