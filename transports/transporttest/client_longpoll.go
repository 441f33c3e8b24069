package transporttest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/tidemark-im/tidemark"
)

// LongPoll returns the dialer of long-poll. Its clients acknowledge as REST does.
func LongPoll() Dialer {
	dial := func(t testing.TB, s *Stack, at Position) Client {
		return &poller{t: t, stack: s, at: at}
	}
	return Dialer{Name: "longpoll", Polls: true, Dial: dial}
}

// Page is an answer of long-poll.
type Page struct {
	Session tidemark.SessionID `json:"session_id"`
	Events  []Event            `json:"events"`
	More    bool               `json:"has_more"`
}

// Poll sends one GET /poll of a user. It returns the answer, or the problem's code as an error.
func Poll(
	ctx context.Context, t testing.TB, s *Stack, user tidemark.UserID, query url.Values,
) (Page, error) {
	h := http.Header{}
	bearer(h, user)
	return s.Poll(ctx, t, h, query)
}

// Poll is the function Poll with the credentials of a header.
func (s *Stack) Poll(
	ctx context.Context, t testing.TB, h http.Header, query url.Values,
) (Page, error) {
	var page Page
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/poll?"+query.Encode(), nil)
	if err != nil {
		return page, err
	}
	r.Header = h
	response, err := s.Transport(t).RoundTrip(r)
	if err != nil {
		return page, err
	}
	defer func() { _ = response.Body.Close() }()
	if got := response.Header.Get("Cache-Control"); got != "no-store" {
		return page, fmt.Errorf("Cache-Control is %q, want no-store", got)
	}
	if response.StatusCode != http.StatusOK {
		var problem struct{ Code string }
		if err := json.NewDecoder(response.Body).Decode(&problem); err != nil {
			return page, fmt.Errorf("status %d without a problem: %w", response.StatusCode, err)
		}
		return page, ended(problem.Code)
	}
	return page, json.NewDecoder(response.Body).Decode(&page)
}

// poller is a client that polls when it has no event left.
type poller struct {
	t      testing.TB
	stack  *Stack
	at     Position
	events []Event
}

// Next implements Client.
func (c *poller) Next(ctx context.Context) (Event, error) {
	for len(c.events) == 0 {
		query := c.at.query()
		query.Set("wait_seconds", strconv.Itoa(5))
		page, err := Poll(ctx, c.t, c.stack, c.at.User, query)
		if err != nil {
			return Event{}, err
		}
		c.at.Session, c.events = page.Session, page.Events
	}
	ev := c.events[0]
	c.events = c.events[1:]
	c.at.After = max(c.at.After, ev.ID)
	return ev, nil
}

// Ack implements Client.
func (c *poller) Ack(chat tidemark.ChatID, acked tidemark.Sequence) {
	c.t.Helper()
	c.stack.Acknowledge(c.at.User, chat, acked)
}

// Cut implements Client. It drops the events that Next has not returned.
func (c *poller) Cut() { c.events = nil }
