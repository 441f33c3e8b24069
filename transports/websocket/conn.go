package websocket

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// Conn is a WebSocket on a connection that was taken over. Only Conn knows the library, which reads
// frames from the connection. What the library writes goes into the buffer of a stream.Writer;
// Flush sends it.
type Conn struct {
	net  net.Conn
	ws   *websocket.Conn
	out  stream.Writer
	pool *stream.Pool

	// framing is held while the library builds a frame in memory.
	framing sync.Mutex
}

// Send appends a text frame. It never blocks.
func (c *Conn) Send(text []byte) error {
	c.framing.Lock()
	defer c.framing.Unlock()
	return c.ws.WriteMessage(websocket.TextMessage, text)
}

// Ping appends a ping.
func (c *Conn) Ping() error { return c.ws.WriteControl(websocket.PingMessage, nil, time.Time{}) }

// Pong appends the answer to a ping.
func (c *Conn) Pong(data string) error {
	return c.ws.WriteControl(websocket.PongMessage, []byte(data), time.Time{})
}

// maxReason is the largest length of a close frame's reason, in bytes.
const maxReason = 123

// SendClose appends a close frame. No other frame can be appended after it. reason is cut to
// maxReason.
func (c *Conn) SendClose(code int, reason string) error {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason),
		time.Time{})
}

// Flush writes what was appended (stream.Writer.Flush).
func (c *Conn) Flush() error { return c.out.Flush() }

// Await waits for a message and returns a reader of it. While it waits, the connection has no
// buffer but the library's. After an error every further call fails. The compiler must be able to
// inline it (connection.read).
func (c *Conn) Await() (text bool, r io.Reader, err error) {
	kind, r, err := c.ws.NextReader()
	return kind == websocket.TextMessage, r, err
}

// Message reads a message into a buffer of the pool. The caller must put the buffer back.
func (c *Conn) Message(r io.Reader) (*[]byte, error) {
	b := c.pool.Get()
	if err := readAll(b, r); err != nil {
		c.pool.Put(b)
		return nil, err
	}
	return b, nil
}

func readAll(b *[]byte, r io.Reader) error {
	for {
		if len(*b) == cap(*b) {
			*b = append(*b, 0)[:len(*b)]
		}
		n, err := r.Read((*b)[len(*b):cap(*b)])
		*b = (*b)[:len(*b)+n]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// closedByClient reports whether reading failed because the client ended the session with close
// code 1000.
//
//rule:resume_lossless.goodbye-by-close-code
func closedByClient(err error) bool {
	return websocket.IsCloseError(err, websocket.CloseNormalClosure)
}

// endedBy returns the close code of a connection that the server did not close. err is the error of
// its last read.
func endedBy(err error) int {
	var closed *websocket.CloseError
	switch {
	case errors.Is(err, websocket.ErrReadLimit):
		return CloseTooLarge
	case errors.As(err, &closed) && closed.Code <= websocket.CloseTLSHandshake:
		return closed.Code
	case errors.As(err, &closed): // a code of the client's own
		return websocket.CloseNoStatusReceived
	case refused(err):
		return websocket.CloseProtocolError
	default:
		return websocket.CloseAbnormalClosure
	}
}

// refused reports whether reading failed because of what the client sent, and not because the
// connection ended. The library has then appended a close frame with the reason (1009 or 1002).
func refused(err error) bool {
	var closed *websocket.CloseError
	var broken net.Error
	return !errors.As(err, &closed) && !errors.As(err, &broken) && !errors.Is(err, net.ErrClosed)
}

// requestIDHeader is the header of the answer that has the request's id.
const requestIDHeader = "X-Request-Id"

// upgrade turns a request into a WebSocket. It does not check the origin, because a refusal after
// the upgrade can tell the client why. An error is the client's fault. Then nothing was answered if
// taken is false; otherwise the connection is gone.
func (c *Conn) upgrade(
	w http.ResponseWriter, r *http.Request, timeout time.Duration, frames *sync.Pool,
) (taken bool, err error) {
	u := websocket.Upgrader{
		ReadBufferSize:  256, // larger messages bypass it
		WriteBufferSize: 4 << 10,
		WriteBufferPool: frames,
		Subprotocols:    []string{Subprotocol},
		CheckOrigin:     func(*http.Request) bool { return true },
		Error:           func(http.ResponseWriter, *http.Request, int, error) {},
	}
	h := &hijack{ResponseWriter: w, conn: c, timeout: timeout}
	//rule:bounded_input.request-id-in-upgrade
	if c.ws, err = u.Upgrade(h, r,
		http.Header{requestIDHeader: w.Header()[requestIDHeader]}); err != nil {
		return c.net != nil, err
	}
	//rule:bounded_input.limit-frame
	c.ws.SetReadLimit(wire.MaxBody)
	return true, nil
}

// hijack gives the library a connection whose writes go into the writer's buffer.
type hijack struct {
	http.ResponseWriter
	conn    *Conn
	timeout time.Duration
}

// Hijack implements http.Hijacker.
func (h *hijack) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn.net = conn
	h.conn.out.Init(conn, h.conn.pool, h.timeout)
	return &corked{Conn: conn, out: &h.conn.out}, rw, nil
}

// corked is a connection that keeps what is written until the writer is flushed.
type corked struct {
	net.Conn
	out *stream.Writer
}

// Write implements net.Conn.
func (c *corked) Write(p []byte) (int, error) { return c.out.Write(p) }

// SetWriteDeadline implements net.Conn. It does nothing, because the writer sets the deadlines.
func (c *corked) SetWriteDeadline(time.Time) error { return nil }
