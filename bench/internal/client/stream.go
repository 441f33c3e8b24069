// Package client contains the thin clients of the load generator.
// One connection is one goroutine and one buffer.
// The clients read frames and events by hand, and decode only the fields that they need.
package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Transport names the way in which the load's devices receive.
type Transport string

// The transports.
const (
	WebSocket Transport = "websocket"
	SSE       Transport = "sse"
	LongPoll  Transport = "longpoll"
	// REST holds no stream: a device polls by POST /sync.
	REST Transport = "rest"
)

// Event is one event of a stream. The slices are valid until the next call of Next.
type Event struct {
	ID      uint64
	Kind    []byte
	Payload []byte
	// RequestID is set on errors and replies that repeat the id of a request.
	RequestID []byte
}

// Stream is one device's connection. One goroutine calls Next.
// Next fails once the context given to Open has ended.
type Stream interface {
	Next() (Event, error)
	Close()
}

// Later is the error of a stream if the server named a time to come back.
// Both an open stream and an attempt to open one can end with it.
type Later struct {
	Wait  time.Duration
	Cause error
}

// Error implements error.
func (l *Later) Error() string { return fmt.Sprintf("%v (come back after %v)", l.Cause, l.Wait) }

// Unwrap returns the cause.
func (l *Later) Unwrap() error { return l.Cause }

// later returns err as a Later, if wait is above 0.
func later(wait time.Duration, err error) error {
	if wait <= 0 {
		return err
	}
	return &Later{Wait: wait, Cause: err}
}

// Position is where a stream continues after a lost connection. The zero Position opens a new
// session.
type Position struct {
	Session string
	After   uint64
}

// Endpoint is one user of the server under load.
type Endpoint struct {
	URL      URL
	User     string
	Token    string
	Received *atomic.Int64
	// Buffer is the size of a stream's read buffer. It is small where thousands of streams idle.
	Buffer int
	// Confirm asks a WebSocket for confirmations in place of the events of own messages.
	Confirm bool
	// Chats are the chats that a device without a stream knows, so it sends their cursors.
	// Of other chats it gets what no device of the user has acknowledged.
	Chats []string
}

// The sizes of read buffers.
const (
	LargeBuffer = 16 << 10
	SmallBuffer = 512
)

// Open opens a stream over a transport.
func (e Endpoint) Open(ctx context.Context, transport Transport, at Position) (Stream, error) {
	switch transport {
	case WebSocket:
		return DialSocket(ctx, e, at)
	case SSE:
		return dialSSE(ctx, e, at)
	case LongPoll:
		return newPoll(ctx, e, at), nil
	case REST:
		return newSyncing(ctx, e), nil
	}
	return nil, fmt.Errorf("there is no transport %q; choose websocket, sse, longpoll or rest",
		transport)
}

// query returns the position as URL parameters of WebSocket and long-poll, without a "?" or "&".
func (p Position) query() string {
	if p.Session == "" {
		return ""
	}
	return fmt.Sprintf("session_id=%s&after_event_id=%d", p.Session, p.After)
}

// parseEvent parses {id, type, payload, request_id}.
func parseEvent(raw []byte) (Event, error) {
	var e Event
	o := NewObject(raw)
	for {
		key, value, ok := o.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "id":
			e.ID = Number(value)
		case "type":
			e.Kind = Text(value)
		case "payload":
			e.Payload = value
		case "request_id":
			e.RequestID = Text(value)
		}
	}
	if len(e.Kind) == 0 {
		return Event{}, fmt.Errorf("the server sent something that is no event: %s", Shorten(raw))
	}
	return e, nil
}
