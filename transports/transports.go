package transports

import (
	"context"
	crand "crypto/rand"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/internal/auth"
	"github.com/tidemark-im/tidemark/transports/internal/limit"
	"github.com/tidemark-im/tidemark/transports/internal/origin"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/rest"
)

// What the adapters share, under names that those who wire a program together can use.
type (
	// Authenticator says who is calling.
	Authenticator = auth.Authenticator
	// AuthConfig configures an Authenticator.
	AuthConfig = auth.Config
	// Tickets keeps the tickets with which browsers open streams.
	Tickets = auth.Tickets
	// Limiter bounds how often a user may send; nil does not.
	Limiter = limit.Limiter
	// JWKS is the keys of an issuer of tokens.
	JWKS = auth.JWKS
	// JWKSConfig configures a JWKS.
	JWKSConfig = auth.JWKSConfig
	// APIKeys is the keys of backends.
	APIKeys = auth.APIKeys
	// Origins says which web pages may call.
	Origins = origin.Policy
	// OriginsConfig configures Origins.
	OriginsConfig = origin.Config
	// LimitConfig configures a Limiter.
	LimitConfig = limit.Config
	// Gate bounds how many clients catch up at a time.
	Gate = limit.Gate
	// GateConfig configures a Gate.
	GateConfig = limit.GateConfig
)

// NewAuthenticator returns an Authenticator.
func NewAuthenticator(cfg AuthConfig) *Authenticator { return auth.New(cfg) }

// NewJWKS returns the keys of an issuer, which Authenticator.Run fetches. Invalid if the URL is not one.
func NewJWKS(cfg JWKSConfig) (*JWKS, error) { return auth.NewJWKS(cfg) }

// LoadAPIKeys reads the file of API keys. Invalid if it is malformed.
func LoadAPIKeys(path string, logger *slog.Logger) (*APIKeys, error) {
	return auth.LoadAPIKeys(path, logger)
}

// NewAPIKey makes an API key, and its line for the file. Invalid if the name is no id.
func NewAPIKey(name string) (secret, line string, err error) { return auth.NewAPIKey(name) }

// NewOrigins returns which web pages may call. Invalid if something is no origin.
func NewOrigins(cfg OriginsConfig) (*Origins, error) { return origin.New(cfg) }

// NewLimiter returns a Limiter.
func NewLimiter(cfg LimitConfig) *Limiter { return limit.New(cfg) }

// ListenerConfig bounds the connections of a listener.
type ListenerConfig = limit.ListenerConfig

// NewListener returns a listener on top of another, which it closes, that accepts a bounded number of connections.
func NewListener(l *net.TCPListener, cfg ListenerConfig) net.Listener {
	return limit.NewListener(l, cfg)
}

// NewGate returns a Gate.
func NewGate(cfg GateConfig) *Gate { return limit.NewGate(cfg) }

// BasePath is where the API begins.
const BasePath = "/api/v1"

// Config configures a Handler. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *Authenticator
	// Limit bounds the sends of a user; nil: without a limit, as serve --dev is.
	Limit *Limiter
	// Origins says which web pages may call, and is to be given to the WebSocket adapter too. nil: those of the server's own host.
	Origins *Origins
	// Events, Poll and WebSocket are the stream adapters' handlers of GET /events, /poll and /ws; nil leaves one out.
	Events, Poll, WebSocket echo.HandlerFunc
	// Alive says whether the process makes progress; an error turns /healthz red. nil: it does as long as it answers.
	Alive func() error
	// Degraded says whether the other nodes are reached; an error is told by /readyz, which stays green. nil: there are none.
	Degraded func() error
	// Page is what is served at /: index.html at the root itself, every other file under its own path. nil: no page.
	Page fs.FS
	// Version is what build_info says. Counters are those of the stream adapters, Collectors further metrics, such as the storage's.
	Version    string
	Counters   []CounterFunc
	Collectors []prometheus.Collector
	// PrivateMetrics takes /metrics off the handler, whose callers are anybody; Debug has it in any case.
	PrivateMetrics bool
	// Logger default: slog.Default(). It is never given message text, tokens or tickets.
	Logger *slog.Logger
}

