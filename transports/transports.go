package transports

import (
	"context"
	crand "crypto/rand"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/audit"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/tracing"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/origin"
	"github.com/tidemark-im/tidemark/transports/rest"
	"github.com/tidemark-im/tidemark/transports/stats"
)

// BasePath is the path of the API.
const BasePath = "/api/v1"

// Config configures a Handler. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds the calls of a user. nil: no bound, as with serve --dev.
	Limit *limit.Limiter
	// Origins decides which web pages may call. The WebSocket adapter needs it, too. nil: pages of
	// the server's own host.
	Origins *origin.Policy
	// Events, Poll and WebSocket are the handlers of the stream adapters, for GET /events, /poll
	// and /ws. nil: the path does not exist.
	Events, Poll, WebSocket echo.HandlerFunc
	// Mounts are those of further adapters.
	Mounts []Mount
	// NoAPI says that this node serves no clients: all calls of the API get 503.
	NoAPI bool
	// Alive returns an error if the process makes no progress, which turns /healthz red. nil: the
	// process is alive as long as it answers.
	Alive func() error
	// Degraded returns an error if the other nodes cannot be reached. /readyz reports it and stays
	// green. nil: there are no other nodes.
	Degraded func() error
	// Page is served at /: index.html at the root, every other file at its own path. The names
	// below assets contain a hash of the content. nil: no page.
	Page fs.FS
	// Files is the origin at which clients send and get files, or "" for the server's own. The page
	// may call it.
	Files string
	// Version is the version in build_info. Counters holds those of the stream adapters. Collectors
	// holds further metrics, such as those of the store.
	Version    string
	Counters   []CounterFunc
	Collectors []prometheus.Collector
	// PrivateMetrics removes /metrics from the handler, which anyone may call. Debug has it in any
	// case.
	PrivateMetrics bool
	// MetricsToken is the bearer token that /metrics of the handler asks for. "": none.
	MetricsToken string
	// Audit records the calls of the REST adapter. nil: nothing is recorded.
	Audit *audit.Log
	// Tracer traces sends. Latencies then have traces as exemplars. nil: nothing is traced.
	Tracer *tracing.Tracer
	// Logger is slog.Default() by default. It never gets message text, tokens or tickets.
	Logger *slog.Logger
}

// Mount adds routes to a router, below a base path.
type Mount func(router *echo.Echo, base string)

// Handler serves all that Tidemark offers over HTTP. It is safe for concurrent use.
type Handler struct {
	echo    *echo.Echo
	server  *server.Server
	auth    *auth.Authenticator
	logger  *slog.Logger
	traffic *traffic
	metrics http.Handler
	stats   *stats.Adapter
	alive   func() error
	// needs holds the dependencies that /readyz checks.
	needs []dependency

	// leaving is true if /readyz is red because the server is about to stop.
	leaving atomic.Bool
	// draining ends when the shutdown begins. It ends the contexts of all stream requests.
	draining context.Context
	drain    context.CancelFunc
}

// New returns a Handler. It returns an error if Page cannot be read. It starts no goroutine: the
// caller runs Run, or other nodes get no figures of this one.
func New(cfg Config) (*Handler, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard)
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = problem.Handler(cfg.Logger)
	h := &Handler{
		echo:    e,
		server:  cfg.Server,
		auth:    cfg.Auth,
		logger:  cfg.Logger,
		alive:   cfg.Alive,
		traffic: newTraffic(cfg.Logger, cfg.Tracer),
	}
	h.needs = h.dependencies(cfg.Degraded)
	e.Use(requestID, h.traffic.watch, problem.Recover(cfg.Logger), pages(cfg.Origins), full,
		wholeQuery)
	if cfg.NoAPI {
		e.Use(noAPI)
	}
	h.metrics = promhttp.HandlerFor(h.newRegistry(cfg), promhttp.HandlerOpts{
		ErrorLog:      scrapeLog{cfg.Logger},
		ErrorHandling: promhttp.ContinueOnError,
		// Only OpenMetrics has exemplars. It writes some labels in another way, so it is off
		// without traces.
		EnableOpenMetrics: cfg.Tracer != nil,
	})
	h.draining, h.drain = context.WithCancel(context.Background())

	rest.Register(e, BasePath, rest.Config{
		Server: cfg.Server, Auth: cfg.Auth, Limit: cfg.Limit, Admitted: h.traffic.trace,
		Audit: cfg.Audit,
	})
	for path, stream := range map[string]echo.HandlerFunc{
		"/events": cfg.Events, "/poll": cfg.Poll, "/ws": cfg.WebSocket,
	} {
		if stream != nil {
			e.GET(BasePath+path, h.stream(stream))
		}
	}
	for _, mount := range cfg.Mounts {
		mount(e, BasePath)
	}
	h.stats = newStats(cfg)
	h.mountStats()
	h.mountOperation(cfg)
	return h, mountPage(e, cfg.Page, pagePolicy(cfg.Files))
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.echo.ServeHTTP(w, r) }

