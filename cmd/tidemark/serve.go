package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/tidemark-im/tidemark/tracing"
	"github.com/tidemark-im/tidemark/transports"
	adapter "github.com/tidemark-im/tidemark/transports/attachments"
	auditcall "github.com/tidemark-im/tidemark/transports/audit"
	"github.com/tidemark-im/tidemark/transports/auth"
	erasures "github.com/tidemark-im/tidemark/transports/erasure"
	"github.com/tidemark-im/tidemark/transports/limit"
	"github.com/tidemark-im/tidemark/transports/longpoll"
	"github.com/tidemark-im/tidemark/transports/origin"
	"github.com/tidemark-im/tidemark/transports/outlets"
	"github.com/tidemark-im/tidemark/transports/push"
	"github.com/tidemark-im/tidemark/transports/sse"
	"github.com/tidemark-im/tidemark/transports/websocket"
	"github.com/tidemark-im/tidemark/web"
)

// serveCommand is the configuration of the server, from flags, variables and the file.
type serveCommand struct {
	Listen      string          `default:"127.0.0.1:8080" env:"TIDEMARK_LISTEN" placeholder:"HOST:PORT" help:"Address to listen on; port 0 chooses a free one, which is logged. Default ${default}."`
	Store       string          `default:"sqlite:" env:"TIDEMARK_STORE" placeholder:"URL" help:"Where messages are kept: sqlite:PATH (sqlite: is ./tidemark.db), postgres://USER:PASSWORD@HOST:PORT/DATABASE, dynamodb://REGION/PREFIX, or memory: for a trial."`
	Dev         bool            `env:"TIDEMARK_DEV" help:"Development: authentication and rate limits are off, so any user name works (Bearer dev:NAME). Loopback addresses only."`
	Migrate     bool            `env:"TIDEMARK_MIGRATE" help:"First bring the schema of Postgres or DynamoDB up to date. Without it, an older schema is refused. SQLite is always brought up to date."`
	Peers       peerFlags       `embed:""`
	Credentials credentialFlags `embed:""`
	Observe     observeFlags    `embed:""`
	AllowOrigin []string        `name:"allow-origin" env:"TIDEMARK_ALLOW_ORIGIN" placeholder:"ORIGIN" help:"Origin of web pages that may call, such as https://app.example.com, or * for all; repeatable. Pages of the server's own host always may."`
	Outlets     outletFlags     `embed:""`
	Files       attachmentFlags `embed:""`
	Limits      limitFlags      `embed:""`
	Rates       rateFlags       `embed:""`
	Core        coreFlags       `embed:""`
	Config      string          `env:"TIDEMARK_CONFIG" placeholder:"FILE" help:"YAML file whose keys are the names of these flags. Flags and variables override it. It is read again when it changes."`
}

// Help returns the rest of the text of `serve --help`.
func (serveCommand) Help() string {
	return fmt.Sprintf("Without --dev the server needs a source of credentials. Set %s to a "+
		"secret of at least %d bytes, which signs the users' tokens (HS256), or give --jwks-url "+
		"or --api-keys-file. The secret is read from the environment only.",
		secretVariable, minSecret)
}

// Run serves until something fails, or until ctx ends, which starts an orderly stop.
func (c *serveCommand) Run(ctx context.Context, std streams, args arguments) error {
	key, err := secret()
	if err != nil {
		return err
	}
	set, err := c.settings(std.err)
	if err != nil {
		return err
	}
	log := set.log
	adopt(log)
	file, err := newReload(args, c.Config, set.level, log)
	if err != nil {
		return err
	}
	credentials, err := c.Credentials.config(c.Dev, key, log)
	if err != nil {
		return err
	}
	if c.Dev {
		log.Warn("DEVELOPMENT MODE: authentication and rate limits are off, so any user name " +
			"works. Never use it for real messages")
	}
	meter := metered.New(log)
	node, tracer := c.Peers.name(), set.traces.tracer()
	if tracer != nil {
		meter.Trace()
	}
	open := func(ctx context.Context) (openedStore, error) {
		return openWhole(ctx, set.store, c.Migrate, c.Core.CommitBatch, meter)
	}
	//rule:metrics_private.metrics-listener-options
	metrics := metricsOptions{
		debugListen: c.Observe.DebugListen,
		private:     !c.Dev && !c.Observe.PublicMetrics && set.metricsToken == "",
		token:       set.metricsToken,
		tracer:      tracer,
		export:      set.traces.export(tracer, node, log),
	}
	return serve(ctx, options{
		listen:      c.Listen,
		open:        open,
		cluster:     c.Peers.settings(),
		node:        node,
		credentials: credentials,
		origins:     set.origins,
		limits:      set.limits,
		rates:       c.Rates,
		core:        c.Core,
		outlet:      set.outlet,
		filesAt:     set.filesAt,
		file:        file,
		giveUp:      func() { os.Exit(exitFailure) },
		meter:       meter,
		metrics:     metrics,
	}, log)
}

