// Package longpoll serves the stream to clients that can only send requests: GET /poll.
//
// A poll that finds events is answered through net/http. A poll that has to wait takes the
// connection over, which needs a third of the memory. Its answer has `Connection: close`, so a
// client makes at most one new connection for each pause in its stream. docs/client-guide.md,
// "Receive", has the format.
package longpoll

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/stream"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

const (
	// A poll waits for defaultWait if it names no time, and for at most maxWait.
	defaultWait = 25 * time.Second
	maxWait     = 50 * time.Second
	// An answer is full when it has this many events or bytes of payload. The next poll gets the
	// rest at once.
	maxEvents = 256
	maxBytes  = 256 << 10
)

// Config configures an Adapter. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds the calls of a user, and opening a stream is one. nil: no bound.
	Limit *limit.Limiter
	// Gate bounds how many clients catch up at a time. nil: no bound.
	Gate *limit.Gate
	// WriteTimeout is how long a client may take nothing of its answer. Then the connection is cut,
	// and the client gets the same events with its next poll. Default 10 s.
	WriteTimeout time.Duration
}

// Adapter is the long-poll transport. It is safe for concurrent use.
type Adapter struct {
	cfg   Config
	group stream.Group
	pool  stream.Pool
	// requests is the context of what polls read at once. It goes on if the client has gone, and
	// ends when Shutdown gives up.
	requests context.Context
	giveUp   context.CancelFunc
}

// New returns an adapter without polls. It starts no goroutine.
func New(cfg Config) *Adapter {
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	a := &Adapter{cfg: cfg}
	a.requests, a.giveUp = context.WithCancel(context.Background())
	return a
}

// Connections returns the number of polls under way.
func (a *Adapter) Connections() int { return a.group.Len() }

// Counters returns the adapter's metrics (transports.CounterFunc).
func (a *Adapter) Counters() map[string]int64 {
	return map[string]int64{"connections{longpoll}": int64(a.Connections())}
}

// Drain refuses further polls with 503 and sends the clients of the present ones to other nodes,
// spread over the time within. It returns when all have their notice. The caller must call Shutdown
// afterwards.
func (a *Adapter) Drain(ctx context.Context, within time.Duration) { a.group.Drain(ctx, within) }

// Shutdown refuses further polls with 503, answers those that wait without events, and waits for
// their goroutines. If ctx ends first, Shutdown drops the connections and returns the cause of ctx.
func (a *Adapter) Shutdown(ctx context.Context) error {
	defer context.AfterFunc(ctx, a.giveUp)()
	return a.group.Shutdown(ctx)
}

// Handle answers GET /poll. If the connection can be taken over, a poll that has to wait does so on
// other goroutines, and Handle returns.
func (a *Adapter) Handle(e echo.Context) error {
	w, r := e.Response(), e.Request()
	wait, err := parseWait(r.URL.Query().Get("wait_seconds"))
	if err != nil {
		return err
	}
	p, err := a.open(r)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	events, more, err := p.gatherNow(r)
	if err != nil || len(events) > 0 || wait == 0 {
		p.leave()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		return answer(w, wire.AppendPoll(nil, p.session.Session(), events, more))
	}
	if conn, ok := stream.TakeOver(w, r); ok {
		p.waitOn(conn, w.Header(), wait)
		return nil
	}
	// The request's context ends if the server stops or the client goes. In the latter case the
	// answer is lost anyway.
	defer context.AfterFunc(r.Context(), func() { p.cancel(errStopping) })()
	events, more, err = p.await(wait)
	p.leave()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return answer(w, wire.AppendPoll(nil, p.session.Session(), events, more))
}

// answer writes a whole answer. If it is lost, the client polls again.
func answer(w http.ResponseWriter, body []byte) error {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
	return nil
}

// open authenticates the request and opens or resumes its session.
func (a *Adapter) open(r *http.Request) (*poll, error) {
	req, err := wire.ParseStream(r.URL.Query())
	if err != nil {
		return nil, err
	}
	id, err := a.cfg.Auth.Stream(r, req.Session)
	if err != nil {
		return nil, err
	}
	// The session keeps the device id. A clone does not keep the whole request in memory.
	req.Device = tidemark.DeviceID(strings.Clone(string(req.Device)))
	p := &poll{adapter: a, identity: id}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	if !a.group.Add(p) {
		return nil, stream.Restarting()
	}
	opener := stream.SessionOpener{
		Server: a.cfg.Server,
		Auth:   a.cfg.Auth,
		Limit:  a.cfg.Limit,
		Gate:   a.cfg.Gate,
	}
	if p.session, p.pass, err = opener.Poll(p.ctx, r, id, req); err != nil {
		a.group.Remove(p)
		return nil, err
	}
	return p, nil
}

// parseWait returns the parameter `wait_seconds`, in whole seconds and at most maxWait.
func parseWait(s string) (time.Duration, error) {
	if s == "" {
		return defaultWait, nil
	}
	//rule:bounded_input.wait-is-digits
	if strings.Trim(s, "0123456789") != "" {
		return 0, tidemark.BadParam(tidemark.Invalid,
			"wait_seconds", "must be a number of seconds: 0 to answer at once, at most %d",
			int(maxWait/time.Second))
	}
	seconds, err := strconv.ParseUint(s, 10, 31)
	if err != nil { // more than 31 bits
		return maxWait, nil
	}
	return min(time.Duration(seconds)*time.Second, maxWait), nil
}