// The limits of the HTTP server. The timeouts for reading a request and writing its answer do not
// apply to streams, whose adapters bound each write.
const (
	readHeaderTimeout = 10 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// HTTPServer returns an HTTP server for the handler. Its Shutdown ends the streams that net/http
// knows and waits for all other requests. The caller must also call Shutdown of the adapters, which
// ends the connections that they took over. After both, the caller may stop the core.
func (h *Handler) HTTPServer(addr string) *http.Server {
	s := &http.Server{
		Addr:              addr,
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       limit.RequestWithin,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(netLog{h.logger}, "", 0),
	}
	s.ConnContext = limit.ConnContext
	s.RegisterOnShutdown(h.drain)
	return s
}

// Leave turns /readyz red, so that load balancers send no more clients. Everything still works.
func (h *Handler) Leave() { h.leaving.Store(true) }

// A client whose connection is beyond the bound is asked to retry after a random time.
const (
	fewerConnectionsFrom   = 5 * time.Second
	fewerConnectionsWithin = 10 * time.Second
)

// full refuses calls of the API on a connection beyond the bound, and closes the connection.
// Operators' paths still work.
func full(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !limit.Full(c.Request().Context()) {
			return next(c)
		}
		c.Response().Header().Set("Connection", "close")
		if !strings.HasPrefix(c.Request().URL.Path, BasePath+"/") {
			return next(c)
		}
		err := tidemark.Errorf(tidemark.Unavailable,
			"the server has as many connections as it can hold; come back later")
		return problem.RetryAfter(err, fewerConnectionsFrom+rand.N(fewerConnectionsWithin))
	}
}

// noAPI refuses all calls of the API.
func noAPI(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !strings.HasPrefix(c.Request().URL.Path, BasePath) {
			return next(c)
		}
		return tidemark.Errorf(tidemark.Unavailable,
			"this node serves no clients (--roles); ask another one")
	}
}

// errStopping returns the error with which stream requests end when the server stops.
func errStopping() error {
	return tidemark.Errorf(tidemark.Unavailable, "the server is restarting; try again")
}

// stream ends the context of a stream's request when the shutdown begins, and removes its
// deadlines.
func (h *Handler) stream(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		deadlines := http.NewResponseController(c.Response())
		_ = deadlines.SetReadDeadline(time.Time{}) // fails for a test's recorder, which has none
		_ = deadlines.SetWriteDeadline(time.Time{})
		ctx, cancel := context.WithCancelCause(c.Request().Context())
		defer cancel(nil)
		stop := context.AfterFunc(h.draining, func() { cancel(errStopping()) })
		defer stop()
		c.SetRequest(c.Request().WithContext(ctx))
		return next(c)
	}
}

// maxRequestID is the greatest length of a request id of a caller, in bytes.
const maxRequestID = 64

// pages applies the policy of origins. It leaves /ws to its adapter, which refuses a page with a
// close code.
func pages(origins *origin.Policy) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		guarded := origins.Middleware(next)
		return func(c echo.Context) error {
			if c.Path() == BasePath+"/ws" {
				return next(c)
			}
			return guarded(c)
		}
	}
}

// wholeQuery refuses a query of the API that cannot be parsed as a whole. net/http would ignore the
// broken part, and a session, for example, would be opened and not resumed. The adapter of /ws does
// the same with a close code.
func wholeQuery(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		inAPI := strings.HasPrefix(c.Path(), BasePath+"/") && c.Path() != BasePath+"/ws"
		if _, err := url.ParseQuery(c.Request().URL.RawQuery); err != nil && inAPI {
			return &tidemark.Error{
				Code: tidemark.Invalid,
				Detail: "the query is malformed: a % needs two hexadecimal digits, and " +
					"parameters are separated by &",
				Err: err,
			}
		}
		return next(c)
	}
}

// requestID gives every request an id and returns it in X-Request-ID. It takes the caller's id if
// that is valid. The context has the id, too.
func requestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if len(id) > maxRequestID || !tidemark.ValidID(id) {
			id = crand.Text()
		}
		c.Response().Header().Set(echo.HeaderXRequestID, id)
		//rule:request_id_reaches_storage.request-id-in-context
		c.SetRequest(c.Request().WithContext(tidemark.WithRequestID(c.Request().Context(), id)))
		return next(c)
	}
}
