package websocket

import (
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/transports/internal/stream"
)

// Conn is a WebSocket on a connection that was taken over. What it sends goes into the buffer of a
// stream.Writer; Flush sends it.
type Conn struct {
	net  net.Conn
	in   receiver
	out  stream.Writer
	pool *stream.Pool

	// sending is held while a frame is appended.
	sending sync.Mutex
	// closed says that a close frame was appended.
	closed bool
}

// errClosed is the error of a frame after the close frame.
var errClosed = errors.New("the server has sent a close frame")

// append appends a frame. It never blocks.
func (c *Conn) append(o opcode, payload []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if c.closed {
		return errClosed
	}
	c.closed = o == opClose
	var b [10]byte
	return c.out.Append(appendHead(b[:0], o, len(payload)), payload)
}

// Send appends a text frame. It never blocks.
func (c *Conn) Send(text []byte) error { return c.append(opText, text) }

// Ping appends a ping.
func (c *Conn) Ping() error { return c.append(opPing, nil) }

// Pong appends the answer to a ping.
func (c *Conn) Pong(data []byte) error { return c.append(opPong, data) }

// SendClose appends a close frame. No other frame can be appended after it. reason is cut to
// maxReason.
func (c *Conn) SendClose(code int, reason string) error {
	return c.append(opClose, appendClose(nil, code, reason))
}

// Flush writes what was appended (stream.Writer.Flush).
func (c *Conn) Flush() error { return c.out.Flush() }

// closedByClient reports whether reading failed because the client ended the session with close
// code 1000.
//
//rule:resume_lossless.goodbye-by-close-code
func closedByClient(err error) bool { return clientCode(err) == codeNormal }

// clientCode returns the code of the client's close frame, or 0 if reading failed for another
// reason.
func clientCode(err error) int {
	var closed *closing
	if errors.As(err, &closed) {
		return closed.code
	}
	return 0
}

// endedBy returns the close code of a connection that the server did not close. err is the error of
// its last read.
func endedBy(err error) int {
	var refused *refusal
	switch code := clientCode(err); {
	case errors.As(err, &refused):
		return refused.code
	case code == 0:
		return codeAbnormal
	case code > codeLast: // a code of the client's own
		return codeNoStatus
	default:
		return code
	}
}

// requestIDHeader is the header of the answer that has the request's id.
const requestIDHeader = "X-Request-Id"

// upgrade turns a request into a WebSocket. It does not check the origin, because a refusal after
// the upgrade can tell the client why. An error is the client's fault. Then nothing was answered if
// taken is false; otherwise the connection is gone.
func (c *Conn) upgrade(
	w http.ResponseWriter, r *http.Request, timeout time.Duration,
) (taken bool, err error) {
	answer, err := handshake(r)
	if err != nil {
		return false, err
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false, err
	}
	c.net = conn
	c.out.Init(conn, c.pool, timeout)
	if rw.Reader.Buffered() > 0 {
		return true, errors.New("the client sent frames before the handshake was over")
	}
	_ = conn.SetDeadline(time.Time{}) // net/http may have set one
	c.in.init(conn, c.pool)
	//rule:bounded_input.request-id-in-upgrade
	answer[requestIDHeader] = w.Header()[requestIDHeader]
	return true, c.out.Append(stream.AppendHead(nil, http.StatusSwitchingProtocols, answer))
}
