package sse

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/auth"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// connection is one open stream. While it is idle it has two goroutines: one waits in Next, one waits for the client's close.
type connection struct {
	adapter *Adapter
	session *server.Connection
	// pass is its place among those who catch up.
	pass *limit.Pass
	// identity is who listens; when it expires the stream ends.
	identity auth.Identity
	// chunked says that the answer has the chunked transfer coding.
	chunked bool
	// comeBack is what Stop said.
	comeBack atomic.Int64

	out   stream.Writer
	heart stream.Heartbeat
	// ctx ends with the stream; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// setHead sets the fields of the answer's head.
func setHead(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// serveConn serves the stream on a connection that was taken over, and returns at once.
func (c *connection) serveConn(conn net.Conn, r *http.Request, h http.Header) {
	c.chunked = r.ProtoAtLeast(1, 1)
	if c.chunked {
		h.Set("Transfer-Encoding", "chunked")
	}
	c.start(conn)
	_ = c.out.Append(stream.AppendHead(nil, http.StatusOK, h)) // a failure shows at the first flush
	c.write(retryLine(0))
	c.adapter.group.Go(func() { c.awaitClose(conn) })
	c.adapter.group.Go(func() {
		if c.catchUp() {
			c.adapter.group.Go(c.follow)
		}
	})
}

// serveResponse serves the stream through net/http, and returns when it has ended.
func (c *connection) serveResponse(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	// or the client has gone, which the write will tell
	defer context.AfterFunc(r.Context(), func() { c.cancel(errStopping) })()
	c.start(&response{w: w, control: http.NewResponseController(w)})
	c.write(retryLine(0))
	if c.catchUp() {
		c.follow()
	}
}

func (c *connection) start(conn stream.Conn) {
	c.out.Init(conn, &c.adapter.pool, c.adapter.cfg.WriteTimeout)
	c.heart.Start(&c.adapter.group, c.untilBeat(), c.beat)
}

// catchUp writes the events that are due, and reports whether the stream goes on. That takes a deep stack, which would stay: so a connection that was taken
// over waits for what follows on another goroutine, and an idle one has a small stack.
func (c *connection) catchUp() bool {
	defer c.pass.Leave()
	for {
		n, err := c.pump(false)
		if err != nil {
			c.finish(err)
			return false
		}
		if n == 0 {
			return true
		}
	}
}

// follow writes events until the stream ends, and cleans up.
func (c *connection) follow() {
	err := c.session.Wait(c.ctx)
	for err == nil {
		_, err = c.pump(true)
	}
	c.finish(err)
}

// finish ends the stream, which failed with err, and everything of the connection.
func (c *connection) finish(err error) {
	if c.ctx.Err() != nil {
		err = context.Cause(c.ctx)
	}
	c.adapter.cfg.Logger.Debug("an event stream ended",
		"session", c.session.Session(), "reason", err)
	c.heart.Stop()
	c.sayGoodbye(err)
	c.out.Close()
	c.session.Detach()
	c.adapter.cfg.Auth.Leave(c.identity, c.session.Session())
	c.cancel(errClientGone)
	c.adapter.group.Remove(c)
}

// pump writes a batch of the session's events in one flush, and returns how many. If there is none, it waits for one, or returns 0.
func (c *connection) pump(wait bool) (int, error) {
	events, err := c.session.Next(c.ctx, nil, wait)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	return len(events), c.pass.During(func() error {
		if err := c.out.Wait(); err != nil {
			return err
		}
		c.writeEvents(events)
		return c.out.Flush()
	})
}

func (c *connection) writeEvents(events []tidemark.Event) {
	b := c.adapter.pool.Get()
	for _, ev := range events {
		*b = wire.AppendSSE(*b, c.session.Session(), ev)
	}
	c.write(*b)
	c.adapter.pool.Put(b)
}

// write appends a piece of the stream. If the connection has failed the next Flush tells.
func (c *connection) write(p []byte) {
	if !c.chunked {
		_ = c.out.Append(p)
		return
	}
	var size [18]byte
	head := strconv.AppendInt(size[:0], int64(len(p)), 16)
	_ = c.out.Append(append(head, '\r', '\n'), p, []byte("\r\n"))
}

// sayGoodbye tells the client why the stream ends, if it is still there, and ends the answer.
func (c *connection) sayGoodbye(err error) {
	var stated *tidemark.Error
	switch {
	case errors.Is(err, errClientGone):
		return
	case errors.Is(err, errStopping), tidemark.CodeOf(err) == tidemark.Unavailable:
		// EventSource reconnects by itself, after this time.
		c.write(retryLine(time.Duration(c.comeBack.Load())))
	case errors.As(err, &stated):
		c.writeEvents([]tidemark.Event{
			{Type: tidemark.EventError, Payload: wire.ErrorEvent("", stated).AppendJSON(nil)},
		})
	default: // the connection failed
		return
	}
	if c.chunked {
		_ = c.out.Append([]byte("0\r\n\r\n"))
	}
	_ = c.out.Drain()
}

// awaitClose waits for the client to close its side, and ends the stream if it has gone. What it sends is ignored.
func (c *connection) awaitClose(conn net.Conn) {
	ignored := make([]byte, 16)
	for {
		switch _, err := conn.Read(ignored); {
		case errors.Is(err, io.EOF):
			c.probe()
			return
		case err != nil:
			c.cancel(errClientGone)
			return
		}
	}
}

// probe finds out whether a client that has closed its side has gone, or only says that it will send no more: the system of one that has gone answers what
// it is sent by a reset, so that the write after that fails. Who still reads keeps its stream.
func (c *connection) probe() {
	for _, pause := range []time.Duration{0, 250 * time.Millisecond, 2 * time.Second} {
		if !signal.Pause(c.ctx, pause) {
			return
		}
		c.write([]byte(":\n\n"))
		if c.out.Flush() != nil {
			c.cancel(errClientGone)
			return
		}
	}
}

// beat writes a comment, so that neither proxies nor the client take the stream for dead; and it ends the stream of credentials
// that have ended.
func (c *connection) beat() time.Duration {
	//rule:credentials_end.end-sse-stream
	if err := c.identity.Ended(); err != nil {
		c.cancel(err)
		return 0
	}
	if !c.out.Busy() {
		c.write([]byte(":\n\n"))
		if c.out.Flush() != nil {
			return 0
		}
	}
	return c.untilBeat()
}

// untilBeat is somewhat less than the heartbeat, which is the longest silence, and ends with the token.
func (c *connection) untilBeat() time.Duration {
	d := c.adapter.cfg.Server.Heartbeat() * 9 / 10
	if !c.identity.Expires.IsZero() {
		d = min(d, max(time.Until(c.identity.Expires), time.Millisecond))
	}
	return d
}

// Stop implements stream.Member.
func (c *connection) Stop(comeBack time.Duration) {
	c.comeBack.Store(int64(comeBack))
	c.cancel(errStopping)
}

// Abort implements stream.Member.
func (c *connection) Abort() {
	c.cancel(errClientGone)
	c.out.Close()
}

// response writes through net/http, where a connection carries several streams.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Write implements stream.Conn: each batch leaves at once.
func (r *response) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, r.control.Flush()
}

// SetWriteDeadline implements stream.Conn.
func (r *response) SetWriteDeadline(t time.Time) error {
	if err := r.control.SetWriteDeadline(t); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Close implements stream.Conn. The stream ends when the handler returns.
func (r *response) Close() error { return nil }