// settings are the checked flags and variables of serve, except the credentials.
type settings struct {
	store        storeURL
	origins      *origin.Policy
	limits       limitFlags
	outlet       outletSettings
	filesAt      filesAt
	metricsToken string
	traces       traceSettings
	log          *slog.Logger
	level        *slog.LevelVar
}

// settings checks everything that can be checked before something is opened. The error has all that
// is wrong. The log is written to a writer. Doctor checks the same.
func (c *serveCommand) settings(logTo io.Writer) (settings, error) {
	var s settings
	var errs [9]error
	if s.store, errs[0] = parseStore(c.Store); errs[0] == nil {
		errs[0] = errors.Join(c.Peers.check(s.store), c.Outlets.checkStore(s.store))
	}
	errs[1] = errors.Join(c.check(), c.Core.check(), c.Core.Erasure.check())
	s.origins, errs[2] = origin.New(origin.Config{Allow: c.AllowOrigin, Loopback: c.Dev})
	if errs[2] != nil {
		errs[2] = usagef("--allow-origin: %s", tidemark.DetailOf(errs[2]))
	}
	s.limits, errs[3] = c.Limits.withDefaults(c.Dev)
	s.metricsToken, errs[4] = c.Observe.metricsToken()
	s.log, s.level, errs[5] = c.Observe.log(logTo)
	s.outlet, errs[6] = c.Outlets.config(c.Dev)
	s.filesAt, errs[7] = c.Files.parse()
	s.traces, errs[8] = c.Observe.Traces.config()
	return s, errors.Join(errs[:]...)
}

// check returns a usageError if --listen is malformed, or would expose a development server.
func (c *serveCommand) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return usagef("--listen %q is not HOST:PORT: %w", c.Listen, err)
	}
	if c.Dev && !loopback(host) {
		return usagef("--dev turns authentication off, so it allows loopback addresses only, "+
			"such as 127.0.0.1:8080; --listen is %q", c.Listen)
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
	// open opens the configured store.
	open func(ctx context.Context) (openedStore, error)
	// cluster says what the nodes share besides the store.
	cluster     clusterSettings
	node        tidemark.NodeID
	credentials auth.Config
	origins     *origin.Policy
	limits      limitFlags
	rates       rateFlags
	core        coreFlags
	// outlet configures the engine of outlets and what notifies devices.
	outlet outletSettings
	// filesAt is where the files of messages are kept.
	filesAt filesAt
	// file is the configuration file, or nil.
	file *reload
	// meter measures the opened store. If it is nil, the store is not measured.
	meter   *metered.Meter
	metrics metricsOptions
	// giveUp ends the process. It is called if the stop takes too long.
	giveUp func()
}

// metricsOptions say who may read metrics, and where traces go.
type metricsOptions struct {
	// debugListen is the address of the debug listener, or "".
	debugListen string
	private     bool
	// token is the bearer token of /metrics, or "".
	token string
	// tracer is nil if nothing is traced. export sends its spans to the collector until its context
	// ends.
	tracer *tracing.Tracer
	export func(context.Context)
}

// exporter returns the loop that sends spans.
func (o *metricsOptions) exporter() func(context.Context) {
	if o.export == nil {
		return func(context.Context) {}
	}
	return o.export
}

// collectors returns the metrics of the store.
func (o *options) collectors() []prometheus.Collector {
	if o.meter == nil {
		return nil
	}
	return []prometheus.Collector{o.meter}
}

// whenLate returns a timer that ends the process like a crash. It does not run until it is reset.
// A disk or database that does not answer could hold up a stop indefinitely.
// The process need not wait for it, because what was confirmed is stored.
func (o *options) whenLate(log *slog.Logger) *time.Timer {
	return time.AfterFunc(math.MaxInt64, func() {
		log.Error("the stop takes too long, probably because the storage does not answer; the " +
			"process ends as in a crash. What was confirmed is stored")
		o.giveUp()
	})
}

// beside runs loops beside the server until stop is called. stop waits for them.
// Their context has the values of ctx, but does not end with it.
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

// httpLayer holds the transports and the handler in front of the core, before they are started.
type httpLayer struct {
	credentials *auth.Authenticator
	// keepTickets is the loop that maintains the tickets.
	keepTickets func(context.Context)
	limiter     *limit.Limiter
	adapters    []streamAdapter
	handler     *transports.Handler
}

