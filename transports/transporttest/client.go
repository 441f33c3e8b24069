package transporttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/test/wait"
)

// waitTime bounds every wait of the suite.
const waitTime = wait.Hang

// Position says where a client starts: in a new session if Session is "", else after the event
// After of the session.
type Position struct {
	User    tidemark.UserID
	Session tidemark.SessionID
	After   uint64
}

// Event is an event as a client gets it.
type Event struct {
	ID      uint64             `json:"id"`
	Type    tidemark.EventType `json:"type"`
	Payload json.RawMessage    `json:"payload"`
	// RequestID is set on the answers of WebSocket.
	RequestID string `json:"request_id"`
}

// The ways in which a stream ends, for all transports.
var (
	// ErrReplaced means that a newer connection owns the session.
	ErrReplaced = errors.New("replaced")
	// ErrGone means that long-poll found no such session.
	ErrGone = errors.New("the session is gone")
)

// Client is a device on one transport. It is not safe for concurrent use.
type Client interface {
	// Next returns the next event, in the order of the wire.
	Next(ctx context.Context) (Event, error)
	// Ack acknowledges that the device has stored everything up to a sequence of a chat.
	Ack(chat tidemark.ChatID, acked tidemark.Sequence)
	// Cut drops the connection without a close handshake.
	Cut()
}

// Dialer connects clients of one transport. A connection is cut when the test ends.
type Dialer struct {
	Name string
	// Polls is true for long-poll: an unknown session is an error and not a reset, and a resumed
	// session has no `session` event.
	Polls bool
	Dial  func(t testing.TB, s *Stack, at Position) Client
}

// dialers returns the dialers of all transports.
func dialers() []Dialer { return []Dialer{WebSocket(), SSE(), LongPoll()} }

// device is a client that tracks its position. It fails the test if what it receives breaks a rule.
type device struct {
	Client
	t    testing.TB
	at   Position
	last uint64
}

func dial(t testing.TB, s *Stack, d Dialer, at Position) *device {
	t.Helper()
	return &device{Client: d.Dial(t, s, at), t: t, at: at}
}

// event returns the next event. It checks that the ids of the session's events grow.
func (d *device) event() Event {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	ev, err := d.Next(ctx)
	if err != nil {
		d.t.Fatalf("no event after %d: %v", d.last, err)
	}
	if ev.ID != 0 {
		if ev.ID <= d.last || ev.ID <= d.at.After {
			d.t.Fatalf("event %d (%s) after %d: ids must grow",
				ev.ID, ev.Type, max(d.last, d.at.After))
		}
		d.last = ev.ID
	}
	if ev.Type == tidemark.EventSession {
		d.at.Session = tidemark.SessionID(field[string](d.t, ev, "session_id"))
	}
	return ev
}

// find returns the next event of a type. It skips others.
func (d *device) find(kind tidemark.EventType) Event {
	d.t.Helper()
	for {
		if ev := d.event(); ev.Type == kind {
			return ev
		}
	}
}

// receive reads messages of a chat until it has the one at sequence through. It checks that none is
// missing or out of order (delivery.md §5, session_in_order), and returns their contents.
func (d *device) receive(chat tidemark.ChatID, from, through tidemark.Sequence) []string {
	d.t.Helper()
	var contents []string
	for expect := from; expect <= through; {
		ev := d.event()
		if ev.Type != tidemark.EventMessage || field[string](d.t, ev, "chat_id") != string(chat) {
			continue
		}
		if got := tidemark.Sequence(field[float64](d.t, ev, "sequence")); got != expect {
			d.t.Fatalf("got message %d of %s, want %d", got, chat, expect)
		}
		contents = append(contents, field[string](d.t, ev, "content"))
		expect++
	}
	return contents
}

// fails reads until the stream ends, and checks the error.
func (d *device) fails(want error) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitTime)
	defer cancel()
	for {
		if _, err := d.Next(ctx); err != nil {
			if !errors.Is(err, want) {
				d.t.Fatalf("the stream ended with %v, want %v", err, want)
			}
			return
		}
	}
}

// position returns where the device's session goes on.
func (d *device) position() Position {
	return Position{User: d.at.User, Session: d.at.Session, After: max(d.at.After, d.last)}
}

// field returns a field of an event's payload.
func field[T any](t testing.TB, ev Event, name string) T {
	t.Helper()
	var fields map[string]any
	if err := json.Unmarshal(ev.Payload, &fields); err != nil {
		t.Fatalf("the payload of %s is not JSON: %v in %s", ev.Type, err, ev.Payload)
	}
	value, ok := fields[name].(T)
	if !ok {
		t.Fatalf("%s of %s is %v, want a %T", name, ev.Type, fields[name], value)
	}
	return value
}

// bearer adds a user's credentials.
func bearer(h http.Header, user tidemark.UserID) {
	h.Set("Authorization", "Bearer dev:"+string(user))
}

// ended returns the error of a stream that ended with the code of an error event or a problem.
func ended(code string) error {
	switch tidemark.Code(code) {
	case tidemark.Replaced:
		return ErrReplaced
	case tidemark.Gone:
		return ErrGone
	default:
		return fmt.Errorf("the stream ended with %s", code)
	}
}
