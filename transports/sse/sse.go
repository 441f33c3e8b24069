// Package sse serves the stream as Server-Sent Events: GET /events.
//
// Over HTTP/1 the adapter takes the connection over and writes the answer itself. For HTTP/1.1 it
// uses the chunked transfer coding, which every client and proxy understands. For HTTP/1.0 the end
// of the connection ends the answer. Over HTTP/2 it writes through net/http. Nothing is compressed.
// docs/client-guide.md, "Receive", has the format.
package sse

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/tally"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Config configures an Adapter. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds the calls of a user, and opening a stream is one. nil: no bound.
	Limit *limit.Limiter
	// Gate bounds how many clients catch up at a time. nil: no bound.
	Gate *limit.Gate
	// Logger is slog.Default() by default. It never gets message text or tokens.
	Logger *slog.Logger
	// WriteTimeout is how long a client may take nothing of what it is sent. Then the connection is
	// cut, and the session waits for the client. Default 10 s.
	WriteTimeout time.Duration
}

// Adapter is the SSE transport. It is safe for concurrent use.
type Adapter struct {
	cfg   Config
	group stream.Group
	pool  stream.Pool
	// errors counts streams that ended with a problem, by its code.
	errors tally.Tally[tidemark.Code]
}

// New returns an adapter without streams. It starts no goroutine.
func New(cfg Config) *Adapter {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	return &Adapter{cfg: cfg}
}

// Connections returns the number of open streams.
func (a *Adapter) Connections() int { return a.group.Len() }

// Counters returns the adapter's metrics (transports.CounterFunc).
func (a *Adapter) Counters() map[string]int64 {
	counters := map[string]int64{"connections{sse}": int64(a.Connections())}
	a.errors.Read(counters, "sse_errors_total")
	return counters
}

// Drain refuses further streams with 503 and sends the clients of the present ones to other nodes,
// spread over the time within. It returns when all have their notice. The caller must call Shutdown
// afterwards.
func (a *Adapter) Drain(ctx context.Context, within time.Duration) { a.group.Drain(ctx, within) }

// Shutdown refuses further streams with 503, ends the present ones, and waits for their goroutines.
// An EventSource returns on its own after the time in `retry:`. If ctx ends first, Shutdown drops
// the connections and returns the cause of ctx.
func (a *Adapter) Shutdown(ctx context.Context) error { return a.group.Shutdown(ctx) }

// Handle answers GET /events. A caller who may not open a stream gets an HTTP status. Everyone else
// gets the head of the answer at once, before the stream waits for its turn and its session. So a
// client can tell a busy server from a proxy that holds the answer back. What fails from then on
// ends the stream with a `problem`, and an EventSource comes back on its own.
//
// If the connection can be taken over, Handle returns when the session is open. Otherwise it
// returns when the stream has ended.
func (a *Adapter) Handle(e echo.Context) error {
	w, r := e.Response(), e.Request()
	c, req, err := a.admit(r)
	if err != nil {
		return err
	}
	setHead(w.Header())
	if conn, ok := stream.TakeOver(w, r); ok {
		c.serveConn(conn, r, req, w.Header())
	} else {
		c.serveResponse(w, r, req)
	}
	return nil
}

// admit authenticates the request and checks that its user may open a stream now.
func (a *Adapter) admit(r *http.Request) (*connection, wire.Stream, error) {
	req, err := openRequest(r)
	if err != nil {
		return nil, req, err
	}
	id, err := a.cfg.Auth.Stream(r, req.Session)
	if err != nil {
		return nil, req, err
	}
	if err := a.opener().Admit(id, req); err != nil {
		return nil, req, err
	}
	c := &connection{adapter: a, identity: id}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	if !a.group.Add(c) {
		return nil, req, stream.Restarting()
	}
	return c, req, nil
}

func (a *Adapter) opener() stream.SessionOpener {
	return stream.SessionOpener{
		Server: a.cfg.Server,
		Auth:   a.cfg.Auth,
		Limit:  a.cfg.Limit,
		Gate:   a.cfg.Gate,
	}
}

// unknownSession names a session that never exists, so that the core answers with a `reset`.
const unknownSession tidemark.SessionID = "-"

// openRequest returns the query and the position. The position is the header Last-Event-ID, or
// `last_event_id` of the query if there is no header.
func openRequest(r *http.Request) (wire.Stream, error) {
	query := r.URL.Query()
	req, err := wire.ParseStream(query)
	if err != nil {
		return req, err
	}
	position := r.Header.Get("Last-Event-ID")
	//rule:resume_lossless.header-before-query
	if position == "" {
		position = query.Get("last_event_id")
	}
	if position != "" {
		var ok bool
		if req.Session, req.After, ok = wire.ParsePosition(position); !ok {
			//rule:resume_lossless.bad-position-is-unknown
			req.Session, req.After = unknownSession, 0
		}
	}
	// The session keeps the device id. A clone does not keep the whole request in memory.
	req.Device = tidemark.DeviceID(strings.Clone(string(req.Device)))
	return req, nil
}

// replacedRetry is when the EventSource of a replaced stream reconnects, unless its page closes it,
// as it should. If it came back at once, two streams of one session would replace each other
// without end.
const replacedRetry = time.Hour

// retryLine returns the line that sets when EventSource reconnects. It begins the block of the next
// event: some parsers make an empty event of a block of its own. If wait is 0, the time is random
// between 1 and 3 s, so that the clients of a lost server do not return together.
func retryLine(wait time.Duration) []byte {
	if wait == 0 {
		wait = time.Second + rand.N(2*time.Second)
	}
	b := append(make([]byte, 0, 16), "retry: "...)
	b = strconv.AppendInt(b, wait.Milliseconds(), 10)
	return append(b, '\n')
}

// The reasons for the end of a connection that the core does not know.
var (
	errClientGone = errors.New("the client has gone")
	errStopping   = errors.New("the server is stopping")
)
