package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// sse reads an event stream. It reads the fields id, event, data and retry, one line each, and
// skips comments.
type sse struct {
	conn  *Conn
	lines *bufio.Reader
	body  *http.Response
	event Event
	// retry is the last retry field: when to come back.
	retry time.Duration
	// kind and data are the buffers that event points to.
	kind, data []byte
}

func dialSSE(ctx context.Context, e Endpoint, at Position) (*sse, error) {
	path := "/api/v1/events"
	if at.Session != "" {
		path = fmt.Sprintf("%s?last_event_id=%s.%d", path, at.Session, at.After)
	}
	conn := NewConn(e.URL, e.Token, e.Received, e.Buffer)
	response, err := conn.request(ctx, http.MethodGet, path, "text/event-stream",
		nil, AnswerTimeout)
	if err != nil {
		return nil, fmt.Errorf("event stream of %s: %w", e.User, err)
	}
	if response.StatusCode != http.StatusOK {
		body, _ := readAll(response.Body, nil)
		conn.Close()
		return nil, later(retryAfter(response), &Refused{
			Call:   "GET " + path,
			Status: response.StatusCode,
			Body:   Shorten(body),
		})
	}
	if err := conn.nc.SetDeadline(time.Time{}); err != nil {
		conn.Close()
		return nil, err
	}
	lines := bufio.NewReaderSize(response.Body, e.Buffer)
	return &sse{conn: conn, body: response, lines: lines}, nil
}

// Next returns the next event that has data.
func (s *sse) Next() (Event, error) {
	s.event.ID, s.kind, s.data = 0, s.kind[:0], s.data[:0]
	for {
		field, value, err := s.line()
		if err != nil {
			return Event{}, later(s.retry, err)
		}
		switch string(field) {
		case "id":
			// <session>.<number>: the number is behind the last dot.
			s.event.ID = Number(value[bytes.LastIndexByte(value, '.')+1:])
		case "retry":
			s.retry = time.Duration(Number(value)) * time.Millisecond
		case "event":
			s.kind = append(s.kind[:0], value...)
		case "data":
			s.data = append(s.data, value...)
		case "":
			if len(s.data) > 0 {
				s.event.Kind, s.event.Payload = s.kind, s.data
				return s.event, nil
			}
			s.event.ID, s.kind = 0, s.kind[:0]
		}
	}
}

// line reads one line. The field of an empty line is empty, that of a comment is ":".
func (s *sse) line() (field, value []byte, err error) {
	line, err := s.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		long := append([]byte(nil), line...)
		for errors.Is(err, bufio.ErrBufferFull) && len(long) <= maxFrame {
			line, err = s.lines.ReadSlice('\n')
			long = append(long, line...)
		}
		line = long
	}
	if err != nil {
		return nil, nil, err
	}
	line = bytes.TrimRight(line, "\r\n")
	if len(line) == 0 {
		return nil, nil, nil
	}
	colon := bytes.IndexByte(line, ':')
	switch colon {
	case 0:
		return line[:1], nil, nil
	case -1:
		return line, nil, nil
	}
	return line[:colon], bytes.TrimPrefix(line[colon+1:], []byte(" ")), nil
}

// Close implements Stream. The session stays for its resume window, as SSE cannot end it.
func (s *sse) Close() { s.conn.Close() }