// layer returns the transports in front of the core. It starts nothing.
func (o *options) layer(
	a *assembled, store openedStore, others *peers, log *slog.Logger,
) (*httpLayer, error) {
	core, told, kept := a.core, a.told, a.kept
	o.credentials.ResumeWindow = core.ResumeWindow()
	o.credentials.Erasures = a.erases.register
	tickets, keepTickets := others.tickets(core.ResumeWindow(), log)
	o.credentials.Tickets = tickets
	o.credentials.Access = core
	credentials := auth.New(o.credentials)
	limiter := others.limiter(o.credentials.Dev, o.rates)
	gate := limit.NewGate(limit.GateConfig{})
	sockets := websocket.New(websocket.Config{
		Server: core, Auth: credentials, Limit: limiter, Gate: gate, Logger: log,
		Origins: o.origins,
	})
	events := sse.New(sse.Config{
		Server: core, Auth: credentials, Limit: limiter, Gate: gate, Logger: log,
	})
	polls := longpoll.New(longpoll.Config{
		Server: core, Auth: credentials, Limit: limiter, Gate: gate,
	})
	admin := outlets.New(outlets.Config{
		Engine: told.engine, Auth: credentials, Limit: limiter, Audit: a.audits.log,
	})
	told.push.Server, told.push.Auth, told.push.Limit = core, credentials, limiter
	notices := push.New(told.push)
	fileCalls := adapter.New(adapter.Config{
		Server: core, Auth: credentials, Limit: limiter, Attachments: kept.kept, Dir: kept.dir,
	})
	erasures := erasures.New(erasures.Config{
		Server: core, Register: a.erases.register, Exporter: a.erases.exporter, Auth: credentials,
		Limit: limiter, Audit: a.audits.log,
	})
	entries := auditcall.New(auditcall.Config{
		Server: core, Log: a.audits.log, Auth: credentials, Limit: limiter,
	})
	mounts := []transports.Mount{
		admin.Mount, notices.Mount, fileCalls.Mount, erasures.Mount, entries.Mount,
	}
	handler, err := transports.New(transports.Config{
		Server:         core,
		Auth:           credentials,
		Limit:          limiter,
		Origins:        o.origins,
		Logger:         log,
		Page:           web.App(),
		Files:          kept.origin,
		Alive:          progress(store.committing),
		Degraded:       others.degraded(core.Degraded),
		Events:         events.Handle,
		Poll:           polls.Handle,
		WebSocket:      sockets.Handle,
		NoAPI:          !o.outlet.has(roleGateway),
		Mounts:         mounts,
		Version:        version,
		PrivateMetrics: o.metrics.private,
		MetricsToken:   o.metrics.token,
		Tracer:         o.metrics.tracer,
		Audit:          a.audits.log,
		Collectors:     o.collectors(),
		Counters: append(others.counters, sockets.Counters, events.Counters, polls.Counters,
			gate.Counters, limiter.Counters, told.engine.Counters, kept.counters),
	})
	if err != nil {
		return nil, err
	}
	return &httpLayer{
		credentials: credentials,
		keepTickets: keepTickets,
		limiter:     limiter,
		adapters:    []streamAdapter{sockets, events, polls},
		handler:     handler,
	}, nil
}

// assembled is a server before it is started.
type assembled struct {
	core   *server.Server
	told   outletWork
	kept   files
	sweeps sweeping
	erases erasing
	audits auditing
	layer  *httpLayer
}

// assemble returns the core, what is told of its news, its files, and the transports in front of
// it. It starts nothing.
func (o *options) assemble(
	ctx context.Context, store openedStore, others *peers, log *slog.Logger,
) (a assembled, err error) {
	if a.told, err = o.outlets(store, others, log); err != nil {
		return a, err
	}
	if a.sweeps, err = o.sweeping(a.told.store, log); err != nil {
		return a, err
	}
	if a.erases, err = o.register(ctx, a.told.store, log); err != nil {
		return a, err
	}
	if a.audits, err = o.auditing(a.told.store, a.erases.register, log); err != nil {
		return a, err
	}
	if err = o.newCore(ctx, &a, store.compares, others, log); err != nil {
		return a, err
	}
	a.told.fanout.core = a.core
	a.erases.attach(&a, a.told.store, log)
	others.suspended = a.core.Suspended
	others.counters = append(others.counters, a.sweeps.counters, a.erases.counters,
		a.audits.log.Counters)
	a.layer, err = o.layer(&a, store, others, log)
	return a, err
}

