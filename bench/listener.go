package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark/bench/internal/client"
	"github.com/tidemark-im/tidemark/bench/internal/device"
	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// listener is one user's device. It reads the stream, checks and measures each event, and passes
// messages to the acknowledger. It resumes a lost connection at its position, with a few attempts.
type listener struct {
	run       *run
	endpoint  client.Endpoint
	transport client.Transport
	check     *device.Checker
	// acks is nil for a device that acknowledges nothing.
	// Such a device is idle, or receives only its user's own messages.
	acks *device.Acknowledger
	// reply, if not nil, gets the answers to sends over WebSocket.
	// These are send_message_ack, and error with a request id.
	reply func(client.Event)
	// reconnected, if not nil, is called after a lost connection is replaced.
	// Nothing has been read from the new one then.
	reconnected func()
	// ticks, if not nil, gets the status updates.
	ticks *ticks
	// delivered, if not nil, counts the time from a send to its arrival here.
	// It is nil for a device that receives only its user's own messages.
	delivered *measure.Histogram

	// leaving, if not nil, says how the device loses its connection.
	leaving *leaving

	// socket is the current connection if it is a WebSocket.
	socket atomic.Pointer[client.Socket]
	// fresh counts the messages received, without re-sends.
	fresh atomic.Int64
	// all, if not nil, is closed when so many messages as expected are here.
	// Both fields are set before start.
	expected int64
	all      chan struct{}
	// caughtUp is closed when the server has sent everything that was pending at open.
	caughtUp chan struct{}
	caught   bool
	at       client.Position
}

// errGone is the error of a listener that cannot replace its connection.
var errGone = errors.New("the connection was lost and could not be replaced")

const (
	resumeTries = 5
	resumePause = 200 * time.Millisecond
)

func newListener(r *run, user string, node int) *listener {
	return &listener{
		run: r, endpoint: r.endpoint(user, node), transport: r.load.Transport,
		check: device.NewChecker(user), delivered: &r.delivered, caughtUp: make(chan struct{}),
	}
}

// acknowledge makes the device acknowledge what it receives, over its WebSocket or by POST /acks.
func (l *listener) acknowledge() {
	write := l.overSocket
	if l.transport != client.WebSocket {
		conn := client.NewConn(l.endpoint.URL, l.endpoint.Token, &l.run.answerBytes,
			client.SmallBuffer)
		l.run.closeLater(conn.Close)
		write = func(body []byte) error {
			_, err := conn.Do(l.run.ctx, "POST", "/api/v1/acks", body, client.AnswerTimeout)
			return err
		}
	}
	l.acks = device.NewAcknowledger(l.run.load.AckEvery, l.run.load.AckInterval, write)
	l.run.goroutine(func() error { return l.acks.Run(l.run.ctx) })
}

func (l *listener) overSocket(body []byte) error {
	frame := append([]byte(`{"type":"ack","payload":`), body...)
	// An error needs no handling: the reader replaces a broken connection, and a later
	// acknowledgement covers this one.
	_ = l.socket.Load().Write(client.OpText, append(frame, '}'))
	return nil
}

// start connects, and returns when the stream has caught up. A goroutine reads until the run ends.
func (l *listener) start() error {
	s, err := l.connect()
	if err != nil {
		return err
	}
	l.run.goroutine(func() error { return l.read(s) })
	timeout := time.NewTimer(client.AnswerTimeout)
	defer timeout.Stop()
	select {
	case <-l.caughtUp:
		return nil
	case <-l.run.ctx.Done():
		return context.Cause(l.run.ctx)
	case <-timeout.C:
		return fmt.Errorf("%s is connected by %s, but the server sent no caught_up within %v",
			l.endpoint.User, l.transport, client.AnswerTimeout)
	}
}

func (l *listener) connect() (client.Stream, error) {
	open := func(ctx context.Context) (client.Stream, error) {
		return l.endpoint.Open(ctx, l.transport, l.at)
	}
	var s client.Stream
	var err error
	if l.leaving == nil {
		s, err = open(l.run.ctx)
	} else {
		s, err = l.leaving.open(l.run.ctx, open)
	}
	if err != nil {
		return nil, err
	}
	if socket, ok := s.(*client.Socket); ok {
		l.socket.Store(socket)
	}
	return s, nil
}

