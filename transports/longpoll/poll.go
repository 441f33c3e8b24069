package longpoll

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
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// poll is one request. While it waits it has two goroutines: one waits in Next, one waits for the
// client to close.
type poll struct {
	adapter  *Adapter
	identity auth.Identity
	session  *server.Connection
	// pass is the client's place among those that catch up.
	pass *limit.Pass
	out  stream.Writer

	// ctx ends when there is nothing more to wait for. Its cause is the reason.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// retryAfter is the argument of Stop.
	retryAfter atomic.Int64
}

// The reasons why a poll stops waiting.
var (
	errWaited     = errors.New("nothing came in time")
	errStopping   = errors.New("the server is stopping")
	errClientGone = errors.New("the client has gone")
)

// gather returns the events that are due, up to a full answer. With wait it waits for the first
// one. more is true if the answer is full.
func (p *poll) gather(
	ctx context.Context, wait bool,
) (events []tidemark.Event, more bool, err error) {
	for bytes := 0; ; wait = false {
		before := len(events)
		if events, err = p.session.Next(ctx, events, wait); err != nil {
			return nil, false, err
		}
		if len(events) == before {
			return events, false, nil
		}
		for _, ev := range events[before:] {
			bytes += len(ev.Payload)
		}
		//rule:bounded_use.limit-poll-answer
		if len(events) >= maxEvents || bytes >= maxBytes {
			return events, true, nil
		}
	}
}

// gatherNow returns the events that are due at once. It goes on if the client closes its side.
func (p *poll) gatherNow(r *http.Request) (events []tidemark.Event, more bool, err error) {
	defer p.pass.Leave()
	ctx, cancel := api.Detached(r)
	defer cancel()
	//rule:bounded_use.cancel-poll-at-stop
	defer context.AfterFunc(p.adapter.requests, cancel)()
	events, more, err = p.gather(ctx, false)
	if err != nil && p.adapter.requests.Err() != nil {
		err = stream.Restarting()
	}
	return events, more, err
}

// await returns the events that come within the wait. It returns none if the server stops.
func (p *poll) await(wait time.Duration) (events []tidemark.Event, more bool, err error) {
	if expires := p.identity.Expires; !expires.IsZero() {
		wait = min(wait, max(time.Until(expires), 0))
	}
	timer := time.AfterFunc(wait, func() { p.cancel(errWaited) })
	defer timer.Stop()
	if err = p.session.Wait(p.ctx); err == nil {
		events, more, err = p.gather(p.ctx, true)
	}
	if err == nil || p.ctx.Err() == nil {
		return events, more, err
	}
	if err = context.Cause(p.ctx); errors.Is(err, errClientGone) {
		return nil, false, err
	}
	return nil, false, nil
}

// waitOn waits and answers on a connection that was taken over. It returns at once. h is the head
// of the answer so far.
func (p *poll) waitOn(conn net.Conn, h http.Header, wait time.Duration) {
	p.out.Init(conn, &p.adapter.pool, p.adapter.cfg.WriteTimeout)
	p.adapter.group.Go(func() {
		p.awaitClose(conn)
	})
	p.adapter.group.Go(func() {
		events, more, err := p.await(wait)
		// From now on the session waits for the next poll. If this answer is lost, the next one has
		// the same events.
		p.session.Detach()
		if errors.Is(context.Cause(p.ctx), errStopping) {
			h.Set("Retry-After", strconv.Itoa(problem.Seconds(time.Duration(p.retryAfter.Load()))))
		}
		if !errors.Is(err, errClientGone) {
			p.respond(h, events, more, err)
		}
		p.out.Close()
		p.leave()
	})
}

func (p *poll) respond(h http.Header, events []tidemark.Event, more bool, err error) {
	b := p.adapter.pool.Get()
	defer p.adapter.pool.Put(b)
	status := http.StatusOK
	if err == nil {
		h.Set("Content-Type", "application/json")
		*b = wire.AppendPoll(*b, p.session.Session(), events, more)
		h.Set("Content-Length", strconv.Itoa(len(*b)))
	} else {
		w := &responseBuffer{header: h, body: b}
		problem.Write(w, &http.Request{Method: http.MethodGet}, h.Get("X-Request-Id"), err)
		status = w.status
	}
	// If the connection has failed, the client polls again.
	_ = p.out.Append(stream.AppendHead(nil, status, h), *b)
	_ = p.out.Drain()
}

// awaitClose waits until the client closes its side or the answer is written. It ignores what the
// client sends. A client that closes its side has gone or only closed its write side. It gets an
// answer at once, which is right in both cases.
func (p *poll) awaitClose(conn net.Conn) {
	ignored := make([]byte, 16)
	for {
		switch _, err := conn.Read(ignored); {
		case errors.Is(err, io.EOF):
			p.cancel(errWaited)
			return
		case err != nil:
			p.cancel(errClientGone)
			return
		}
	}
}

// leave gives the session up and removes the poll from the adapter. It is called once.
func (p *poll) leave() {
	p.session.Detach()
	p.adapter.cfg.Auth.Leave(p.identity, p.session.Session())
	p.cancel(errClientGone)
	p.adapter.group.Remove(p)
}

// Stop implements stream.Member.
func (p *poll) Stop(retryAfter time.Duration) {
	p.retryAfter.Store(int64(retryAfter))
	p.cancel(errStopping)
}

// Abort implements stream.Member.
func (p *poll) Abort() {
	p.cancel(errClientGone)
	p.out.Close()
}

// responseBuffer holds a problem before it is sent.
type responseBuffer struct {
	header http.Header
	status int
	body   *[]byte
}

// Header implements http.ResponseWriter.
func (w *responseBuffer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *responseBuffer) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *responseBuffer) Write(p []byte) (int, error) {
	*w.body = append(*w.body, p...)
	return len(p), nil
}
