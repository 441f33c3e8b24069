package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// observeFlags configure logs, metrics and profiles (docs/observability.md).
type observeFlags struct {
	LogFormat     string `default:"text" env:"TIDEMARK_LOG_FORMAT" placeholder:"FORMAT" help:"Format of the logs on standard error: text or json. Default ${default}."`
	LogLevel      string `default:"info" env:"TIDEMARK_LOG_LEVEL" placeholder:"LEVEL" help:"Lowest level that is logged: debug, info, warn or error. debug logs each request. Default ${default}."`
	DebugListen   string `env:"TIDEMARK_DEBUG_LISTEN" placeholder:"HOST:PORT" help:"Loopback address that serves /debug/pprof/ and /metrics."`
	PublicMetrics bool   `env:"TIDEMARK_PUBLIC_METRICS" help:"Also serve /metrics on --listen, without authentication. --dev implies it."`

	Traces traceFlags `embed:""`
}

func (f *observeFlags) log(to io.Writer) (*slog.Logger, *slog.LevelVar, error) {
	if f.DebugListen != "" {
		host, _, err := net.SplitHostPort(f.DebugListen)
		if err != nil {
			return nil, nil, usagef("--debug-listen %q is not HOST:PORT: %w", f.DebugListen, err)
		}
		//rule:metrics_private.profiles-on-loopback-only
		if !loopback(host) {
			return nil, nil, usagef("--debug-listen is %q, but profiles are private: "+
				"use a loopback address, such as 127.0.0.1:6060", f.DebugListen)
		}
	}
	return newLog(to, f.LogFormat, f.LogLevel)
}

// metricsVariable is the only way to set the token of /metrics.
const metricsVariable = "TIDEMARK_METRICS_TOKEN"

// leastMetricsToken is the least length of that token, in bytes.
const leastMetricsToken = 16

// metricsToken returns the token of /metrics, or "" if none is set.
func (f *observeFlags) metricsToken() (string, error) {
	token := os.Getenv(metricsVariable)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	switch {
	case token == "":
		return "", nil
	case f.PublicMetrics:
		return "", usagef("--public-metrics serves /metrics to anyone, so %s would do nothing; "+
			"use one of the two", metricsVariable)
	case len(token) < leastMetricsToken || strings.ContainsFunc(token, odd):
		return "", usagef("%s must be at least %d characters of printable ASCII without spaces, "+
			"such as the output of `openssl rand -hex 16`", metricsVariable, leastMetricsToken)
	}
	return token, nil
}

// debugHeaderTimeout is the longest time that a client may take to send the head of a request.
const debugHeaderTimeout = 10 * time.Second

// serveDebug serves handler on its own address until stop is called. If address is "", it does
// nothing. It outlives the drain of the server, so that an operator can inspect a drain that hangs.
func serveDebug(
	ctx context.Context, address string, handler http.Handler, log *slog.Logger,
) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for --debug-listen: %w", err)
	}
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: debugHeaderTimeout,
		ErrorLog:          stdlog.New(io.Discard, "", 0),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	log.Info("serving profiles and metrics", "url", "http://"+listener.Addr().String())
	return func() error {
		err := s.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