// read reads the stream, and those that replace it, until the run ends.
func (l *listener) read(s client.Stream) error {
	for {
		err := l.drain(s)
		s.Close()
		if l.run.ctx.Err() != nil || l.stayAway() != nil {
			return nil
		}
		if s, err = l.resume(err); err != nil {
			return err
		}
	}
}

// drain handles events until the stream ends.
func (l *listener) drain(s client.Stream) error {
	for {
		e, err := s.Next()
		if err != nil {
			return err
		}
		if err := l.take(e); err != nil {
			return err
		}
	}
}

func (l *listener) resume(cause error) (client.Stream, error) {
	for range resumeTries {
		s, err := l.connect()
		if err == nil {
			l.run.reconnects.Add(1)
			l.check.Resumed()
			if l.acks != nil {
				l.acks.Again()
			}
			if l.reconnected != nil {
				l.reconnected()
			}
			return s, nil
		}
		var no *client.Refused
		if errors.As(err, &no) && no.Status == 410 {
			l.at = client.Position{}
		}
		if err := sleep(l.run.ctx, resumePause); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s over %s: %w: %w", l.endpoint.User, l.transport, errGone, cause)
}

func (l *listener) take(e client.Event) error {
	l.at.After = max(l.at.After, e.ID)
	switch string(e.Kind) {
	case "message":
		l.takeMessage(e.Payload)
	case "gap":
		l.takeGap(e.Payload)
	case "status_update":
		if l.ticks != nil {
			l.ticks.status(e.Payload, l.run.now())
		}
	case "session":
		l.takeOpen(e.Payload)
	case "caught_up":
		if !l.caught {
			l.caught = true
			close(l.caughtUp)
		}
	case "send_message_ack":
		if e.ID != 0 {
			l.takeOwn(e.Payload)
		}
		if l.reply != nil {
			l.reply(e)
		}
	case "problem":
		if l.reply == nil || len(e.RequestID) == 0 {
			return fmt.Errorf("the server sent a problem: %s", client.Shorten(e.Payload))
		}
		l.reply(e)
	}
	return nil
}

func (l *listener) takeMessage(payload []byte) {
	now := l.run.now()
	m := client.ParseMessage(payload)
	sent, digest, ok := client.ReadContent(m.Content)
	if !ok {
		l.check.Problem("%s got a message that the load never sent: %s",
			l.endpoint.User, client.Shorten(payload))
		return
	}
	if l.observe(m, digest, now) && l.delivered != nil {
		l.delivered.Add(now - sent)
	}
}

// takeOwn takes a confirmation that stands for the event of an own message. Its delivery is not
// measured, because the confirmation is.
func (l *listener) takeOwn(payload []byte) {
	m := client.ParseMessage(payload)
	l.observe(m, client.DigestOf(m.ClientMessageID), l.run.now())
}

// observe checks a message and acknowledges it. It reports whether the device did not have it.
func (l *listener) observe(m client.Message, digest uint64, now time.Duration) (fresh bool) {
	through, fresh := l.check.Observe(m.Chat, m.Sequence, digest)
	if fresh {
		l.fresh.Add(1)
		l.run.lastDelivery.Store(int64(now))
	}
	if l.acks != nil && through > 0 {
		l.acks.Received(m.Chat, through)
	}
	if fresh && l.all != nil && l.fresh.Load() == l.expected {
		close(l.all)
	}
	return fresh
}

func (l *listener) takeGap(payload []byte) {
	var chat []byte
	var from, to uint64
	o := client.NewObject(payload)
	for {
		key, value, ok := o.Next()
		if !ok {
			break
		}
		switch string(key) {
		case "chat_id":
			chat = client.Text(value)
		case "from_sequence":
			from = client.Number(value)
		case "to_sequence":
			to = client.Number(value)
		}
	}
	if through := l.check.Gap(chat, from, to); l.acks != nil && through > 0 {
		l.acks.Received(chat, through)
	}
}

func (l *listener) takeOpen(payload []byte) {
	o := client.NewObject(payload)
	for {
		key, value, ok := o.Next()
		if !ok {
			return
		}
		if string(key) == "session_id" {
			if session := string(client.Text(value)); session != l.at.Session {
				l.at = client.Position{Session: session}
				l.check.Reopened()
			}
		}
	}
}
