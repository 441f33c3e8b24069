// Package client contains the devices of the chaos test. Each keeps one Log of the checker up to
// date, as docs/client-guide.md requires, and changes between transports.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
)

// Transport is a way to receive events.
type Transport int

// The transports.
const (
	WebSocket Transport = iota
	SSE
	LongPoll
	Transports
)

func (t Transport) String() string { return [...]string{"websocket", "sse", "longpoll"}[t] }

// How long a device waits.
const (
	// openWithin bounds the wait for `session`.
	openWithin = 4 * time.Second
	// silence bounds the wait for any data. It is somewhat longer than a heartbeat.
	silence = 25 * time.Second
	// callWithin bounds the wait for an answer.
	callWithin = 8 * time.Second
)

// Device is a client that keeps a stream, and acknowledges what it has stored.
type Device struct {
	Log    *checker.Log
	Ledger *checker.Ledger
	// Base is the URL of the balancer, without a path. Name is the device id, "" for none.
	Base, Name string
	// Stays bounds how long a connection is kept; each connection draws its own time. 0 means until
	// it breaks.
	Stays time.Duration
	// Mute reports that the device acknowledges only by its cursors.
	Mute bool
	// Leaves bounds how long the device is away after it has ended its session, which it does now
	// and then. Away is the same for a device that disconnects without ending it.
	Leaves, Away time.Duration
	// StayConnected is closed when no device may be away any longer.
	StayConnected <-chan struct{}
	// Random belongs to this device.
	Random *rand.Rand
	// OnOpen is called when a connection is open. It must not block.
	OnOpen func()

	http *http.Client
	// moves ends the present connection some time after the call.
	moves func()

	mu     sync.Mutex // guards the fields below
	socket *websocket.Conn
	dirty  map[string]int64
	acked  map[string]int64
	local  string
	opened [Transports]int
	ends   map[string]int
}

// Run keeps the stream until ctx ends.
func (d *Device) Run(ctx context.Context) {
	d.dirty, d.acked, d.ends = map[string]int64{}, map[string]int64{}, map[string]int{}
	d.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	acknowledging := rand.New(rand.NewPCG(d.Random.Uint64(), 1))
	var acks sync.WaitGroup
	acks.Go(func() { d.acknowledge(ctx, acknowledging) })
	defer acks.Wait()
	for failures := 0; ctx.Err() == nil; {
		before := d.Log.Counts().Opens
		err := d.connect(ctx, Transport(d.Random.IntN(int(Transports))))
		d.note(err)
		if failures++; d.Log.Counts().Opens > before {
			failures = 0
		}
		pause := min(100*time.Millisecond<<min(failures, 4), time.Second)
		if away := max(d.Away, d.Leaves); away > 0 && failures == 0 && d.Random.IntN(4) == 0 {
			pause = away
		}
		select {
		case <-ctx.Done():
		case <-d.StayConnected:
			wait(ctx, time.Duration(d.Random.Int64N(int64(100*time.Millisecond))))
		case <-time.After(time.Duration(d.Random.Int64N(int64(pause)))):
		}
	}
}

// errMoved is the cause of a connection that the device ends by itself.
var errMoved = errors.New("moved")

// connect opens one connection and keeps it until it ends.
func (d *Device) connect(ctx context.Context, over Transport) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if d.Stays > 0 {
		// The time begins when the connection is open. The server may serve an abandoned connection
		// after its successor, and then replace the latter.
		stays := time.AfterFunc(openWithin+time.Second, func() { cancel(errMoved) })
		defer stays.Stop()
		after := time.Duration(d.Random.Int64N(int64(d.Stays)))
		d.moves = func() { stays.Reset(after) }
	}
	patience := time.AfterFunc(openWithin, func() { cancel(fmt.Errorf("%v: silence", over)) })
	defer patience.Stop()
	heard := func() { patience.Reset(silence) }
	d.Log.Connect(over.String())
	defer d.Log.Disconnect()
	read := [...]func(context.Context, func()) error{d.readSocket, d.readEvents, d.readPolls}[over]
	err := read(ctx, heard)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return err
}

