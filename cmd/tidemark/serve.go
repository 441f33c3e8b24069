package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/storage/metered"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/websocket"
	"github.com/tidemark-im/tidemark/web"
)

// serveCommand is the configuration of the server: flags, TIDEMARK_… variables and keys of the file.
type serveCommand struct {
	Listen      string          `default:"127.0.0.1:8080" env:"TIDEMARK_LISTEN" placeholder:"HOST:PORT" help:"Address to listen on; port 0 chooses a free one, which is logged. Default ${default}."`
	Store       string          `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"Where messages are kept: sqlite:PATH (sqlite: is ./tidemark.db), postgres://USER:PASSWORD@HOST:PORT/DATABASE, dynamodb://REGION/PREFIX, or memory: for a trial."`
	Dev         bool            `env:"TIDEMARK_DEV" help:"Development: anyone is whoever he says he is (Bearer dev:NAME), without rate limits. Loopback addresses only."`
	Migrate     bool            `env:"TIDEMARK_MIGRATE" help:"Bring the schema of Postgres or the tables of DynamoDB up to date first; without it older ones are refused. SQLite and memory need no asking."`
	Peers       peerFlags       `embed:""`
	Credentials credentialFlags `embed:""`
	Observe     observeFlags    `embed:""`
	AllowOrigin []string        `name:"allow-origin" env:"TIDEMARK_ALLOW_ORIGIN" placeholder:"ORIGIN" help:"Web pages that may call, such as https://app.example.com, or * for all; may be repeated. Those of the server's own host always may."`
	Limits      limitFlags      `embed:""`
	Config      string          `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"YAML file whose keys are the names of these flags. Flags and variables win over it."`
}

// Help is the rest of what `serve --help` says.
func (serveCommand) Help() string {
	return fmt.Sprintf("Without --dev the server needs to know whom to believe: %s, at least %d bytes, with which the tokens of its users are signed (HS256) and "+
		"which is read from the environment only; --jwks-url; or --api-keys-file.", secretVariable, minSecret)
}

// Run serves until ctx ends, which is an orderly stop, or something fails.
func (c *serveCommand) Run(ctx context.Context, std streams) error {
	key, err := secret()
	if err != nil {
		return err
	}
	store, err := parseStore(c.Store)
	if err != nil {
		return err
	}
	if err := errors.Join(c.check(), c.Peers.check(store)); err != nil {
		return err
	}
	origins, err := transports.NewOrigins(transports.OriginsConfig{Allow: c.AllowOrigin, Loopback: c.Dev})
	if err != nil {
		return usageError{fmt.Errorf("--allow-origin: %s", tidemark.DetailOf(err))}
	}
	limits, err := c.Limits.withDefaults(c.Dev)
	if err != nil {
		return err
	}
	log, err := c.Observe.log(std.err)
	if err != nil {
		return err
	}
	credentials, err := c.Credentials.config(c.Dev, key, log)
	if err != nil {
		return err
	}
	if c.Dev {
		log.Warn("DEVELOPMENT MODE: no passwords and no rate limits; anyone on this machine is whoever he says he is. Never use it for real messages")
	}
	meter := metered.New(log)
	open := func(ctx context.Context) (openedStore, error) { return openStore(ctx, store, c.Migrate, meter) }
	//rule:metrics_private.metrics-listener-options
	return serve(ctx, options{
		listen: c.Listen, open: open, redis: c.Peers.Redis, node: c.Peers.name(), credentials: credentials, origins: origins, limits: limits,
		giveUp: func() { os.Exit(exitFailure) },
		meter:  meter, debugListen: c.Observe.DebugListen, privateMetrics: !c.Dev && !c.Observe.PublicMetrics,
	}, log)
}

