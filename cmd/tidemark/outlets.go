package main

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/hook"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/redis"
	"github.com/tidemark-im/tidemark/reach/webhook"
	"github.com/tidemark-im/tidemark/storage"
	adapter "github.com/tidemark-im/tidemark/transports/push"
)

// outletVariable is the only way to set the key that seals the secrets of outlets.
const outletVariable = "TIDEMARK_OUTLET_KEY"

// developmentKey seals them with --dev. It is no secret.
const developmentKey = "tidemark serve --dev: this is no secret"

// The roles of a node.
const (
	roleGateway = "gateway"
	roleWorker  = "worker"
)

// outletFlags configure outlets (docs/webhooks.md).
type outletFlags struct {
	Roles []string `name:"roles" env:"TIDEMARK_ROLES" placeholder:"ROLE,…" help:"What this node does: gateway serves clients, worker delivers to outlets and notifies devices. All nodes do both unless this says otherwise."`

	Kafka          string   `env:"TIDEMARK_KAFKA" placeholder:"URL" help:"Kafka of the outlets of the type kafka, and of --fanout: kafka://[USER:PASSWORD@]HOST:PORT,… with kafkas for TLS. Give all nodes the same one."`
	Fanout         string   `name:"fanout" env:"TIDEMARK_FANOUT" placeholder:"HOW" help:"How messages get to their recipients: direct, by the node that stores them, or kafka, by workers that read the topic tidemark.fanout of --kafka; kafka:PREFIX names the topic PREFIX.fanout. Give all nodes the same value. Default direct."`
	ReachAllowCIDR []string `name:"reach-allow-cidr" env:"TIDEMARK_REACH_ALLOW_CIDR" placeholder:"NETWORK" help:"Private network to which webhooks may lead, such as 10.0.0.0/8, also by http:// and on any port; repeatable. --dev implies 127.0.0.0/8 and ::1/128."`

	WorkerTimeout time.Duration `env:"TIDEMARK_WORKER_TIMEOUT" placeholder:"TIME" help:"Silence after which the other nodes take over what a node delivers to outlets. Give all nodes the same value. Default 15s."`

	Push pushFlags `embed:""`
	Hook hookFlags `embed:""`
}

// outletSettings are the checked flags of outlets. The store and the log of reach are empty.
type outletSettings struct {
	reach  reach.Config
	push   pushSettings
	fanout fanoutSettings
	// hook is what is asked before messages are stored, or nil.
	hook *hook.Config
	// roles are those of this node; none means all.
	roles []string
}

// has reports whether this node has a role.
func (s *outletSettings) has(role string) bool {
	return len(s.roles) == 0 || slices.Contains(s.roles, role)
}

// checkStore returns a usageError if this node lacks a role, but other nodes cannot share its
// store.
func (f *outletFlags) checkStore(store storeURL) error {
	one := outletSettings{roles: f.Roles}
	if (!one.has(roleGateway) || !one.has(roleWorker)) &&
		(store.scheme == schemeMemory || store.scheme == schemeSQLite) {
		return usagef("with --roles %s, other nodes have the other role, and share the store: it "+
			"must be Postgres or DynamoDB; a store of %s: belongs to one node",
			strings.Join(f.Roles, ","), store.scheme)
	}
	return nil
}

// config checks the flags and the variable.
func (f *outletFlags) config(dev bool) (outletSettings, error) {
	var allow []netip.Prefix
	if dev {
		allow = append(allow, netip.MustParsePrefix("127.0.0.0/8"),
			netip.MustParsePrefix("::1/128"))
	}
	for _, text := range f.ReachAllowCIDR {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix != prefix.Masked() {
			return outletSettings{}, usagef("--reach-allow-cidr %q is not a network, such as "+
				"10.0.0.0/8 or fd00::/8", text)
		}
		allow = append(allow, prefix)
	}
	key, err := outletKey(dev)
	if err != nil {
		return outletSettings{}, err
	}
	for _, role := range f.Roles {
		if role != roleGateway && role != roleWorker {
			return outletSettings{}, usagef("--roles %q: the roles are %s and %s", role,
				roleGateway, roleWorker)
		}
	}
	s := outletSettings{roles: f.Roles}
	s.reach.Aside = !s.has(roleWorker)
	if s.reach.Times, err = outletTimes(f.WorkerTimeout); err != nil {
		return outletSettings{}, err
	}
	if key != "" {
		if s.reach.Sealer, err = reach.NewSealer([]byte(key)); err != nil {
			return outletSettings{}, err
		}
	}
	if s.push, err = f.Push.settings(key, allow); err != nil {
		return outletSettings{}, err
	}
	if s.hook, err = f.Hook.settings(); err != nil {
		return outletSettings{}, err
	}
	var cluster kafka.Cluster
	if f.Kafka != "" {
		if cluster, err = kafka.ParseURL(f.Kafka); err != nil {
			return outletSettings{}, usagef("--kafka: %s", tidemark.DetailOf(err))
		}
	}
	if s.fanout, err = f.fanout(cluster); err != nil {
		return outletSettings{}, err
	}
	s.reach.Kinds = map[string]reach.Kind{
		"webhook": {
			NewSecret: webhook.NewSecret,
			Open: func(s *reach.Spec, secrets []string) (outlet.Client, error) {
				return webhook.New(webhook.Config{
					URL: s.URL, Secrets: secrets, Batch: s.Batch, Content: s.Content, Allow: allow,
				})
			},
		},
		"kafka": {Open: func(s *reach.Spec, _ []string) (outlet.Client, error) {
			return kafka.New(kafka.Config{
				Cluster: cluster, URL: s.URL, Batch: s.Batch, Content: s.Content,
			})
		}},
	}
	return s, nil
}

