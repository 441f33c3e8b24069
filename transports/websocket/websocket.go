// Package websocket serves the stream as a WebSocket: GET /ws, subprotocol tidemark.v1.
//
// /ws always upgrades. It refuses a client by a close code, because browsers cannot read a refused
// upgrade. close.go has the codes, and what a client does on each. docs/client-guide.md, "Receive",
// and openapi.yaml have the frames.
package websocket

import (
	"context"
	"log/slog"
	"net/http"
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
	"github.com/tidemark-im/tidemark/transports/origin"
)

// Subprotocol is chosen if the client offers it. A client that offers none is served, too.
const Subprotocol = "tidemark.v1"

// closeGrace is how long a client has to answer a close frame before the server closes the
// connection.
const closeGrace = 2 * time.Second

// Config configures an Adapter. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds the sends and the calls of a user, and opening a stream is a call. nil: no
	// bound.
	Limit *limit.Limiter
	// Gate bounds how many clients catch up at a time. nil: no bound.
	Gate *limit.Gate
	// Origins decides which pages may connect. nil: pages of the server's own host.
	Origins *origin.Policy
	// Logger is slog.Default() by default. It never gets message text or tokens.
	Logger *slog.Logger
	// WriteTimeout is how long a client may take nothing of what it is sent. Then the connection is
	// cut, and the session waits for the client. Default 10 s.
	WriteTimeout time.Duration
	// RequestTimeout is how long a send or a sync may take. Then the client gets UNAVAILABLE and
	// sends it again. Default 10 s.
	RequestTimeout time.Duration
}

// Adapter is the WebSocket transport. It is safe for concurrent use.
type Adapter struct {
	cfg   Config
	group stream.Group
	pool  stream.Pool
	// closes counts ended connections by close code. errors counts refused frames by error code.
	closes tally.Tally[int]
	errors tally.Tally[tidemark.Code]
	// requests is the context of sends and syncs. They go on if their client has gone, until
	// Shutdown gives up.
	requests context.Context
	giveUp   context.CancelFunc
}

// New returns an adapter without connections. It starts no goroutine.
func New(cfg Config) *Adapter {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	a := &Adapter{cfg: cfg}
	a.requests, a.giveUp = context.WithCancel(context.Background())
	return a
}

// Connections returns the number of open connections.
func (a *Adapter) Connections() int { return a.group.Len() }

// Counters returns the adapter's metrics (transports.CounterFunc).
func (a *Adapter) Counters() map[string]int64 {
	counters := map[string]int64{"connections{websocket}": int64(a.Connections())}
	a.closes.Read(counters, "websocket_closes_total")
	a.errors.Read(counters, "websocket_errors_total")
	return counters
}

// Drain refuses further connections with 503 and sends the clients of the present ones to other
// nodes, spread over the time within. It returns when all have their notice. The caller must call
// Shutdown afterwards.
func (a *Adapter) Drain(ctx context.Context, within time.Duration) { a.group.Drain(ctx, within) }

// Shutdown refuses further connections with 503, closes the present ones with 1012, and waits for
// their goroutines. If ctx ends first, Shutdown drops the connections and returns the cause of ctx.
func (a *Adapter) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.giveUp)()
	return a.group.Shutdown(ctx)
}

// Handle answers GET /ws. It returns once the connection is open. It returns an error only if the
// request is not an upgrade, or the server stops.
func (a *Adapter) Handle(e echo.Context) error {
	c := newConnection(a)
	if !a.group.Add(c) {
		return stream.Restarting()
	}
	w, r := e.Response(), e.Request()
	taken, err := c.conn.upgrade(w, r, a.cfg.WriteTimeout)
	switch {
	case err != nil && !taken:
		a.group.Remove(c)
		w.Header().Set("Sec-WebSocket-Version", "13")
		return tidemark.Errorf(tidemark.Invalid, "this path takes WebSocket connections: %v", err)
	case err != nil:
		c.conn.out.Close()
		a.group.Remove(c)
		return nil
	}
	c.start(r)
	return nil
}

// openRequest returns the caller and the query of a request. It checks the origin first.
func (a *Adapter) openRequest(r *http.Request) (auth.Identity, wire.Stream, error) {
	if err := a.cfg.Origins.Check(r); err != nil {
		return auth.Identity{}, wire.Stream{}, err
	}
	req, err := wire.ParseStream(r.URL.Query())
	if err != nil {
		return auth.Identity{}, req, err
	}
	id, err := a.cfg.Auth.Stream(r, req.Session)
	// The session keeps the device id. A clone does not keep the whole request in memory.
	req.Device = tidemark.DeviceID(strings.Clone(string(req.Device)))
	return id, req, err
}
