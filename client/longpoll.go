package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
)

// longPoll is a stream over long-poll.
type longPoll struct {
	c     *Client
	token string
	at    position
	watch *watch
	// opened reports that the first poll was answered.
	opened bool
	events []event
	// end is why the stream ends after its events.
	end *failure
}

// polled is the answer to a poll.
type polled struct {
	Session tidemark.SessionID `json:"session_id"`
	Events  []event            `json:"events"`
}

// next implements stream. It polls when no event is left.
func (s *longPoll) next(ctx context.Context) (event, error) {
	for len(s.events) == 0 {
		if s.end != nil {
			return event{}, s.end
		}
		if err := s.poll(ctx); err != nil {
			return event{}, err
		}
	}
	e := s.events[0]
	s.events = s.events[1:]
	s.at.after = max(s.at.after, e.ID)
	return e, nil
}

// poll gets the next events. The first one is answered at once.
func (s *longPoll) poll(ctx context.Context) error {
	query, wait := s.at.query(s.c.cfg.Device), s.c.timing.wait
	if !s.opened {
		wait = 0
	}
	query.Set("wait_seconds", strconv.Itoa(int(wait/time.Second)))
	if s.opened {
		s.watch.within(wait + s.c.timing.grace)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.c.base+"/poll?"+query.Encode(),
		http.NoBody)
	if err != nil {
		return fail(lost, err, "the request cannot be made")
	}
	s.c.sign(r.Header, s.token)
	response, err := s.c.http.Do(r)
	if err != nil {
		return fail(lost, err, "no answer")
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fail(lost, err, "the answer was cut off")
	}
	if f := answered(response.StatusCode, response.Header, body); f != nil {
		return f
	}
	var answer polled
	if err := json.Unmarshal(body, &answer); err != nil || answer.Session == "" {
		return fail(blocked, err, "the answer does not come from a Tidemark server")
	}
	s.watch.heard(s.c.timing.session)
	if s.events = answer.Events; !s.opened {
		s.open(answer.Session)
	}
	if after := retryAfter(response.Header); after > 0 {
		s.end = &failure{ending: busy, after: after, err: tidemark.Errorf(tidemark.Unavailable,
			"the server restarts")}
	}
	return nil
}

// open makes the first event up if the session is a resumed one, which long-poll does not say.
func (s *longPoll) open(session tidemark.SessionID) {
	s.opened, s.at.session = true, session
	if len(s.events) > 0 && s.events[0].Type == tidemark.EventSession {
		return
	}
	start, _ := json.Marshal(sessionStart{ // strings and numbers only
		Session: session, Resumed: true, EventID: s.at.after,
	})
	s.events = append([]event{{Type: tidemark.EventSession, Payload: start}}, s.events...)
}

// close implements stream.
func (s *longPoll) close() {}