// Handler serves everything that Tidemark offers over HTTP. It is safe for concurrent use.
type Handler struct {
	echo    *echo.Echo
	server  *server.Server
	auth    *Authenticator
	logger  *slog.Logger
	traffic *traffic
	metrics http.Handler
	alive   func() error
	// needs are what /readyz asks for.
	needs []dependency

	// leaving says that /readyz is red, because the server is going to stop.
	leaving atomic.Bool
	// draining ends when the shutdown begins, and with it the context of every stream's request.
	draining context.Context
	drain    context.CancelFunc
}

// New returns a Handler, or the error of reading Page. It starts nothing.
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
		traffic: newTraffic(cfg.Logger),
	}
	h.needs = h.dependencies(cfg.Degraded)
	e.Use(requestID, h.traffic.watch, problem.Recover(cfg.Logger), pages(cfg.Origins), full,
		wholeQuery)
	h.metrics = promhttp.HandlerFor(h.newRegistry(cfg), promhttp.HandlerOpts{
		ErrorLog:      scrapeLog{cfg.Logger},
		ErrorHandling: promhttp.ContinueOnError,
	})
	h.draining, h.drain = context.WithCancel(context.Background())

	rest.Register(e, BasePath, rest.Config{Server: cfg.Server, Auth: cfg.Auth, Limit: cfg.Limit})
	for path, stream := range map[string]echo.HandlerFunc{
		"/events": cfg.Events, "/poll": cfg.Poll, "/ws": cfg.WebSocket,
	} {
		if stream != nil {
			e.GET(BasePath+path, h.stream(stream))
		}
	}
	h.mountOperation(cfg.PrivateMetrics)
	return h, mountPage(e, cfg.Page)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.echo.ServeHTTP(w, r) }

// The limits of the HTTP server. Those on reading a whole request and on writing its answer are lifted for streams, whose
// adapters bound each write.
const (
	readHeaderTimeout = 10 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// HTTPServer returns a server of the handler. Its Shutdown ends the streams that net/http knows of, and waits for all other requests;
// connections that were taken over are ended by the Shutdown of their adapter, which is to be called as well. Close the core after
// both.
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

// Leave turns /readyz red, so that load balancers send nobody any more. Everything still works.
func (h *Handler) Leave() { h.leaving.Store(true) }

// Somebody whose connection is one too many is told to come back after a random time.
const (
	fewerConnectionsFrom   = 5 * time.Second
	fewerConnectionsWithin = 10 * time.Second
)

// full refuses calls on a connection that was accepted only to be told so. What operators ask is answered.
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

// errStopping is the cause with which the contexts of streams end when the server stops.
func errStopping() error {
	return tidemark.Errorf(tidemark.Unavailable, "the server is restarting; try again")
}

// stream lets the context of a stream's request end when the shutdown begins, and lifts its deadlines.
func (h *Handler) stream(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		deadlines := http.NewResponseController(c.Response())
		_ = deadlines.SetReadDeadline(time.Time{}) // a test's recorder has none
		_ = deadlines.SetWriteDeadline(time.Time{})
		ctx, cancel := context.WithCancelCause(c.Request().Context())
		defer cancel(nil)
		stop := context.AfterFunc(h.draining, func() { cancel(errStopping()) })
		defer stop()
		c.SetRequest(c.Request().WithContext(ctx))
		return next(c)
	}
}

// maxRequestID is the greatest length of a request id that is taken over from the caller.
const maxRequestID = 64

// pages lets web pages call that may. Those that open a WebSocket are left to its adapter, which refuses with a close code.
func pages(origins *Origins) echo.MiddlewareFunc {
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

// wholeQuery refuses a query that cannot be read to its end: net/http would leave out what it does not understand, and a session, say, would be
// opened anew instead of resumed. A WebSocket is refused by its adapter, with a close code. Outside of the API a query means nothing.
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

// requestID gives every request an id, its caller's own if that is an id, and returns it in X-Request-ID. The context has it too.
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
