package transporttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
)

// SSE returns the dialer of Server-Sent Events. Its clients acknowledge as REST does.
func SSE() Dialer {
	return Dialer{Name: "sse", Dial: func(t testing.TB, s *Stack, at Position) Client {
		h := http.Header{}
		bearer(h, at.User)
		if at.Session != "" {
			h.Set("Last-Event-ID", fmt.Sprintf("%s.%d", at.Session, at.After))
		}
		c := DialSSE(t, s, http.DefaultTransport, nil, h)
		c.user = at.User
		return c
	}}
}

// EventStream is a client of SSE with an open answer.
type EventStream struct {
	Response *http.Response
	// Comments is the number of comments so far. Retry is the last `retry:`, in ms.
	Comments int
	Retry    int
	// LastEventID is the last `id:`.
	LastEventID string

	t      testing.TB
	stack  *Stack
	user   tidemark.UserID
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// DialSSE sends GET /events and returns the open answer, whatever its status. If the status is 200,
// it waits until the session is open. It compares the exchanges of transport with openapi.yaml.
func DialSSE(
	t testing.TB, s *Stack, transport http.RoundTripper, query url.Values, h http.Header,
) *EventStream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/events?"+query.Encode(), nil)
	if err != nil {
		t.Fatalf("the request: %v", err)
	}
	r.Header = h
	response, err := s.contract.Transport(t, transport).RoundTrip(r)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	lines := bufio.NewReader(response.Body)
	if response.StatusCode == http.StatusOK {
		_, _ = lines.Peek(len(":\nretry:")) // Next returns its error
	}
	return &EventStream{
		Response: response,
		t:        t,
		stack:    s,
		lines:    lines,
		cancel:   cancel,
	}
}

// Next implements Client. A `problem` event ends the stream.
func (c *EventStream) Next(ctx context.Context) (Event, error) {
	defer context.AfterFunc(ctx, c.cancel)()
	var ev Event
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			if ctx.Err() != nil {
				return ev, ctx.Err()
			}
			return ev, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case line == ":\n":
			c.Comments++
		case line == "\n" && ev.Type == tidemark.EventProblem:
			return ev, errors.Join(ended(field[string](c.t, ev, "code")), c.end())
		case line == "\n" && ev.Type != "":
			return ev, nil
		case name == "id":
			c.LastEventID = value
			number := value[strings.LastIndexByte(value, '.')+1:]
			if ev.ID, err = strconv.ParseUint(number, 10, 64); err != nil {
				return ev, err
			}
		case name == "event":
			ev.Type = tidemark.EventType(value)
		case name == "data":
			ev.Payload = []byte(value)
		case name == "retry":
			if c.Retry, err = strconv.Atoi(value); err != nil {
				return ev, err
			}
		}
	}
}

// end returns an error unless the answer ends after a `problem` event.
func (c *EventStream) end() error {
	rest, err := io.ReadAll(c.lines)
	if err != nil || len(rest) > 0 {
		return fmt.Errorf("after the error event come %q and %v", rest, err)
	}
	return nil
}

// Ack implements Client.
func (c *EventStream) Ack(chat tidemark.ChatID, acked tidemark.Sequence) {
	c.t.Helper()
	c.stack.Acknowledge(c.user, chat, acked)
}

// Cut implements Client.
func (c *EventStream) Cut() {
	c.cancel()
	_ = c.Response.Body.Close()
}
