package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/local"
	redisbus "github.com/tidemark-im/tidemark/server/bus/redis"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/server/registry/memory"
	redisregistry "github.com/tidemark-im/tidemark/server/registry/redis"
	"github.com/tidemark-im/tidemark/transports"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/limit"
	redistransports "github.com/tidemark-im/tidemark/transports/redis"
)

// peerFlags configure a node of a cluster.
type peerFlags struct {
	Redis string `env:"TIDEMARK_REDIS" placeholder:"URL" help:"Redis of a cluster: redis://[USER:PASSWORD@]HOST:PORT[/DB], redis+sentinel://HOST:PORT,…/MASTER, or redis+cluster://HOST:PORT,…; with TLS rediss://, rediss+sentinel://, rediss+cluster://. The nodes share a store, Postgres or DynamoDB. Without it and without --cluster, this node is alone."`
	ClusterFlags
	Node string `env:"TIDEMARK_NODE" placeholder:"NAME" help:"Name of this node, unique in the cluster. Default: the host name and random letters."`
}

// check returns a usageError if the name or the URL is malformed, or if nodes cannot share store.
func (f *peerFlags) check(store storeURL) error {
	if f.Node != "" && !tidemark.ValidID(f.Node) {
		return usagef("--node is %q; it must be 1 to %d characters of A-Z a-z 0-9 _ . : -",
			f.Node, tidemark.MaxIDLength)
	}
	if err := f.ClusterFlags.check(store, f.Redis); err != nil || f.Redis == "" {
		return err
	}
	if _, err := redis.ParseURL(f.Redis); err != nil {
		return usagef("--redis: %s", tidemark.DetailOf(err))
	}
	if store.scheme == schemeMemory || store.scheme == schemeSQLite {
		return usagef("the nodes of --redis share a store, which must be Postgres or DynamoDB; "+
			"a store of %s: belongs to one node", store.scheme)
	}
	return nil
}

// name returns the node's name: the one of the flag, else the host name and random letters.
func (f *peerFlags) name() tidemark.NodeID {
	if f.Node != "" {
		return tidemark.NodeID(f.Node)
	}
	const letters, most = 6, 100
	host, err := os.Hostname()
	if err != nil || len(host) > most || !tidemark.ValidID(host) {
		host = "node"
	}
	return tidemark.NodeID(host + "-" + strings.ToLower(rand.Text()[:letters]))
}

// peers holds what the nodes of a cluster share, in Redis or Postgres, or in memory for a node
// alone.
type peers struct {
	registry registry.Registry
	nodes    registry.Nodes
	bus      bus.Bus
	counters []transports.CounterFunc
	// several is false for a node alone. Then newTickets and rates are nil.
	several    bool
	newTickets func(resume time.Duration, log *slog.Logger) sharedTickets
	rates      limit.Shared
	// client is nil without Redis.
	client *redis.Client
	stop   func() error
	// suspended reports which users are suspended. It is set once the core is made.
	suspended func(ctx context.Context, users []tidemark.UserID) ([]bool, error)
}

// sharedTickets are tickets that any node can redeem.
type sharedTickets interface {
	auth.Tickets
	Run(ctx context.Context)
	Counters() map[string]int64
}

// alone returns the peers of a node without others.
func alone() *peers {
	leases := memory.New()
	return &peers{
		registry: leases,
		nodes:    leases,
		bus:      local.New(),
		stop:     func() error { return nil },
	}
}

// openPeers returns what the nodes of a cluster share. Only nodes on the same incarnation of the
// data are peers.
func (o *options) openPeers(
	ctx context.Context, store openedStore, log *slog.Logger,
) (*peers, error) {
	switch {
	case o.cluster.redis != "":
		return openRedis(ctx, o.cluster.redis, o.node, store.Incarnation(), log)
	case o.cluster.listen != "":
		return o.cluster.open(ctx, store, log)
	}
	return alone(), nil
}

// openRedis connects to the Redis of a URL. If it cannot be reached, the client keeps trying in the
// background. It is an error if Redis refuses this node, or is too old, because neither changes by
// itself.
func openRedis(
	ctx context.Context, url string, node tidemark.NodeID, data tidemark.Incarnation,
	log *slog.Logger,
) (*peers, error) {
	client, err := redis.Open(redis.Config{URL: url, Name: "tidemark:" + string(node)})
	if err != nil {
		return nil, err
	}
	switch err := client.Check(ctx); {
	case tidemark.CodeOf(err) == tidemark.Unavailable:
		log.Error("Redis cannot be reached: this node starts alone, and joins the others later",
			"redis", client.Address().String(), "error", err)
	case err != nil:
		return nil, errors.Join(err, client.Close())
	default:
		log.Info("connected to Redis", "redis", client.Address().String(), "node", string(node))
	}
	leases, events := redisregistry.New(client, data), redisbus.New(client)
	leases.Start()
	events.Start()
	return &peers{
		registry: leases,
		nodes:    leases,
		bus:      events,
		client:   client,
		several:  true,
		rates:    redistransports.NewRates(client),
		newTickets: func(resume time.Duration, log *slog.Logger) sharedTickets {
			return redistransports.NewTickets(redistransports.TicketsConfig{
				Client: client, ResumeWindow: resume, Logger: log,
			})
		},
		counters: []transports.CounterFunc{client.Counters, events.Counters},
		stop: func() error {
			events.Stop()
			leases.Stop()
			return client.Close()
		},
	}, nil
}

// tickets returns the tickets that all nodes share, and the loop that maintains them.
// For a node alone it returns nil, because such a node keeps its own tickets.
func (p *peers) tickets(
	resume time.Duration, log *slog.Logger,
) (tickets auth.Tickets, run func(context.Context)) {
	if !p.several {
		return nil, func(context.Context) {}
	}
	shared := p.newTickets(resume, log)
	p.counters = append(p.counters, shared.Counters)
	return shared, shared.Run
}

// limiter returns the rate limits of users, which count on all nodes, or nil in development.
func (p *peers) limiter(dev bool, rates rateFlags) *limit.Limiter {
	if dev {
		return nil
	}
	cfg := rates.config()
	cfg.Shared = p.rates
	return limit.New(cfg)
}

// degraded returns ask, by which /readyz checks the other nodes, or nil for a node alone.
func (p *peers) degraded(ask func() error) func() error {
	if !p.several {
		return nil
	}
	return ask
}
