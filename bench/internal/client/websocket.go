package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Socket is a minimal WebSocket client (RFC 6455, no extensions).
// One goroutine reads. Any goroutine may write: a frame is one Write of a net.Conn, which runs one
// Write at a time. The mask of a frame is 0, which is valid and needs no work here. The server's
// work stays the same.
type Socket struct {
	nc      net.Conn
	br      *bufio.Reader
	message []byte
	stop    func() bool
}

// The opcodes. OpText is that of a text frame.
const (
	opContinuation = 0x0
	OpText         = 0x1
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa
)

// maxFrame is the greatest length of a frame in bytes.
// It exceeds every event of the server, even an escaped message of 64 KiB.
const maxFrame = 1 << 20

// DialSocket connects a user. If at is not zero, it resumes their session there.
func DialSocket(ctx context.Context, e Endpoint, at Position) (*Socket, error) {
	nc, err := e.URL.dial(ctx, e.Received)
	if err != nil {
		return nil, err
	}
	w := &Socket{nc: nc, br: bufio.NewReaderSize(nc, e.Buffer)}
	w.stop = context.AfterFunc(ctx, func() { _ = nc.Close() })
	if err := w.upgrade(e, at); err != nil {
		w.end()
		return nil, fmt.Errorf("websocket of %s: %w", e.User, err)
	}
	return w, nil
}

func (w *Socket) upgrade(e Endpoint, at Position) error {
	query := "?" + at.query()
	if e.Confirm {
		query += "&own=confirm"
	}
	request := fmt.Sprintf("GET %s/api/v1/ws%s HTTP/1.1\r\nHost: %s\r\n"+
		"Authorization: Bearer %s\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGlkZW1hcmstYmVuY2gtMQ==\r\n"+
		"Sec-WebSocket-Protocol: tidemark.v1\r\n\r\n",
		e.URL.path, query, e.URL.host, e.Token)
	if err := w.nc.SetDeadline(time.Now().Add(AnswerTimeout)); err != nil {
		return err
	}
	if _, err := io.WriteString(w.nc, request); err != nil {
		return err
	}
	response, err := http.ReadResponse(w.br, nil)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		body, _ := readAll(response.Body, nil)
		return &Refused{Call: "the upgrade", Status: response.StatusCode, Body: Shorten(body)}
	}
	return w.nc.SetDeadline(time.Time{})
}

// Next returns the next event, and answers pings on the way.
func (w *Socket) Next() (Event, error) {
	w.message = w.message[:0]
	for {
		final, opcode, payload, err := w.frame()
		if err != nil {
			return Event{}, err
		}
		switch opcode {
		case opPing:
			if err := w.Write(opPong, payload); err != nil {
				return Event{}, err
			}
		case opPong:
		case opClose:
			_ = w.Write(opClose, payload)
			return Event{}, closed(payload)
		case OpText, opContinuation:
			if final {
				return parseEvent(w.message)
			}
		default:
			return Event{}, fmt.Errorf("the server sent a frame of opcode %d", opcode)
		}
	}
}

// frame reads one frame. It appends data to w.message, and returns the payload of a control frame.
func (w *Socket) frame() (final bool, opcode byte, control []byte, err error) {
	head, err := w.take(2)
	if err != nil {
		return false, 0, nil, err
	}
	final, opcode = head[0]&0x80 != 0, head[0]&0x0f
	if head[0]&0x70 != 0 || head[1]&0x80 != 0 {
		return false, 0, nil, fmt.Errorf("the server sent a frame with reserved bits or a mask: "+
			"% x", head)
	}
	n := int(head[1])
	switch n {
	case 126:
		long, err := w.take(2)
		if err != nil {
			return false, 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(long))
	case 127:
		long, err := w.take(8)
		if err != nil {
			return false, 0, nil, err
		}
		n = int(min(binary.BigEndian.Uint64(long), maxFrame+1))
	}
	if n > maxFrame {
		return false, 0, nil, fmt.Errorf("the server sent a frame of more than %d bytes", maxFrame)
	}
	if opcode >= opClose {
		control = make([]byte, n)
		_, err = io.ReadFull(w.br, control)
		return final, opcode, control, err
	}
	start := len(w.message)
	w.message = append(w.message, make([]byte, n)...)
	_, err = io.ReadFull(w.br, w.message[start:])
	return final, opcode, nil, err
}

func (w *Socket) take(n int) ([]byte, error) {
	b, err := w.br.Peek(n)
	if err != nil {
		return nil, err
	}
	_, err = w.br.Discard(n)
	return b, err
}

// Write sends one frame.
func (w *Socket) Write(opcode byte, payload []byte) error {
	frame := make([]byte, 0, len(payload)+14)
	frame = append(frame, 0x80|opcode)
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, 0x80|byte(n))
	case n < 1<<16:
		frame = append(frame, 0x80|126)
		frame = binary.BigEndian.AppendUint16(frame, uint16(n))
	default:
		frame = append(frame, 0x80|127)
		frame = binary.BigEndian.AppendUint64(frame, uint64(n))
	}
	frame = append(frame, 0, 0, 0, 0)
	frame = append(frame, payload...)
	if err := w.nc.SetWriteDeadline(time.Now().Add(AnswerTimeout)); err != nil {
		return err
	}
	_, err := w.nc.Write(frame)
	return err
}

// Close closes the connection with code 1000, so that the server ends the session.
// It does not wait for the server's close frame.
func (w *Socket) Close() {
	_ = w.Write(opClose, []byte{0x03, 0xe8})
	w.end()
}

// Leave is Close, but it returns when the server has closed the connection. The server does that
// after it has closed the session. ended is closed when the last call of Next has returned.
func (w *Socket) Leave(ended <-chan struct{}) {
	_ = w.nc.SetReadDeadline(time.Now().Add(AnswerTimeout))
	_ = w.Write(opClose, []byte{0x03, 0xe8})
	<-ended
	_, _ = io.Copy(io.Discard, w.br)
	w.end()
}

// end closes the connection without a close frame.
func (w *Socket) end() {
	w.stop()
	_ = w.nc.Close()
}

func closed(payload []byte) error {
	if len(payload) < 2 {
		return fmt.Errorf("the server closed the connection without a code")
	}
	err := fmt.Errorf("the server closed the connection with %d %q",
		binary.BigEndian.Uint16(payload), payload[2:])
	_, after, _ := strings.Cut(string(payload[2:]), "retry-after=")
	seconds, parsed := strconv.ParseFloat(after, 64)
	if parsed != nil {
		return err
	}
	return later(time.Duration(seconds*float64(time.Second)), err)
}