// newCore sets the core, and the files that it keeps. compares is openedStore.compares.
func (o *options) newCore(
	ctx context.Context, a *assembled, compares int, others *peers, log *slog.Logger,
) (err error) {
	store := a.told.store
	if a.kept, err = o.filesAt.open(ctx, store, log); err != nil {
		return err
	}
	cfg := server.Config{
		Storage:   store,
		Registry:  others.registry,
		Nodes:     others.nodes,
		Bus:       others.bus,
		Deletions: a.sweeps.deletions,
		Erasures:  a.erases.register,
		Audit:     a.audits.log,
		Node:      o.node,
		Logger:    log,
		Tracer:    o.metrics.tracer,

		ResumeWindow:    o.core.ResumeWindow,
		Grace:           o.core.Grace,
		AckInterval:     o.core.AckInterval,
		StatusInterval:  o.core.StatusInterval,
		AckBatch:        o.core.AckBatch,
		StatusFanout:    o.core.StatusFanout,
		SessionsPerUser: o.core.SessionsPerUser,

		OnlyBackendsOpen: o.core.OpenChats == "backends",

		Documents: store,
		LastSeen:  o.core.LastSeen,

		ComparesPerSecond: compares,
	}
	if a.kept.kept != nil {
		cfg.Attachments = a.kept.kept
	}
	asked, err := o.hook(log)
	if err != nil {
		return err
	}
	if asked != nil {
		cfg.Reviewer = asked
	}
	others.counters = append(others.counters, asked.Counters)
	if o.outlet.fanout.byKafka {
		cfg.Workers = a.told.fanout
	}
	a.core, err = server.New(cfg)
	return err
}

// errReplaced is the error of a server whose database has become another one.
var errReplaced = errors.New("the database has become another one")

// serve runs servers, one after the other, each as long as the database is the same one. A new one
// keeps nothing of what the one before knew, and its clients send their cursors.
func serve(ctx context.Context, o options, log *slog.Logger) error {
	for {
		err := o.serveOne(ctx, log)
		replaced := errors.Is(err, errReplaced)
		//rule:stop_in_order.end-while-it-begins-anew
		if ctx.Err() != nil && (replaced || errors.Is(err, context.Canceled)) {
			log.Info("stopped while the server began", "error", err)
			return nil
		}
		//rule:restore_is_noticed.server-begins-anew
		if !replaced {
			return err
		}
		log.Warn("the server begins anew, because its database has become another one: a standby "+
			"was promoted, or a backup restored", "error", err)
	}
}

// serveOne runs one server. It stops what it starts, in the opposite order. It sets o.listen to the
// address that it got.
func (o *options) serveOne(ctx context.Context, log *slog.Logger) (err error) {
	store, err := o.open(ctx)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	late := o.whenLate(log)
	defer late.Stop()
	defer func() { err = errors.Join(err, store.Close()) }()

	others, err := o.openPeers(ctx, store, log)
	if err != nil {
		return fmt.Errorf("connect to the other nodes: %w", err)
	}
	defer func() { err = errors.Join(err, others.stop()) }()
	a, err := o.assemble(ctx, store, others, log)
	if err != nil {
		return err
	}
	core, layer := a.core, a.layer
	listener, err := o.limits.listen(o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	o.listen = listener.Addr().String()

	if err := core.Start(ctx); err != nil {
		return errors.Join(fmt.Errorf("start: %w", err), listener.Close())
	}
	if err := a.erases.worker.Replay(ctx, a.told.store); err != nil {
		return errors.Join(fmt.Errorf("erase users again: %w", err), listener.Close(),
			core.Stop(ctx))
	}
	//rule:bounded_use.share-rates-among-nodes
	defer beside(ctx, layer.credentials.Run, layer.keepTickets, layer.limiter.Run,
		layer.handler.Run, o.file.run(layer.limiter), a.told.run, a.kept.run,
		a.sweeps.run, a.sweeps.purge, a.erases.run, a.erases.work, a.audits.run,
		o.metrics.exporter())()
	stopDebug, err := serveDebug(ctx, o.metrics.debugListen, layer.handler.Debug(), log)
	if err != nil {
		return errors.Join(err, listener.Close(), core.Stop(ctx))
	}
	defer func() { err = errors.Join(err, stopDebug()) }()
	front := layer.handler.HTTPServer(o.listen)
	served := make(chan error, 1)
	go func() { served <- front.Serve(listener) }()
	log.Info("listening", "url", "http://"+listener.Addr().String())

	end := drain{
		delay:    *o.limits.DrainDelay,
		within:   o.limits.DrainDeadline,
		spread:   *o.limits.DrainSpread,
		alone:    func() bool { return core.Counters()["nodes"] < 2 },
		handler:  layer.handler,
		front:    front,
		adapters: layer.adapters,
		core:     core,
		log:      log,
	}
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case <-store.replaced:
		end.delay, end.within, end.alone = 0, stopReplacedWithin, func() bool { return true }
		err = errReplaced
	case <-store.failed:
		end.delay, end.within, end.alone = 0, stopFailedWithin, func() bool { return true }
		err = tidemark.Errorf(tidemark.Unavailable, "the disk failed in a commit, "+
			"so what is stored is unknown; start the server again")
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
