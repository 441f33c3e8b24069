package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	httpbus "github.com/tidemark-im/tidemark/server/bus/http"
	"github.com/tidemark-im/tidemark/server/registry"
	postgresregistry "github.com/tidemark-im/tidemark/server/registry/postgres"
	"github.com/tidemark-im/tidemark/transports"
	postgrestransports "github.com/tidemark-im/tidemark/transports/postgres"
)

// clusterVariable has the secret that the nodes of --cluster share.
const clusterVariable = "TIDEMARK_CLUSTER_SECRET"

// ClusterFlags configure a node of a cluster without Redis.
type ClusterFlags struct {
	Cluster          string `env:"TIDEMARK_CLUSTER" placeholder:"KIND" help:"postgres: the nodes share nothing but their store, which is Postgres, and reach each other directly. All have the same secret in TIDEMARK_CLUSTER_SECRET."`
	ClusterListen    string `env:"TIDEMARK_CLUSTER_LISTEN" placeholder:"HOST:PORT" help:"Where this node listens for the other nodes, with --cluster. Only they need to reach it."`
	ClusterAdvertise string `env:"TIDEMARK_CLUSTER_ADVERTISE" placeholder:"HOST:PORT" help:"Where the other nodes reach this one. Default: the address of --cluster-listen, if that names a host."`
}

// check returns a usageError if the flags are malformed or incomplete, or if nodes cannot share
// store that way.
func (f *ClusterFlags) check(store storeURL, redisURL string) error {
	switch {
	case f.Cluster == "" && f.ClusterListen == "" && f.ClusterAdvertise == "":
		return nil
	case f.Cluster == "":
		return usagef("--cluster-listen and --cluster-advertise belong to --cluster postgres")
	case f.Cluster != "postgres":
		return usagef("--cluster is %q; it must be postgres", f.Cluster)
	case redisURL != "":
		return usagef("--cluster and --redis exclude each other; give one of them")
	case store.scheme != schemePostgres:
		return usagef("the nodes of --cluster postgres share a store of Postgres; this one is of "+
			"%s:", store.scheme)
	case f.ClusterListen == "":
		return usagef("--cluster needs --cluster-listen HOST:PORT, where the other nodes reach " +
			"this one")
	}
	host, port, err := net.SplitHostPort(f.ClusterListen)
	if err != nil {
		return usagef("--cluster-listen %q is not HOST:PORT: %w", f.ClusterListen, err)
	}
	if f.ClusterAdvertise != "" {
		host, port, err = net.SplitHostPort(f.ClusterAdvertise)
		if err != nil || port == "0" {
			return usagef("--cluster-advertise %q is not HOST:PORT", f.ClusterAdvertise)
		}
	}
	ip := net.ParseIP(host)
	if host == "" || ip != nil && ip.IsUnspecified() {
		return usagef("the other nodes cannot reach %q; give --cluster-advertise HOST:PORT, with "+
			"this node's own address", net.JoinHostPort(host, port))
	}
	_, err = clusterSecret()
	return err
}

// clusterSecret returns the secret that the nodes share.
func clusterSecret() ([]byte, error) {
	text := os.Getenv(clusterVariable)
	if len(text) < httpbus.MinSecret {
		return nil, usagef("%s has %d bytes; --cluster needs at least %d, the same on all nodes, "+
			"such as the output of `openssl rand -hex 32`", clusterVariable, len(text),
			httpbus.MinSecret)
	}
	return []byte(text), nil
}

// settings returns the checked flags.
func (f *peerFlags) settings() clusterSettings {
	if f.Cluster == "" {
		return clusterSettings{redis: f.Redis}
	}
	secret, _ := clusterSecret() // checked already
	return clusterSettings{listen: f.ClusterListen, advertise: f.ClusterAdvertise, secret: secret}
}

// clusterSettings say what nodes share besides the store. redis is the URL of their Redis, or "".
// listen is where they listen for each other without Redis, or "". A node alone has neither.
type clusterSettings struct {
	redis, listen, advertise string
	secret                   []byte
}

// open opens what the nodes share in the database of a store, and listens for the other nodes.
func (c clusterSettings) open(
	ctx context.Context, store openedStore, log *slog.Logger,
) (*peers, error) {
	// The registry's statements and those of tickets must not wait for each other.
	const ticketConnections = 2
	pool, err := store.peers(ctx, postgresregistry.Connections)
	if err != nil {
		return nil, err
	}
	others, err := store.peers(ctx, ticketConnections)
	if err != nil {
		pool.Close()
		return nil, err
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		pool.Close()
		others.Close()
		return nil, fmt.Errorf("--cluster-listen: %w", err)
	}
	address := c.advertise
	if address == "" {
		address = listener.Addr().String()
	}
	var events *httpbus.Bus
	leases := postgresregistry.New(postgresregistry.Config{
		Pool: pool, Data: store.Incarnation(), Address: address,
		Complained: func(node registry.Node, complained bool) {
			events.Complained(node, complained)
		},
	})
	events = httpbus.New(httpbus.Config{Listener: listener, Secret: c.secret, Peers: leases})
	leases.Start()
	events.Start()
	sweep := beside(ctx, func(ctx context.Context) { postgrestransports.Sweep(ctx, others) })
	log.Info("listening for other nodes", "address", listener.Addr().String(),
		"advertised", address)
	return &peers{
		registry: leases,
		nodes:    leases,
		bus:      events,
		several:  true,
		rates:    postgrestransports.NewRates(others),
		newTickets: func(resume time.Duration, log *slog.Logger) sharedTickets {
			return postgrestransports.NewTickets(postgrestransports.TicketsConfig{
				Pool: others, ResumeWindow: resume, Logger: log,
			})
		},
		counters: []transports.CounterFunc{events.Counters},
		stop: func() error {
			sweep()
			events.Stop()
			leases.Stop()
			pool.Close()
			others.Close()
			return nil
		},
	}, nil
}
