package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollWait is how long a long-poll waits at the server, in seconds. The server allows up to 50.
const pollWait = 25

// poll receives by long-polling. Each request confirms the events of the one before.
type poll struct {
	ctx    context.Context
	conn   *Conn
	at     Position
	events Array
}

func newPoll(ctx context.Context, e Endpoint, at Position) *poll {
	return &poll{ctx: ctx, conn: NewConn(e.URL, e.Token, e.Received, e.Buffer), at: at}
}

// Next returns the next event of the last answer, or asks for more.
func (p *poll) Next() (Event, error) {
	for {
		if raw, ok := p.events.Next(); ok {
			e, err := parseEvent(raw)
			p.at.After = max(p.at.After, e.ID)
			return e, err
		}
		if err := p.ask(); err != nil {
			return Event{}, err
		}
	}
}

func (p *poll) ask() error {
	path := fmt.Sprintf("/api/v1/poll?wait_seconds=%d", pollWait)
	if query := p.at.query(); query != "" {
		path += "&" + query
	}
	answer, err := p.conn.Do(p.ctx, "GET", path, nil, pollWait*time.Second+AnswerTimeout)
	if err != nil {
		return err
	}
	empty := true
	o := NewObject(answer)
	for {
		key, value, ok := o.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "session_id":
			p.at.Session = string(Text(value))
		case "events":
			p.events = NewArray(value)
			empty = len(value) <= len("[]")
		}
	}
	if wait := p.conn.after; empty && wait > 0 {
		return later(wait, errors.New("the server is restarting"))
	}
	return nil
}

// Close implements Stream. The session stays for its resume window, as long-poll cannot end it.
func (p *poll) Close() { p.conn.Close() }
