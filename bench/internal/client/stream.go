// Package client is the thin clients of the load generator: one connection is one goroutine and one buffer, frames and events
// are read by hand, and nothing is decoded that is not looked at.
package client

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Transport is how the load's devices receive.
type Transport string

// The transports.
const (
	WebSocket Transport = "websocket"
	SSE       Transport = "sse"
	LongPoll  Transport = "longpoll"
	// REST holds no stream: a device asks by POST /sync, again and again.
	REST Transport = "rest"
)

// Event is one event of a stream. The slices are valid until the next call.
type Event struct {
	ID      uint64
	Kind    []byte
	Payload []byte
	// requestID is set on errors and replies that repeat one.
	RequestID []byte
}

// Stream is one device's connection. next belongs to one goroutine. It ends with an error once ctx of its opening has.
type Stream interface {
	Next() (Event, error)
	Close()
}

// Later is the end of a stream, or of an attempt to open one, with the time after which the server wants to see its client again.
type Later struct {
	Wait  time.Duration
	Cause error
}

// Error implements error.
func (l *Later) Error() string { return fmt.Sprintf("%v (come back after %v)", l.Cause, l.Wait) }

// Unwrap implements what errors.As uses.
func (l *Later) Unwrap() error { return l.Cause }

// later returns err with the time, if there is one.
func later(wait time.Duration, err error) error {
	if wait <= 0 {
		return err
	}
	return &Later{Wait: wait, Cause: err}
}

// Position is where a stream goes on after a lost connection. The zero position opens a new session.
type Position struct {
	Session string
	After   uint64
}

// Endpoint is one user of the server under load.
type Endpoint struct {
	Target   Target
	User     string
	Token    string
	Received *atomic.Int64
	// buffer is the size of a stream's read buffer: small where thousands of streams idle.
	Buffer int
	// Chats are the chats that a device without a stream knows, and names from the start; of others it gets what no device
	// of the user has acknowledged.
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
	return nil, fmt.Errorf("there is no transport %q; choose websocket, sse, longpoll or rest", transport)
}

// query is the position as URL parameters of WebSocket and long-poll, without a leading separator.
func (p Position) query() string {
	if p.Session == "" {
		return ""
	}
	return fmt.Sprintf("session=%s&after=%d", p.Session, p.After)
}

// parseEvent reads {id, type, payload}.
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
		return Event{}, fmt.Errorf("the server sent what is no event: %s", Shorten(raw))
	}
	return e, nil
}
