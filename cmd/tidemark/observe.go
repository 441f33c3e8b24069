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
	"time"
)

// observeFlags are what the server tells its operators (docs/observability.md).
type observeFlags struct {
	LogFormat     string `default:"text" env:"TIDEMARK_LOG_FORMAT" placeholder:"FORMAT" help:"How logs are written to standard error: text or json. Default ${default}."`
	LogLevel      string `default:"info" env:"TIDEMARK_LOG_LEVEL" placeholder:"LEVEL" help:"The least level that is logged: debug, info, warn or error; debug has a line for each request. Default ${default}."`
	DebugListen   string `env:"TIDEMARK_DEBUG_LISTEN" placeholder:"HOST:PORT" help:"Serve /debug/pprof/ and /metrics on this address, which must be a loopback one."`
	PublicMetrics bool   `env:"TIDEMARK_PUBLIC_METRICS" help:"Serve /metrics on the address of --listen too, to anybody. --dev does."`
}

func (f *observeFlags) log(to io.Writer) (*slog.Logger, error) {
	if f.DebugListen != "" {
		host, _, err := net.SplitHostPort(f.DebugListen)
		if err != nil {
			return nil, usageError{fmt.Errorf("--debug-listen %q is not HOST:PORT: %w", f.DebugListen, err)}
		}
		//rule:metrics_private.profiles-on-loopback-only
		if !loopback(host) {
			return nil, usageError{fmt.Errorf("--debug-listen shows what the process does, so it takes loopback addresses only, such as 127.0.0.1:6060; it is %q", f.DebugListen)}
		}
	}
	return newLog(to, f.LogFormat, f.LogLevel)
}

// debugHeaderTimeout bounds how long a client may take for the head of its request.
const debugHeaderTimeout = 10 * time.Second

// serveDebug serves a handler on an address of its own, if it is not "", until stop is called. It outlives the drain of the server, so that one that hangs can be looked at.
func serveDebug(ctx context.Context, address string, handler http.Handler, log *slog.Logger) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for --debug-listen: %w", err)
	}
	s := &http.Server{Handler: handler, ReadHeaderTimeout: debugHeaderTimeout, ErrorLog: stdlog.New(io.Discard, "", 0)}
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
