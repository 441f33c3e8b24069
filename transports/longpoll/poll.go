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
	"github.com/tidemark-im/tidemark/transports/internal/auth"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
)

// poll is one request. While it waits it has two goroutines: one waits in Next, one waits for the client's close.
type poll struct {
	adapter  *Adapter
	identity auth.Identity
	session  *server.Connection
	// pass is its place among those who catch up.
	pass *limit.Pass
	out  stream.Writer

	// ctx ends when there is nothing to wait for any more; its cause says why.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// comeBack is what Stop said.
	comeBack atomic.Int64
}

// Why a poll stops waiting.
var (
	errWaited     = errors.New("nothing came in time")
	errStopping   = errors.New("the server is stopping")
	errClientGone = errors.New("the client has gone")
)

// gather returns what is due, up to a page; with wait it waits for the first of it. more says that the page was full.
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

// gatherNow gathers what is due at once, also for a client that has closed its side of the connection.
func (p *poll) gatherNow(r *http.Request) (events []tidemark.Event, more bool, err error) {
	defer p.pass.Leave()
	ctx, cancel := stream.Detached(r)
	defer cancel()
	//rule:bounded_use.cancel-poll-at-stop
	defer context.AfterFunc(p.adapter.requests, cancel)()
	events, more, err = p.gather(ctx, false)
	if err != nil && p.adapter.requests.Err() != nil {
		err = stream.Restarting()
	}
	return events, more, err
}

// await gathers what comes within the wait; nothing, when the server stops.
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

// waitOn waits and answers on a connection that was taken over, and returns at once. h is what the answer's head has so far.
func (p *poll) waitOn(conn net.Conn, h http.Header, wait time.Duration) {
	p.out.Init(conn, &p.adapter.pool, p.adapter.cfg.WriteTimeout)
	p.adapter.group.Go(func() {
		p.awaitClose(conn)
	})
	p.adapter.group.Go(func() {
		events, more, err := p.await(wait)
		// The session waits for the next poll from now on: what this answer holds comes again if it is lost.
		p.session.Detach()
		if errors.Is(context.Cause(p.ctx), errStopping) {
			h.Set("Retry-After", strconv.Itoa(problem.Seconds(time.Duration(p.comeBack.Load()))))
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
		w := &written{header: h, body: b}
		problem.Write(w, &http.Request{Method: http.MethodGet}, h.Get("X-Request-Id"), err)
		status = w.status
	}
	// if the connection has failed, the client asks again
	_ = p.out.Append(stream.AppendHead(nil, status, h), *b)
	_ = p.out.Drain()
}

// awaitClose returns when the client closes its side, or the answer has been written. What the client sends is ignored. One that has closed its side has
// gone, or only says that it will send no more; so it is answered at once, which does for both.
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

// leave gives the session back and takes the poll out of the adapter. It is called once.
func (p *poll) leave() {
	p.session.Detach()
	p.adapter.cfg.Auth.Leave(p.identity, p.session.Session())
	p.cancel(errClientGone)
	p.adapter.group.Remove(p)
}

// Stop implements stream.Member.
func (p *poll) Stop(comeBack time.Duration) {
	p.comeBack.Store(int64(comeBack))
	p.cancel(errStopping)
}

// Abort implements stream.Member.
func (p *poll) Abort() {
	p.cancel(errClientGone)
	p.out.Close()
}

// written is a problem before it is sent.
type written struct {
	header http.Header
	status int
	body   *[]byte
}

// Header implements http.ResponseWriter.
func (w *written) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *written) WriteHeader(status int) { w.status = status }

// Write implements http.ResponseWriter.
func (w *written) Write(p []byte) (int, error) {
	*w.body = append(*w.body, p...)
	return len(p), nil
}
