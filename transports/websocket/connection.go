package websocket

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

const (
	// maxUnanswered is how many pings in a row a client may leave unanswered.
	maxUnanswered = 2
	// maxPartial is how many heartbeats a message may take to arrive as a whole.
	maxPartial = 3
)

// connection is one open WebSocket. While it is idle it has one goroutine, which waits for frames
// and ends the connection. All that ends a connection makes that goroutine return from its read.
type connection struct {
	adapter  *Adapter
	conn     Conn
	identity auth.Identity
	// session is nil if the connection was refused and only waits until the client has seen the
	// close frame.
	session *server.Connection
	// confirms says that the client wants confirmations in place of its own messages' events.
	confirms bool
	// pass is the client's place among those that catch up.
	pass *limit.Pass

	ctx       context.Context
	cancel    context.CancelFunc
	heartbeat stream.Heartbeat
	// work is nil until the client sends its first request.
	work *batch.Keyed[string, wire.Frame]
	// writer writes events. running counts it until it is over.
	writer  signal.Runner
	running sync.WaitGroup
	// unanswered is the number of pings since the client last sent something.
	unanswered atomic.Int32
	// partial is 0 between messages. During a message it is 1 more than the heartbeats since it
	// began.
	partial atomic.Int32
	// unnamed is the number of requests without a request_id. It names them in logs.
	unnamed atomic.Uint32

	mu sync.Mutex
	// ready is true once the upgrade is done and close frames can be sent.
	ready bool
	// closing is true once the server has sent a close frame. What the client still sends is
	// ignored.
	closing bool
}

func newConnection(a *Adapter) *connection {
	c := &connection{adapter: a}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.conn.pool = &a.pool
	return c
}

// start opens the session of an upgraded connection and starts the connection's goroutines.
func (c *connection) start(r *http.Request) {
	_ = c.conn.Flush() // a failure shows at the first read
	c.mu.Lock()
	c.ready = true
	stopped := c.closing
	c.closing = false
	c.mu.Unlock()
	var err error
	if !stopped {
		err = c.open(r)
	}
	switch {
	case stopped:
		c.Stop(problem.Delay(stream.Restarting()))
	case err != nil:
		c.end(closeCode(err), closeReason(err))
	default:
		c.running.Add(1)
		c.session.Follow(&c.writer)
		c.writer.Start(&c.adapter.group.Pool, c.write)
		c.heartbeat.Start(&c.adapter.group, c.untilHeartbeat(), c.onHeartbeat)
	}
	c.adapter.group.Start()
	go c.read()
}

func (c *connection) open(r *http.Request) error {
	id, req, err := c.adapter.openRequest(r)
	if err != nil {
		return err
	}
	if c.confirms, err = wire.ParseOwn(r.URL.Query()); err != nil {
		return err
	}
	cfg := &c.adapter.cfg
	opener := stream.SessionOpener{
		Server: cfg.Server,
		Auth:   cfg.Auth,
		Limit:  cfg.Limit,
		Gate:   cfg.Gate,
	}
	if err := opener.Admit(id, req); err != nil {
		return err
	}
	//rule:bounded_use.hello-before-waiting
	c.reply(func(b []byte) []byte { return wire.AppendHello(b, cfg.Server.Heartbeat()) })
	session, pass, err := opener.Open(c.ctx, r, id, req, stream.Left(r))
	if err != nil {
		return err
	}
	c.session, c.pass, c.identity = session, pass, id
	return nil
}

// read handles frames until the connection ends, and then calls finish. It waits at the bottom of
// its stack with few calls below. So the stack of an idle connection stays at its smallest, 2 KiB.
func (c *connection) read() {
	for {
		err := c.conn.in.await()
		if err == nil {
			err = c.receive()
		}
		if err != nil {
			c.finish(err)
			return
		}
	}
}

// receive handles one message or control frame.
func (c *connection) receive() error {
	c.partial.CompareAndSwap(0, 1)
	kind, payload, err := c.conn.in.next()
	if err != nil {
		return err
	}
	defer c.conn.in.done()
	if !c.conn.in.unfinished() {
		c.partial.Store(0)
	}
	c.unanswered.Store(0)
	switch {
	case kind == opPing:
		return c.pinged(payload)
	case kind == opPong:
	case kind == opClose:
		return parseClose(payload)
	case c.isClosing():
	//rule:bounded_input.text-frames-only
	case kind != opText:
		c.end(CloseUnsupported, "frames must be text")
	//rule:bounded_input.frames-in-utf8
	case !utf8.Valid(payload):
		c.end(CloseNotText, "frames must be UTF-8")
	default:
		c.handle(payload)
	}
	return nil
}

// answerClose answers the client's close frame, or refuses what broke the protocol. It reports
// whether it refused something.
func (c *connection) answerClose(err error) (refused bool) {
	var wrong *refusal
	if errors.As(err, &wrong) {
		_ = c.conn.SendClose(wrong.code, wrong.reason) // fails if the server closed first
		return true
	}
	if code := clientCode(err); code != 0 {
		_ = c.conn.SendClose(code, "")
	}
	return false
}