func (d *Device) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ends[fmt.Sprint(err)]++
}

// Ends counts why the device's connections have ended.
func (d *Device) Ends() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	ends := map[string]int{}
	for why, n := range d.ends {
		ends[why] = n
	}
	return ends
}

// Opened counts the streams that were opened over each transport.
func (d *Device) Opened() [Transports]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened
}

// event is an event of any transport.
type event struct {
	ID      int64           `json:"id"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// payload has the fields of all types of events.
type payload struct {
	Session         string `json:"session_id"`
	Resumed         bool   `json:"resumed"`
	ChatID          string `json:"chat_id"`
	UserID          string `json:"user_id"`
	Sequence        int64  `json:"sequence"`
	SenderID        string `json:"sender_id"`
	ClientMessageID string `json:"client_message_id"`
	From            int64  `json:"from_sequence"`
	To              int64  `json:"to_sequence"`
	Acked           int64  `json:"last_acked_sequence"`
	Read            int64  `json:"last_read_sequence"`
	Reason          string `json:"reason"`
	Code            string `json:"code"`
	Detail          string `json:"detail"`
}

// take takes an event. It returns an error if the stream is over.
func (d *Device) take(ctx context.Context, over Transport, e event) error {
	var p payload
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		d.Ledger.Complain(checker.Refused, "%s got an event that is no JSON: %s",
			d.Log.Name, e.Payload)
		return err
	}
	switch e.Type {
	case "session":
		d.open(over)
		if d.Log.Open(p.Session, p.Resumed, e.ID) {
			d.giveCursors(ctx)
		}
	case "reset":
		d.Log.Reset(p.Reason, p.ChatID, e.ID)
		if p.Reason != "ahead" {
			d.giveCursors(ctx)
		}
	case "message":
		if d.Log.Message(p.ChatID, p.Sequence, p.SenderID, p.ClientMessageID, e.ID) {
			d.acknowledgeLater(p.ChatID, p.Sequence)
		}
	case "gap":
		d.Log.Gap(p.ChatID, p.From, p.To, e.ID)
	case "status_update":
		if p.UserID != "" {
			d.Log.Status(p.ChatID, p.UserID, checker.Boundary{Acked: p.Acked, Read: p.Read}, e.ID)
		}
	case "membership":
		if d.Log.Membership(p.ChatID, p.UserID, e.ID) {
			d.giveCursors(ctx)
		}
	case "problem":
		return fmt.Errorf("problem %s", p.Code)
	default:
		d.Log.Other(e.ID, e.Type == "caught_up")
	}
	return nil
}

// open notes that a connection is open.
func (d *Device) open(over Transport) {
	d.mu.Lock()
	d.opened[over]++
	d.mu.Unlock()
	if d.moves != nil {
		d.moves()
	}
	if d.OnOpen != nil {
		d.OnOpen()
	}
}

// Local returns the local address of the present connection, or of the last one.
func (d *Device) Local() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.local
}

func (d *Device) at(local string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.local = local
}

// giveCursors sends the device's cursors to the session. If that fails, it is repeated when the
// next connection is open.
func (d *Device) giveCursors(ctx context.Context) {
	session, _ := d.Log.Place()
	status, _ := d.call(ctx, http.MethodPost, "/sync", map[string]any{
		"session_id": session, "chats": d.cursors(),
	})
	if status == http.StatusOK {
		d.Log.Given(session)
	}
}

// cursor is an entry of a sync request.
type cursor struct {
	ChatID string `json:"chat_id"`
	Acked  int64  `json:"last_acked_sequence"`
}

// cursors returns what the device has stored, for the request that follows.
func (d *Device) cursors() []cursor {
	cursors := []cursor{}
	for chat, stored := range d.Log.Cursors() {
		d.Ledger.Acknowledge(chat, d.Log.User, checker.Boundary{Acked: stored})
		cursors = append(cursors, cursor{chat, stored})
	}
	return cursors
}

// wait waits for the duration, or until ctx ends.
func wait(ctx context.Context, atMost time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(atMost):
	}
}
