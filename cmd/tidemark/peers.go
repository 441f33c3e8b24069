package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	redistransports "github.com/tidemark-im/tidemark/transports/redis"
)

// peerFlags are what a node needs that is one of several.
type peerFlags struct {
	Redis string `env:"TIDEMARK_REDIS" placeholder:"URL" help:"Where several nodes find each other: redis://[USER:PASSWORD@]HOST:PORT[/DB], redis+sentinel://HOST:PORT,…/MASTER, or redis+cluster://HOST:PORT,…; with TLS rediss://, rediss+sentinel://, rediss+cluster://. They share a store, Postgres or DynamoDB. Without it this node is alone."`
	Node  string `env:"TIDEMARK_NODE" placeholder:"NAME" help:"The name of this node; no two that run may have the same. Default: the name of the machine and some random letters."`
}

// check refuses a URL that is none, a name that is none, and a store that other nodes cannot share.
func (f *peerFlags) check(store storeURL) error {
	if f.Node != "" && !tidemark.ValidID(f.Node) {
		return usageError{fmt.Errorf("--node %q is no name: 1 to %d characters of A-Z a-z 0-9 _ . : -", f.Node, tidemark.MaxIDLength)}
	}
	if f.Redis == "" {
		return nil
	}
	if _, err := redis.ParseURL(f.Redis); err != nil {
		return usageError{fmt.Errorf("--redis: %s", tidemark.DetailOf(err))}
	}
	if store.scheme == schemeMemory || store.scheme == schemeSQLite {
		return usageError{fmt.Errorf("--redis is for several nodes, and those need a store that they share, Postgres or DynamoDB; %s: is this node's alone", store.scheme)}
	}
	return nil
}

// name returns the node's name: the one that was given, or one that no other process has.
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

// peers is what nodes have together: in memory for one alone, in Redis for several.
type peers struct {
	registry registry.Registry
	nodes    registry.Nodes
	bus      bus.Bus
	counters []transports.CounterFunc
	// client is nil for one alone.
	client *redis.Client
	stop   func() error
}

// alone returns what a node has without others.
func alone() *peers {
	leases := memory.New()
	return &peers{registry: leases, nodes: leases, bus: local.New(), stop: func() error { return nil }}
}

// openPeers connects to the Redis of a URL, or returns what a node has alone if there is none. A Redis that cannot be reached is tried again and again; one that
// refuses this node, or is too old, is an error, since that does not mend itself.
func openPeers(ctx context.Context, url string, node tidemark.NodeID, log *slog.Logger) (*peers, error) {
	if url == "" {
		return alone(), nil
	}
	client, err := redis.Open(redis.Config{URL: url, Name: "tidemark:" + string(node)})
	if err != nil {
		return nil, err
	}
	switch err := client.Check(ctx); {
	case tidemark.CodeOf(err) == tidemark.Unavailable:
		log.Error("Redis cannot be reached: this node begins without the others, and joins them when it can", "redis", client.Target().String(), "error", err)
	case err != nil:
		return nil, errors.Join(err, client.Close())
	default:
		log.Info("connected to Redis", "redis", client.Target().String(), "node", string(node))
	}
	leases, events := redisregistry.New(client), redisbus.New(client)
	leases.Start()
	events.Start()
	return &peers{
		registry: leases, nodes: leases, bus: events, client: client, counters: []transports.CounterFunc{client.Counters, events.Counters},
		stop: func() error {
			events.Stop()
			leases.Stop()
			return client.Close()
		},
	}, nil
}

// tickets returns the tickets of all nodes, and what keeps them; nil for a node alone, which keeps its own.
func (p *peers) tickets(resume time.Duration, log *slog.Logger) (tickets transports.Tickets, run func(context.Context)) {
	if p.client == nil {
		return nil, func(context.Context) {}
	}
	shared := redistransports.NewTickets(redistransports.TicketsConfig{Client: p.client, ResumeWindow: resume, Logger: log})
	p.counters = append(p.counters, shared.Counters)
	return shared, shared.Run
}

// limiter returns the limits on what a user may do on all nodes, nil in development.
func (p *peers) limiter(dev bool) *transports.Limiter {
	var cfg transports.LimitConfig
	switch {
	case dev:
		return nil
	case p.client != nil:
		cfg.Shared = redistransports.NewRates(p.client)
	}
	return transports.NewLimiter(cfg)
}

// degraded returns what /readyz asks about the other nodes, nil for a node alone.
func (p *peers) degraded(ask func() error) func() error {
	if p.client == nil {
		return nil
	}
	return ask
}
