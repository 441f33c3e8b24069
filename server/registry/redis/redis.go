// Package redis is the registry of several nodes that share a Redis: a server, a failover group behind sentinels, or a cluster. What it holds are hints: a Redis that
// comes back empty, old, or as another server is another incarnation, whose proofs are worth nothing.
//
// Each step is one Lua script by Redis' own clock. A script touches keys of one slot: those of one user, or the two of the nodes. Calls of one process share
// round trips (redis.NewTrips).
package redis

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// ProofTTL is how long a proof of a clean close is kept. Who stays away longer is compared at his next open.
	ProofTTL = 72 * time.Hour
	// lookupUsers is how many users one script looks up, where a script may touch keys of several slots: about 100 µs of Redis' time.
	lookupUsers = 128
	// refreshLeases is how many leases one script prolongs, on the same condition.
	refreshLeases = 100
	// tripItems is about how many users or calls one round trip takes.
	tripItems = 4096
)

// The keys. Those of the nodes are in one slot of a cluster.
const (
	epochKey = "epoch:{tidemark}"
	nodesKey = "nodes:{tidemark}"
	userKey  = "ws:"
)

// Registry implements registry.Registry and registry.Nodes. Use New, then Start, and Stop when nobody calls it any more.
type Registry struct {
	client  *redis.Client
	scripts scripts
	lookups *batch.Batcher[tidemark.UserID, found]
	steps   *batch.Batcher[redis.Call, redis.Reply]

	mu sync.Mutex
	// lives are those of the nodes that joined here. One whose lease ran out stays: when it joins again, it comes back.
	lives map[tidemark.NodeID]life
	// held are the leases taken here, or maybe taken, and not known to be over, with when they run out at the latest; swept is when those that had were let go.
	held  map[registry.Lease]time.Time
	swept time.Time
	// servers names the lives of the servers of a cluster as they were last seen; empty without one.
	servers string
}

// life is a node's lease.
type life struct {
	boot string
	// until is when the lease runs out at the earliest, by the clock of this process that does not jump.
	until time.Time
	// expires is when it runs out by Redis' clock, in milliseconds.
	expires int64
}

var (
	_ registry.Registry = (*Registry)(nil)
	_ registry.Nodes    = (*Registry)(nil)
)

// New returns a registry on a Redis, which stays its caller's.
func New(client *redis.Client) *Registry {
	r := &Registry{
		client:  client,
		scripts: newScripts(),
		lives:   make(map[tidemark.NodeID]life),
		held:    make(map[registry.Lease]time.Time),
	}
	r.lookups = redis.NewTrips(tripItems, r.lookupTrip)
	r.steps = redis.NewTrips(tripItems, r.stepTrip)
	return r
}

// Start starts the goroutines that make the round trips.
func (r *Registry) Start() {
	r.lookups.Start()
	r.steps.Start()
}

// Stop ends them and waits for them. Calls under way get Unavailable.
func (r *Registry) Stop() {
	r.lookups.Abort()
	r.steps.Abort()
}

// stepTrip makes a round trip of calls. Those who ask for the epoch share one, since it is made after they asked.
func (r *Registry) stepTrip(ctx context.Context, calls []redis.Call) ([]redis.Reply, error) {
	distinct, place, shared := make([]redis.Call, 0, len(calls)), make([]int, len(calls)), -1
	for i, call := range calls {
		if call.Script == r.scripts.epoch && shared >= 0 {
			place[i] = shared
			continue
		}
		place[i] = len(distinct)
		if call.Script == r.scripts.epoch {
			shared = place[i]
		}
		distinct = append(distinct, call)
	}
	replies := r.client.Run(ctx, distinct)
	answers := make([]redis.Reply, len(calls))
	for i := range calls {
		answers[i] = replies[place[i]]
	}
	return answers, redis.AllFailed(replies)
}

// step makes one call of a script, along with others.
func (r *Registry) step(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (answer, error) {
	reply, err := r.steps.DoOne(ctx, redis.Call{Script: script, Keys: keys, Args: args})
	if err != nil {
		return nil, err
	}
	return asAnswer(reply.Value, reply.Err)
}

// alone makes one call of a script by itself: others may be refused at present, and it is time to
// find out whether Redis is back.
func (r *Registry) alone(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (answer, error) {
	return asAnswer(redis.Only(r.client.Run(ctx, []redis.Call{
		{Script: script, Keys: keys, Args: args},
	})))
}

// answer is what a script returned. Its parts are strings and integers; what is not there or something else reads as nothing.
type answer []any

func asAnswer(value any, err error) (answer, error) {
	if err != nil {
		return nil, err
	}
	parts, ok := value.([]any)
	if !ok {
		return nil, tidemark.Errorf(tidemark.Unavailable, "Redis answered %T", value)
	}
	return parts, nil
}

func (a answer) number(i int) int64 {
	if i < len(a) {
		if n, ok := a[i].(int64); ok {
			return n
		}
	}
	return 0
}

func (a answer) text(i int) string {
	if i < len(a) {
		if s, ok := a[i].(string); ok {
			return s
		}
	}
	return ""
}

// joined returns the lease of a node, or NotFound if it has none.
func (r *Registry) joined(node tidemark.NodeID, boot string) (life, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.lives[node]
	if held.boot != boot || time.Now().After(held.until) {
		return life{}, noLease(node)
	}
	return held, nil
}

func noLease(node tidemark.NodeID) error {
	return tidemark.Errorf(tidemark.NotFound, "node %s has no lease in the registry", node)
}

// unused returns a name that no incarnation has had.
func unused() string {
	var b [8]byte
	//rule:R_EPOCH.random-incarnation
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}
