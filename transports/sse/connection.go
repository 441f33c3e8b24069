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
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// connection is one open stream. If it was taken over from net/http, it has one goroutine while it
// is idle, which waits for the client to close. The writer ends the stream.
type connection struct {
	adapter *Adapter
	// session is nil until it is open.
	session *server.Connection
	// pass is the client's place among those that catch up.
	pass *limit.Pass
	// identity is the caller. The stream ends when their credentials do.
	identity auth.Identity
	// chunked is true if the answer has the chunked transfer coding.
	chunked bool
	// closed becomes true when the client closes its side. It is set only if the connection was
	// taken over.
	closed atomic.Bool
	// retryAfter is the argument of Stop.
	retryAfter atomic.Int64

	out       stream.Writer
	heartbeat stream.Heartbeat
	// writer writes events. It is not started if net/http has the connection.
	writer signal.Runner
	// ctx ends with the stream. Its cause is the reason. Only end ends it.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// lone is a comment between two events.
const lone = ":\n\n"

// setHead sets the header fields of the answer.
func setHead(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// serveConn serves the stream on a connection that was taken over. It returns when the session is
// open.
func (c *connection) serveConn(
	conn net.Conn, r *http.Request, req wire.Stream, h http.Header,
) {
	c.chunked = r.ProtoAtLeast(1, 1)
	if c.chunked {
		h.Set("Transfer-Encoding", "chunked")
	}
	c.start(conn)
	_ = c.out.Append(stream.AppendHead(nil, http.StatusOK, h)) // a failure shows at the first flush
	c.adapter.group.Go(func() { c.awaitClose(conn) })
	if !c.open(r, req, c.closed.Load) {
		return
	}
	c.session.Follow(&c.writer)
	c.writer.Start(&c.adapter.group.Pool, c.writeNext)
}

// serveResponse serves the stream through net/http. It returns when the stream has ended.
func (c *connection) serveResponse(w http.ResponseWriter, r *http.Request, req wire.Stream) {
	w.WriteHeader(http.StatusOK)
	// The request's context ends if the server stops or the client goes. In the latter case the
	// next write fails.
	defer context.AfterFunc(r.Context(), func() { c.end(errStopping) })()
	c.start(stream.NewResponse(w))
	if !c.open(r, req, stream.Left(r)) {
		return
	}
	for left := signal.More; left != signal.Over; left = c.writeNext() {
		if left == signal.Nothing {
			_ = c.session.Wait(c.ctx) // writeNext sees that ctx has ended
		}
	}
}

// open sends the first bytes of the stream, and opens the session. It reports whether the stream
// goes on. left reports whether the client has closed its side.
func (c *connection) open(r *http.Request, req wire.Stream, left func() bool) bool {
	//rule:bounded_use.head-before-waiting
	if c.writeComment(":\n") != nil { // it begins the first block, which retryLine continues
		c.finish(errClientGone)
		return false
	}
	var err error
	c.session, c.pass, err = c.adapter.opener().Open(c.ctx, r, c.identity, req, left)
	if err != nil {
		c.finish(err)
		return false
	}
	c.write(retryLine(0))
	return true
}

func (c *connection) start(conn stream.Conn) {
	c.out.Init(conn, &c.adapter.pool, c.adapter.cfg.WriteTimeout)
	c.heartbeat.Start(&c.adapter.group, c.untilHeartbeat(), c.onHeartbeat)
}

// writeNext writes a batch of the session's events. If the stream has ended, it calls finish, and
// returns Over.
func (c *connection) writeNext() signal.Left {
	n, err := c.pump()
	if err != nil {
		c.pass.Leave()
		c.finish(err)
		return signal.Over
	}
	if n == 0 {
		c.pass.Leave()
		return signal.Nothing
	}
	return signal.More
}

// end makes the writer end the stream. The first err is the reason.
func (c *connection) end(err error) {
	c.cancel(err)
	c.writer.Set()
}

// finish ends the stream, for which err is the reason, and releases what the connection holds.
func (c *connection) finish(err error) {
	if c.ctx.Err() != nil {
		err = context.Cause(c.ctx)
	}
	c.heartbeat.Stop()
	c.writeEnd(err)
	c.out.Close()
	var session tidemark.SessionID
	if c.session != nil {
		session = c.session.Session()
		c.session.Detach()
		c.adapter.cfg.Auth.Leave(c.identity, session)
	}
	c.adapter.cfg.Logger.Debug("an event stream ended", "session", session, "reason", err)
	c.end(errClientGone)
	c.adapter.group.Remove(c)
}

// pump writes a batch of the session's events in one flush and returns their number.
func (c *connection) pump() (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	events, err := c.session.Next(c.ctx, nil, false)
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

// writeComment sends a comment, which clients ignore. Its error is that of the connection.
func (c *connection) writeComment(comment string) error {
	c.write([]byte(comment))
	return c.out.Flush()
}

// write appends a part of the stream. If the connection has failed, the next Flush returns the
// error.
func (c *connection) write(p []byte) {
	if !c.chunked {
		_ = c.out.Append(p)
		return
	}
	var size [18]byte
	head := strconv.AppendInt(size[:0], int64(len(p)), 16)
	_ = c.out.Append(append(head, '\r', '\n'), p, []byte("\r\n"))
}

// writeEnd writes why the stream ends, if the client is still there, and ends the answer.
func (c *connection) writeEnd(err error) {
	// EventSource reconnects on its own after the time of the retry line.
	var stated *tidemark.Error
	switch {
	case errors.Is(err, errClientGone):
		return
	case errors.Is(err, errStopping),
		c.session != nil && tidemark.CodeOf(err) == tidemark.Unavailable:
		c.write(retryLine(time.Duration(c.retryAfter.Load())))
	case errors.As(err, &stated):
		c.adapter.errors.Add(stated.Code)
		var b []byte
		switch {
		case stated.Code == tidemark.Replaced, stated.Code == tidemark.Denied:
			//rule:resume_lossless.replaced-stream-stays-away
			b = retryLine(replacedRetry)
		case c.session == nil:
			//rule:bounded_use.refused-stream-says-when
			b = retryLine(problem.Delay(err))
		}
		c.write(wire.AppendSSE(b, "", tidemark.Event{
			Type: tidemark.EventProblem, Payload: wire.ProblemOf(stated).AppendJSON(nil),
		}))
	default: // the connection failed
		return
	}
	if c.chunked {
		_ = c.out.Append([]byte("0\r\n\r\n"))
	}
	_ = c.out.Drain()
}

// awaitClose waits until the client closes its side, and sets closed. It ends the stream if the
// client has gone. It ignores what the client sends.
func (c *connection) awaitClose(conn net.Conn) {
	ignored := make([]byte, 16)
	for {
		switch _, err := conn.Read(ignored); {
		case errors.Is(err, io.EOF):
			//rule:resume_lossless.closed-client-takes-nothing
			c.closed.Store(true)
			c.probe()
			return
		case err != nil:
			c.end(errClientGone)
			return
		}
	}
}

// probe finds out whether a client that closed its side has gone or only closed its write side. It
// writes comments: the system of a client that has gone answers with a reset, and the next write
// fails. A client that still reads keeps its stream.
func (c *connection) probe() {
	for _, pause := range []time.Duration{0, 250 * time.Millisecond, 2 * time.Second} {
		if !signal.Pause(c.ctx, pause) {
			return
		}
		if c.writeComment(lone) != nil {
			c.end(errClientGone)
			return
		}
	}
}

// onHeartbeat writes a comment, so that proxies and the client see that the stream is alive. It
// ends the stream if the credentials have ended. It returns the time until the next heartbeat.
func (c *connection) onHeartbeat() time.Duration {
	//rule:credentials_end.end-sse-stream
	if err := c.identity.Ended(); err != nil {
		c.end(err)
		return 0
	}
	if !c.out.Busy() && c.writeComment(lone) != nil {
		c.end(errClientGone)
		return 0
	}
	return c.untilHeartbeat()
}

// untilHeartbeat returns the time until the next heartbeat: a little less than the server's, which
// bounds the silence, and at most until the token ends.
func (c *connection) untilHeartbeat() time.Duration {
	d := c.adapter.cfg.Server.Heartbeat() * 9 / 10
	if !c.identity.Expires.IsZero() {
		d = min(d, max(time.Until(c.identity.Expires), time.Millisecond))
	}
	return d
}

// Stop implements stream.Member.
func (c *connection) Stop(retryAfter time.Duration) {
	c.retryAfter.Store(int64(retryAfter))
	c.end(errStopping)
}

// Abort implements stream.Member.
func (c *connection) Abort() {
	c.end(errClientGone)
	c.out.Close()
}