// finish ends everything after the last read, which failed with err. The goroutine of read ends
// with it.
func (c *connection) finish(err error) {
	c.cancel()
	c.heartbeat.Stop()
	c.conn.in.close()
	refused := c.answerClose(err)
	if c.work != nil {
		c.work.Wait()
	}
	if c.session != nil {
		c.writer.Set() // it sees that ctx has ended
		c.running.Wait()
	}
	if !c.isClosing() {
		c.adapter.closes.Add(endedBy(err))
	}
	if c.session != nil {
		//rule:R_WAKESET.goodbye-ends-session
		if closedByClient(err) && !c.isClosing() {
			ctx, cancel := context.WithTimeout(c.adapter.requests, c.adapter.cfg.RequestTimeout)
			if err := c.session.Close(ctx); err != nil {
				c.adapter.cfg.Logger.Warn("a session was closed, but writing its pending "+
					"rows failed; the node tries again",
					"session", c.session.Session(), "error", err)
			}
			cancel()
		} else {
			c.session.Detach()
		}
		c.adapter.cfg.Auth.Leave(c.identity, c.session.Session())
	}
	if c.conn.out.Drain() == nil && refused {
		c.linger()
	}
	c.conn.out.Close()
	c.adapter.group.Remove(c)
	c.adapter.group.Done()
}

// linger reads and drops what the client still sends, for closeGrace. If the server closed with
// unread bytes, the connection would be reset, and the client might not see the close frame.
func (c *connection) linger() {
	if half, ok := c.conn.net.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.conn.net.SetReadDeadline(time.Now().Add(closeGrace))
	_, _ = io.Copy(io.Discard, c.conn.net)
}

// write writes a batch of the session's events. It returns Over if the connection has ended or no
// longer reads the session.
func (c *connection) write() signal.Left {
	n, ok := c.writeEvents()
	switch {
	case ok && n > 0:
		return signal.More
	case ok:
		c.pass.Leave()
		return signal.Nothing
	}
	c.pass.Leave()
	c.running.Done()
	return signal.Over
}

// writeEvents writes a batch of the session's events, if there are any, and returns their number.
// ok is false if there will be no more.
func (c *connection) writeEvents() (n int, ok bool) {
	if c.ctx.Err() != nil {
		return 0, false
	}
	events, err := c.session.Next(c.ctx, nil, false)
	switch {
	case err == nil && len(events) == 0:
		return 0, true
	case err == nil:
	case c.ctx.Err() != nil:
		return 0, false
	default:
		c.end(closeCode(err), closeReason(err))
		return 0, false
	}
	// A failed write has closed the connection.
	err = c.pass.During(func() error { return c.sendEvents(events) })
	return len(events), err == nil
}

func (c *connection) sendEvents(events []tidemark.Event) error {
	if err := c.conn.out.Wait(); err != nil {
		return err
	}
	b := c.adapter.pool.Get()
	defer c.adapter.pool.Put(b)
	for _, ev := range events {
		*b = wire.AppendFrame((*b)[:0], ev)
		if err := c.conn.Send(*b); err != nil {
			return err
		}
	}
	return c.conn.Flush()
}

// end closes the connection with a code. The client has closeGrace to answer. Further calls do
// nothing.
func (c *connection) end(code int, reason string) {
	c.mu.Lock()
	first, ready := !c.closing, c.ready
	c.closing = true
	c.mu.Unlock()
	if !first || !ready {
		return
	}
	c.adapter.closes.Add(code)
	c.cancel()
	_ = c.conn.SendClose(code, reason) // if this fails, the reader ends the connection
	_ = c.conn.net.SetReadDeadline(time.Now().Add(closeGrace))
	_ = c.conn.Flush()
}

func (c *connection) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// pinged answers a ping of the client.
func (c *connection) pinged(data []byte) error {
	if err := c.conn.out.Wait(); err != nil {
		return err
	}
	_ = c.conn.Pong(data) // fails after a close frame, when nothing more is sent
	return c.conn.Flush()
}

// onHeartbeat pings the client and returns the time until the next heartbeat. It closes the
// connection if two pings were not answered, a message does not end, or the credentials have ended.
// It does not ping while a write is under way: the deadline of the write bounds that.
func (c *connection) onHeartbeat() time.Duration {
	//rule:credentials_end.end-websocket-stream
	ended := c.identity.Ended()
	switch {
	case ended != nil:
		c.end(CloseUnauthenticated, closeReason(ended))
		return 0
	case c.stalled():
		c.end(CloseSilent, "a message did not come to its end")
		return 0
	case c.conn.out.Busy():
	//rule:bounded_use.limit-unanswered-pings
	case c.unanswered.Add(1) > maxUnanswered:
		c.end(CloseSilent, "two pings were not answered")
		return 0
	case c.conn.Ping() != nil || c.conn.Flush() != nil:
		return 0
	}
	return c.untilHeartbeat()
}

// stalled counts a heartbeat of the message that is being read, and reports whether there were too
// many. If the message ends at this moment, the count stays 0.
func (c *connection) stalled() bool {
	n := c.partial.Load()
	return n > 0 && c.partial.CompareAndSwap(n, n+1) && n+1 > maxPartial
}

// untilHeartbeat returns the time until the next heartbeat, which is at most the rest of the
// token's life.
func (c *connection) untilHeartbeat() time.Duration {
	d := c.adapter.cfg.Server.Heartbeat()
	if expires := c.identity.Expires; !expires.IsZero() {
		d = min(d, max(time.Until(expires), time.Millisecond))
	}
	return d
}

// Stop implements stream.Member.
func (c *connection) Stop(retryAfter time.Duration) {
	//rule:resume_lossless.code-of-stop
	c.end(CloseRestarting, withDelay("restarting", retryAfter))
}

// Abort implements stream.Member.
func (c *connection) Abort() {
	c.cancel()
	c.conn.out.Close()
}
