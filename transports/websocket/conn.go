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

// Conn is a WebSocket on a connection that was taken over: the only code that knows the library, which reads frames from the
// connection, and frames what is written into the buffer of a stream.Writer. Nothing is sent before Flush.
type Conn struct {
	net  net.Conn
	ws   *websocket.Conn
	out  stream.Writer
	pool *stream.Pool

	// framing is held while the library makes a frame, in memory.
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

// maxReason is how many bytes of a reason a close frame holds.
const maxReason = 123

// SendClose appends a close frame, after which no other frame can be appended. reason is cut to what a close frame holds.
func (c *Conn) SendClose(code int, reason string) error {
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Time{})
}

// Flush writes what was appended; see stream.Writer.Flush.
func (c *Conn) Flush() error { return c.out.Flush() }

// Await waits for a message, and returns a reader of it. While it waits the connection has no buffer but the library's. After
// an error every further call fails. The compiler inlines it, as it must stay: see connection.read.
func (c *Conn) Await() (text bool, r io.Reader, err error) {
	kind, r, err := c.ws.NextReader()
	return kind == websocket.TextMessage, r, err
}

// Message reads a message into a buffer of the pool, which the caller gives back.
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

// saidGoodbye reports whether reading failed because the client ended the session: close code 1000.
//
//rule:resume_lossless.goodbye-by-close-code
func saidGoodbye(err error) bool { return websocket.IsCloseError(err, websocket.CloseNormalClosure) }

// endedBy is the close code for a connection whose reading failed with err, though the server had not closed it.
func endedBy(err error) int {
	var closed *websocket.CloseError
	switch {
	case errors.Is(err, websocket.ErrReadLimit):
		return CloseTooLarge
	case errors.As(err, &closed) && closed.Code <= websocket.CloseTLSHandshake:
		return closed.Code
	case errors.As(err, &closed): // the client's own
		return websocket.CloseNoStatusReceived
	case refused(err):
		return websocket.CloseProtocolError
	default:
		return websocket.CloseAbnormalClosure
	}
}

// refused reports whether reading failed because of what the client sent, and not because the connection ended. A close frame that says so (1009,
// 1002) has been appended.
func refused(err error) bool {
	var closed *websocket.CloseError
	var broken net.Error
	return !errors.As(err, &closed) && !errors.As(err, &broken) && !errors.Is(err, net.ErrClosed)
}

// requestIDHeader is the header that names the request, in the answer to it.
const requestIDHeader = "X-Request-Id"

// upgrade makes a WebSocket of a request. Origins are looked at afterwards, so that the client learns why it is refused. An error is
// the client's fault, and nothing was answered; or, with taken true, the connection is gone.
func (c *Conn) upgrade(w http.ResponseWriter, r *http.Request, timeout time.Duration, frames *sync.Pool) (taken bool, err error) {
	u := websocket.Upgrader{
		ReadBufferSize:  256, // larger messages are read past it
		WriteBufferSize: 4 << 10,
		WriteBufferPool: frames,
		Subprotocols:    []string{Subprotocol},
		CheckOrigin:     func(*http.Request) bool { return true },
		Error:           func(http.ResponseWriter, *http.Request, int, error) {},
	}
	h := &hijack{ResponseWriter: w, conn: c, timeout: timeout}
	//rule:bounded_input.request-id-in-upgrade
	if c.ws, err = u.Upgrade(h, r, http.Header{requestIDHeader: w.Header()[requestIDHeader]}); err != nil {
		return c.net != nil, err
	}
	//rule:bounded_input.limit-frame
	c.ws.SetReadLimit(wire.MaxBody)
	return true, nil
}

// hijack hands the library a connection whose writes go to the buffer of the writer.
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

// corked keeps what is written until the writer is flushed.
type corked struct {
	net.Conn
	out *stream.Writer
}

// Write implements net.Conn.
func (c *corked) Write(p []byte) (int, error) { return c.out.Write(p) }

// SetWriteDeadline implements net.Conn: the deadline is the writer's.
func (c *corked) SetWriteDeadline(time.Time) error { return nil }