// The range of --worker-timeout.
const (
	leastWorkerTimeout = time.Second
	mostWorkerTimeout  = time.Minute
)

// outletTimes returns the periods of the engine for a --worker-timeout. Zero is the default. Within
// the timeout, a node sends several heartbeats, and its permission to settle expires.
func outletTimes(timeout time.Duration) (reach.Times, error) {
	if timeout == 0 {
		return reach.Times{}, nil
	}
	if timeout < leastWorkerTimeout || timeout > mostWorkerTimeout {
		return reach.Times{}, usagef("--worker-timeout is %v; it must be %v to %v", timeout,
			leastWorkerTimeout, mostWorkerTimeout)
	}
	return reach.Times{
		Dead: timeout, Trust: timeout / 3, Poll: min(timeout/5, time.Second),
	}, nil
}

// outletKey returns the key that seals the secrets of outlets, or "" if there is none.
func outletKey(dev bool) (string, error) {
	key := os.Getenv(outletVariable)
	switch {
	case key == "" && dev:
		return developmentKey, nil
	case key != "" && len(key) < minSecret:
		return "", usagef("%s has %d bytes; it needs at least %d, such as the output of "+
			"`openssl rand -hex 32`", outletVariable, len(key), minSecret)
	}
	return key, nil
}

// outletWork is the engine of outlets, what notifies devices, what hands messages over, the store
// with which the core announces news to the engine, and the loop that works for all.
type outletWork struct {
	engine *reach.Engine
	push   adapter.Config
	fanout *fanoutWork
	store  storage.Store
	run    func(context.Context)
}

// outlets returns the engine on a store. It forwards news of chats to the nodes that deliver them.
func (o *options) outlets(
	store openedStore, others *peers, log *slog.Logger,
) (outletWork, error) {
	cfg := o.outlet.reach
	cfg.Store, cfg.Log, cfg.Kinds = store, log, map[string]reach.Kind{}
	cfg.Online, cfg.Grace = others.online, o.core.Grace
	maps.Copy(cfg.Kinds, o.outlet.reach.Kinds)
	var hints *redis.Hints
	var forward func(hint string)
	if others.client != nil {
		hints = redis.New(others.client)
		others.counters = append(others.counters, hints.Counters)
		forward = hints.Send
		cfg.Forward = forward
	}
	push, err := o.pusher(store, others, cfg.Kinds, forward, log)
	if err != nil {
		return outletWork{}, err
	}
	handsOver, err := o.fanout(store, others, cfg.Kinds, log)
	if err != nil {
		return outletWork{}, err
	}
	var loops []func(context.Context)
	if o.outlet.has(roleWorker) {
		loops = append(loops, push.run, handsOver.Run)
	}
	engine := reach.New(cfg)
	handsOver.engine = engine
	loops = append(loops, engine.Run)
	if hints != nil {
		loops = append(loops, func(ctx context.Context) {
			hints.Run(ctx, func(hint string) {
				switch {
				case !tidemark.ValidID(strings.TrimSuffix(hint, "/")): // of the pusher
					push.heard(hint)
				case !cfg.Aside: // else it delivers nothing
					engine.HintOfAnother(hint)
				}
			})
		})
	}
	run := func(ctx context.Context) {
		var running sync.WaitGroup
		for _, loop := range loops {
			running.Go(func() { loop(ctx) })
		}
		running.Wait()
	}
	return outletWork{
		engine: engine, push: push.adapter, fanout: handsOver, store: engine.Hinting(push.store),
		run: run,
	}, nil
}
