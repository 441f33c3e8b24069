// Package redis is a registry for several nodes that share a Redis: one server, a failover group
// behind Sentinel, or a cluster. If Redis comes back empty, with old data, or as another server,
// that is a new incarnation, and all proofs are void.
//
// Each step is one Lua script that uses Redis' clock. A script touches the keys of one slot: those
// of one user, or the two of the nodes. Calls of one process share round trips (redis.NewTrips).
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
	// ProofTTL is how long a proof of a clean close is kept. The next open of a user who stays away
	// longer reconciles.
	ProofTTL = 72 * time.Hour
	// lookupUsers is how many users one script looks up, if a script may touch several slots. It
	// takes about 100 µs of Redis' time.
	lookupUsers = 128
	// refreshLeases is how many leases one script prolongs, under the same condition.
	refreshLeases = 100
	// tripItems is about how many users or calls share one round trip.
	tripItems = 4096
)

// Keys and prefixes. On a cluster, the nodes' keys are in one slot.
const (
	epochKey = "epoch:{tidemark}"
	nodesKey = "nodes:{tidemark}"
	userKey  = "ws:"
)

// Registry implements registry.Registry and registry.Nodes. Call New, then Start, and Stop after
// the last call. It is safe for concurrent use.
type Registry struct {
	// users is the beginning of the key of each user. nodes are the keys of the nodes.
	users   string
	nodes   []string
	client  *redis.Client
	scripts scripts
	lookups *batch.Batcher[tidemark.UserID, found]
	steps   *batch.Batcher[redis.Call, redis.Reply]

	mu sync.Mutex
	// lives has the lives of the nodes that joined through this Registry. One whose lease expired
	// stays, so that its next Join raises the epoch.
	lives map[tidemark.NodeID]life
	// held has the leases that were or may have been taken here, with the latest time at which they
	// expire. swept is when expired ones were last removed.
	held  map[registry.Lease]time.Time
	swept time.Time
	// servers names the lives of a cluster's servers as they were last seen. It is empty without a
	// cluster.
	servers string
}

// life is one life of a node, with its lease.
type life struct {
	boot string
	// until is the earliest time at which the lease expires, by the monotonic clock of this
	// process.
	until time.Time
	// expires is when the lease expires by Redis' clock, in milliseconds.
	expires int64
}

var (
	_ registry.Registry = (*Registry)(nil)
	_ registry.Nodes    = (*Registry)(nil)
)

// New returns a registry on a Redis. The caller closes client. The keys have the incarnation of the
// data in their names. So what the nodes of another incarnation say, such as which users have all
// that they miss in pending rows, does not count.
func New(client *redis.Client, data tidemark.Incarnation) *Registry {
	// A proof that restored data have all rows would be false.
	//rule:restore_is_noticed.leases-and-proofs-are-of-one-life
	users := userKey + string(data) + ":"
	r := &Registry{
		users:   users,
		nodes:   []string{epochKey + ":" + string(data), nodesKey + ":" + string(data)},
		client:  client,
		scripts: newScripts(),
		lives:   make(map[tidemark.NodeID]life),
		held:    make(map[registry.Lease]time.Time),
	}
	r.lookups = redis.NewTrips(tripItems, r.lookupTrip)
	r.steps = redis.NewTrips(tripItems, r.stepTrip)
	return r
}

// Start starts the goroutines that do the round trips.
func (r *Registry) Start() {
	r.lookups.Start()
	r.steps.Start()
}

// Stop stops the goroutines and waits for them. Calls under way get Unavailable.
func (r *Registry) Stop() {
	r.lookups.Abort()
	r.steps.Abort()
}

// stepTrip does calls in one round trip. All calls for the epoch share one, which is made after
// they began.
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

// step calls a script in a shared round trip.
func (r *Registry) step(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (answer, error) {
	reply, err := r.steps.DoOne(ctx, redis.Call{Script: script, Keys: keys, Args: args})
	if err != nil {
		return nil, err
	}
	return asAnswer(reply.Value, reply.Err)
}

// alone calls a script in a round trip of its own. It tries Redis even while shared round trips are
// refused after a failure.
func (r *Registry) alone(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (answer, error) {
	return asAnswer(redis.Only(r.client.Run(ctx, []redis.Call{
		{Script: script, Keys: keys, Args: args},
	})))
}

// answer is the reply of a script. Parts that are missing or of another type read as zero values.
type answer []any

func asAnswer(value any, err error) (answer, error) {
	if err != nil {
		return nil, err
	}
	parts, ok := value.([]any)
	if !ok {
		return nil, tidemark.Errorf(tidemark.Unavailable,
			"Redis gave an answer of an unexpected type, %T", value)
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

// joined returns a node's life if its lease is valid, else NotFound.
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
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
