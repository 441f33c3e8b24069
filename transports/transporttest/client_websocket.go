package transporttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark"
	server "github.com/tidemark-im/tidemark/transports/websocket"
)

// WebSocket returns the dialer of WebSocket. Its clients use another implementation than the server
// does.
func WebSocket() Dialer {
	return Dialer{Name: "websocket", Dial: func(t testing.TB, s *Stack, at Position) Client {
		return DialWebSocket(t, s, at.query(), at.User)
	}}
}

// Socket is a WebSocket client.
type Socket struct {
	*websocket.Conn
	t testing.TB
}

// DialWebSocket connects with a query. edit may change the options of the dial.
func DialWebSocket(
	t testing.TB, s *Stack, query url.Values, user tidemark.UserID,
	edit ...func(*websocket.DialOptions),
) *Socket {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	o := &websocket.DialOptions{
		HTTPHeader: http.Header{}, Subprotocols: []string{server.Subprotocol},
		HTTPClient: &http.Client{Transport: s.Transport(t)},
	}
	if user != "" {
		bearer(o.HTTPHeader, user)
	}
	for _, f := range edit {
		f(o)
	}
	conn, _, err := websocket.Dial(ctx, s.URL+"/ws?"+query.Encode(), o)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &Socket{Conn: conn, t: t}
}

// Next implements Client. It skips `hello`.
func (c *Socket) Next(ctx context.Context) (Event, error) {
	ev, err := c.NextFrame(ctx)
	if err == nil && ev.Type == "hello" {
		return c.NextFrame(ctx)
	}
	return ev, err
}

// NextFrame returns the next frame of the server.
func (c *Socket) NextFrame(ctx context.Context) (Event, error) {
	var ev Event
	kind, frame, err := c.Read(ctx)
	switch {
	case websocket.CloseStatus(err) == server.CloseReplaced:
		return ev, ErrReplaced
	case err != nil:
		return ev, err
	case kind != websocket.MessageText:
		return ev, fmt.Errorf("a binary frame: %q", frame)
	}
	return ev, json.Unmarshal(frame, &ev)
}

// Write sends a text frame.
func (c *Socket) Write(frame string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	if err := c.Conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
		c.t.Fatalf("writing: %v", err)
	}
}

// Ack implements Client.
func (c *Socket) Ack(chat tidemark.ChatID, acked tidemark.Sequence) {
	c.t.Helper()
	c.Write(fmt.Sprintf(`{"type":"ack","payload":{"chat_id":%q,"last_acked_sequence":%d}}`, chat,
		acked))
}

// Cut implements Client.
func (c *Socket) Cut() { _ = c.CloseNow() }

// query returns the position as query parameters of WebSocket and long-poll.
func (p Position) query() url.Values {
	q := url.Values{}
	if p.Session != "" {
		q.Set("session_id", string(p.Session))
		q.Set("after_event_id", strconv.FormatUint(p.After, 10))
	}
	return q
}