// check refuses what would let anybody in.
func (c *serveCommand) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return usageError{fmt.Errorf("--listen %q is not HOST:PORT: %w", c.Listen, err)}
	}
	if c.Dev && !loopback(host) {
		return usageError{fmt.Errorf("--dev lets anybody in, so it listens on loopback addresses only, such as 127.0.0.1:8080; --listen is %q", c.Listen)}
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// options is a checked configuration.
type options struct {
	listen string
	// open is openStore for the store that was chosen.
	open func(ctx context.Context) (openedStore, error)
	// redis is the URL of what nodes share, "" for one alone.
	redis       string
	node        tidemark.NodeID
	credentials transports.AuthConfig
	origins     *transports.Origins
	limits      limitFlags
	// meter is what the store that was opened is measured by; nil: it is not.
	meter          *metered.Meter
	debugListen    string
	privateMetrics bool
	// giveUp ends the process. It is called if the stop does not end by itself.
	giveUp func()
}

// collectors returns the metrics of the store.
func (o *options) collectors() []prometheus.Collector {
	if o.meter == nil {
		return nil
	}
	return []prometheus.Collector{o.meter}
}

// whenLate returns a timer that ends the process, as a crash does, once it is reset. A disk or a database that answers nothing can hold up a stop for
// ever: nothing waits for that, since what was confirmed is stored.
func (o *options) whenLate(log *slog.Logger) *time.Timer {
	return time.AfterFunc(math.MaxInt64, func() {
		log.Error("the stop does not end, probably because the storage does not answer; the process ends as in a crash. What was confirmed is stored")
		o.giveUp()
	})
}

// beside runs what goes on beside the server, which has the values of ctx and not its end, until stop is called. stop waits for it.
func beside(ctx context.Context, loops ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// serve is the whole server: what is started here is stopped here, in the opposite order.
func serve(ctx context.Context, o options, log *slog.Logger) (err error) {
	store, err := o.open(ctx)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	late := o.whenLate(log)
	defer late.Stop()
	defer func() { err = errors.Join(err, store.Close()) }()

	others, err := openPeers(ctx, o.redis, o.node, log)
	if err != nil {
		return fmt.Errorf("connect to Redis: %w", err)
	}
	defer func() { err = errors.Join(err, others.stop()) }()
	core, err := server.New(server.Config{Storage: store, Registry: others.registry, Nodes: others.nodes, Bus: others.bus, Node: o.node, Logger: log})
	if err != nil {
		return err
	}

	o.credentials.ResumeWindow = core.ResumeWindow()
	tickets, keepTickets := others.tickets(core.ResumeWindow(), log)
	o.credentials.Tickets = tickets
	credentials := transports.NewAuthenticator(o.credentials)
	limiter := others.limiter(o.credentials.Dev)
	gate := transports.NewGate(transports.GateConfig{})
	sockets := websocket.New(websocket.Config{Server: core, Auth: credentials, Limit: limiter, Gate: gate, Origins: o.origins, Logger: log})
	events := sse.New(sse.Config{Server: core, Auth: credentials, Limit: limiter, Gate: gate, Logger: log})
	polls := longpoll.New(longpoll.Config{Server: core, Auth: credentials, Limit: limiter, Gate: gate})
	handler, err := transports.New(transports.Config{
		Server: core, Auth: credentials, Limit: limiter, Origins: o.origins, Logger: log, Page: web.App(), Alive: progress(store.committing), Degraded: others.degraded(core.Degraded),
		Events: events.Handle, Poll: polls.Handle, WebSocket: sockets.Handle,
		Version: version, PrivateMetrics: o.privateMetrics, Collectors: o.collectors(),
		Counters: append(others.counters, sockets.Counters, events.Counters, polls.Counters, gate.Counters, limiter.Counters),
	})
	if err != nil {
		return err
	}
	listener, err := o.limits.listen(o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	if err := core.Start(ctx); err != nil {
		return errors.Join(fmt.Errorf("start: %w", err), listener.Close())
	}
	//rule:bounded_use.share-rates-among-nodes
	defer beside(ctx, credentials.Run, keepTickets, limiter.Run)()
	stopDebug, err := serveDebug(ctx, o.debugListen, handler.Debug(), log)
	if err != nil {
		return errors.Join(err, listener.Close(), core.Stop(ctx))
	}
	defer func() { err = errors.Join(err, stopDebug()) }()
	front := handler.HTTPServer(o.listen)
	served := make(chan error, 1)
	go func() { served <- front.Serve(listener) }()
	log.Info("listening", "url", "http://"+listener.Addr().String())

	end := drain{
		delay: *o.limits.DrainDelay, within: o.limits.DrainDeadline, spread: *o.limits.DrainSpread, alone: func() bool { return core.Counters()["nodes"] < 2 },
		handler: handler, front: front, adapters: []streamAdapter{sockets, events, polls}, core: core, log: log,
	}
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case <-store.failed:
		end.delay, end.within, end.alone = 0, stopFailedWithin, func() bool { return true }
		err = tidemark.Errorf(tidemark.Unavailable, "the disk failed in a commit: nobody knows what is stored until the server starts again")
	case err = <-served:
		end.delay = 0
		served <- http.ErrServerClosed
	}
	//rule:stop_in_order.end-although-the-disk-hangs
	late.Reset(end.within + end.within/3)
	err = errors.Join(err, end.run())
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
