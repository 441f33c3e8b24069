// Package stats serves GET /admin/stats: what all nodes do, for operators. The answer is a
// snapshot, or an event each second.
//
// A node counts the same whether anybody watches or not. While somebody does, the node that serves
// them asks all others for their figures (server.Survey), and Run answers the questions of others.
package stats

import (
	"context"
	"encoding/json"
	"log/slog"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/limit"
)

const (
	// MaxSlowest is how many of the slowest sessions are listed.
	MaxSlowest = 10
	// MaxStreams is how many streams of figures a node serves.
	MaxStreams = 16
)

// Config configures an Adapter. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds the calls of an API key. nil: no bound.
	Limit *limit.Limiter
	// Counters are those of the core and the adapters, by the names of their metrics.
	Counters []func() map[string]int64
	// Commits returns how long the commits of the store took. nil: it is not measured.
	Commits func() Histogram
	Version string
	// Logger is slog.Default() by default.
	Logger *slog.Logger
	// Every is the time between two events. Default 1 s.
	Every time.Duration
	// WriteTimeout is how long a client may take nothing of what it is sent. Default 10 s.
	WriteTimeout time.Duration
}

// Adapter serves the figures. It is safe for concurrent use.
type Adapter struct {
	cfg   Config
	began time.Time

	mu sync.Mutex
	// streams is the number of open streams.
	streams int
	// slowest has the slowest sessions of this node, and listed is when they were listed.
	slowest []slowSession
	listed  time.Time
}

// New returns an adapter without streams. It starts no goroutine.
func New(cfg Config) *Adapter {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Every == 0 {
		cfg.Every = time.Second
	}
	if cfg.WriteTimeout == 0 {
		cfg.WriteTimeout = 10 * time.Second
	}
	return &Adapter{cfg: cfg, began: time.Now()}
}

// Run answers the questions of other nodes until ctx ends.
func (a *Adapter) Run(ctx context.Context) {
	for {
		q, err := a.cfg.Server.NextQuestion(ctx)
		if err != nil {
			return
		}
		if err := a.cfg.Server.AnswerQuestion(ctx, q, a.own()); err != nil {
			a.cfg.Logger.Debug("another node asked for figures, and did not get them", "error", err)
		}
	}
}

// Handle answers GET /admin/stats with a snapshot, or with a stream if the request asks for one
// (Streams).
func (a *Adapter) Handle(c echo.Context) error {
	id, err := a.cfg.Auth.HeaderOrKey(c.Request())
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.stats-need-the-scope
	if err := id.Permits(auth.ScopeStats); err != nil {
		return err
	}
	quota, err := a.cfg.Limit.Call(id.Payer(), limit.LargeCall)
	quota.Put(c.Response().Header())
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.stats-for-keys-only
	if err := id.Operates(auth.ScopeStats); err != nil {
		return err
	}
	c.Response().Header().Add("Vary", "Accept")
	if Streams(c.Request()) {
		return a.stream(c, id)
	}
	text, err := json.Marshal(a.collect(c.Request().Context()))
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", text)
}

// Streams reports whether a request asks for a stream: Accept names text/event-stream.
func Streams(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(value, ",") {
			media, params, err := mime.ParseMediaType(one)
			quality, weighed := params["q"]
			refused := weighed && strings.Trim(quality, "0.") == ""
			if err == nil && media == "text/event-stream" && !refused {
				return true
			}
		}
	}
	return false
}

// collect returns the figures of all nodes.
func (a *Adapter) collect(ctx context.Context) answer {
	return sum(a.cfg.Server.Survey(ctx, a.own()), time.Now())
}

// own returns the figures of this node.
func (a *Adapter) own() []byte {
	counters := make(map[string]int64)
	for _, read := range a.cfg.Counters {
		for name, n := range read() {
			counters[name] = n
		}
	}
	var commits Histogram
	if a.cfg.Commits != nil {
		commits = a.cfg.Commits()
	}
	now := time.Now()
	text, err := json.Marshal(figures{
		Version: a.cfg.Version, StartedAt: timeText(a.began),
		Uptime: int64(now.Sub(a.began).Seconds()),
		Totals: totalsOf(counters, commits), Slowest: a.slowSessions(now),
	})
	if err != nil {
		a.cfg.Logger.Error("the figures of this node could not be written", "error", err)
	}
	return text
}

// slowSessions returns the slowest sessions of this node. It visits the sessions at most once a
// second, however many operators watch.
func (a *Adapter) slowSessions(now time.Time) []slowSession {
	a.mu.Lock()
	slowest, listed := a.slowest, a.listed
	a.mu.Unlock()
	if !listed.IsZero() && now.Sub(listed) < a.cfg.Every*9/10 {
		return slowest
	}
	slowest = []slowSession{}
	for _, s := range a.cfg.Server.SlowSessions(MaxSlowest) {
		slowest = append(slowest, newSlowSession(s, now))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slowest, a.listed = slowest, now
	return slowest
}

// reason returns the text of an error for people.
func reason(err error) *string {
	detail := tidemark.DetailOf(err)
	return &detail
}
