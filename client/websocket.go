package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark"
)

// subprotocol is that of the server's WebSocket.
const subprotocol = "tidemark.v1"

// maxEvent bounds an event in bytes. A message with the longest escapes is below it.
const maxEvent = 1 << 20

// The close codes that mean something to a client (docs/api.md).
const (
	closeUnsupported     websocket.StatusCode = 1003
	closeNotText         websocket.StatusCode = 1007
	closeInvalid         websocket.StatusCode = 1008
	closeRestarting      websocket.StatusCode = 1012
	closeBusy            websocket.StatusCode = 1013
	closeUnauthenticated websocket.StatusCode = 4401
	closeDenied          websocket.StatusCode = 4403
	closeReplaced        websocket.StatusCode = 4409
	closeTooMany         websocket.StatusCode = 4429
)

// webSocket is a stream over WebSocket. Only its writes may come from other goroutines.
type webSocket struct {
	c     *Client
	token string
	at    position
	watch *watch
	// conn is nil until it is connected.
	conn atomic.Pointer[websocket.Conn]
	// came reports that the session has come.
	came atomic.Bool
}

// next implements stream.
func (s *webSocket) next(ctx context.Context) (event, error) {
	conn := s.conn.Load()
	if conn == nil {
		var err error
		if conn, err = s.connect(ctx); err != nil {
			return event{}, err
		}
	}
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return event{}, closed(err)
		}
		s.watch.heard(s.c.timing.session)
		var e event
		if err := json.Unmarshal(frame, &e); err != nil {
			return event{}, fail(lost, err, "a frame is not JSON")
		}
		switch e.Type {
		case eventHello:
			continue
		case tidemark.EventSession:
			s.came.Store(true)
		}
		return e, nil
	}
}

// connect makes the connection.
func (s *webSocket) connect(ctx context.Context) (*websocket.Conn, error) {
	header := http.Header{}
	s.c.sign(header, s.token)
	//nolint:bodyclose // the library closes it
	conn, response, err := websocket.Dial(ctx,
		s.c.base+"/ws?"+s.at.query(s.c.cfg.Device).Encode(), &websocket.DialOptions{
			HTTPClient:   s.c.http,
			HTTPHeader:   header,
			Subprotocols: []string{subprotocol},
			OnPingReceived: func(context.Context, []byte) bool {
				s.watch.heard(s.c.timing.session)
				return true
			},
		})
	switch {
	case err != nil && response != nil && response.Body != nil:
		body, _ := io.ReadAll(response.Body) // it is in memory
		if f := answered(response.StatusCode, response.Header, body); f != nil {
			return nil, f
		}
		return nil, fail(blocked, err, "no upgrade")
	case err != nil && response != nil:
		return nil, fail(blocked, err, "no upgrade")
	case err != nil:
		return nil, fail(lost, err, "no connection")
	}
	if conn.Subprotocol() != subprotocol {
		_ = conn.CloseNow()
		return nil, fail(blocked, nil, "the upgrade does not come from a Tidemark server")
	}
	conn.SetReadLimit(maxEvent)
	s.conn.Store(conn)
	return conn, nil
}

// open implements framer.
func (s *webSocket) open() bool { return s.came.Load() }

// writeWithin bounds the sending of a frame.
const writeWithin = 10 * time.Second

// write implements framer. A frame that is not sent in time breaks the connection.
func (s *webSocket) write(ctx context.Context, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	return s.conn.Load().Write(ctx, websocket.MessageText, frame)
}

// close implements stream.
func (s *webSocket) close() {
	if conn := s.conn.Load(); conn != nil {
		_ = conn.CloseNow()
	}
}

// closed returns the failure of a connection that ended.
func closed(err error) error {
	var end websocket.CloseError
	if !errors.As(err, &end) {
		return fail(lost, err, "the connection broke")
	}
	f := fail(lost, err, "the server closed with %d %s", end.Code, end.Reason)
	_, seconds, _ := strings.Cut(end.Reason, "retry-after=")
	if n, err := strconv.ParseFloat(seconds, 64); err == nil && n > 0 && n < 1e6 {
		f.after = bounded(time.Duration(n * float64(time.Second)))
	}
	switch end.Code {
	case closeUnsupported, closeNotText, closeInvalid:
		f.ending, f.err.Code = refused, tidemark.Invalid
	case closeDenied:
		f.ending, f.err.Code = refused, tidemark.Denied
	case closeRestarting, closeBusy:
		f.ending = busy
	case closeTooMany:
		f.ending, f.err.Code = busy, tidemark.Exhausted
	case closeUnauthenticated:
		f.ending, f.err.Code = unauthenticated, tidemark.Unauthenticated
	case closeReplaced:
		f.ending, f.err.Code = replaced, tidemark.Replaced
	}
	return f
}
