package redis

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/registry"
)

// Results of prolongScript for each lease.
const (
	_ = iota // prolonged
	lost
	replaced
	elsewhere
)

// refreshScripts is how many scripts Refresh runs in one round trip. They prolong 500 leases, and
// take about 3 ms of Redis' time, for which other calls wait.
const refreshScripts = 5

// Epoch implements registry.Registry. On a cluster, only Refresh and Join notice that a server
// without the nodes' keys was restarted or failed over. Proofs that such a server restored are void
// already (openScript).
func (r *Registry) Epoch(ctx context.Context) (registry.Epoch, error) {
	if !r.looked() {
		r.look(ctx)
	}
	a, err := r.step(ctx, r.scripts.epoch, r.nodes, unused())
	if err != nil {
		return registry.Epoch{}, err
	}
	return r.epoch(a), nil
}

// epoch reads the epoch from a[1] and a[2].
func (r *Registry) epoch(a answer) registry.Epoch {
	crashes, _ := strconv.ParseUint(a.text(1), 10, 64)
	incarnation := a.text(2)
	r.mu.Lock()
	defer r.mu.Unlock()
	//rule:R_EPOCH.include-all-shards
	if r.servers != "" {
		incarnation += "." + r.servers
	}
	return registry.Epoch{Crashes: crashes, Incarnation: incarnation}
}

func (r *Registry) looked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.servers != "" || !r.client.Cluster()
}

// look finds out which servers a cluster has. It ignores a failure: a server that is away comes
// back with another replid, and is noticed then.
func (r *Registry) look(ctx context.Context) {
	if !r.client.Cluster() {
		return
	}
	servers, err := r.client.Lives(ctx)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = servers
}

// Join implements registry.Nodes.
func (r *Registry) Join(ctx context.Context, node registry.Node, ttl time.Duration) error {
	if strings.Contains(node.Boot, separator) {
		return tidemark.Errorf(tidemark.Invalid,
			"the boot id %q of a node contains %q, which is not allowed", node.Boot, separator)
	}
	r.look(ctx)
	again := 0
	//rule:R_EPOCH.rejoin-raises-epoch-on-redis
	if r.hasJoined(node) {
		again = 1
	}
	began := time.Now()
	a, err := r.alone(ctx, r.scripts.join, r.nodes, unused(), string(node.ID), node.Boot,
		ttl.Milliseconds(), again)
	if err != nil {
		return err
	}
	r.live(node, began.Add(ttl), a.number(3))
	return nil
}

// hasJoined reports whether this life of the node has joined and not left. A Redis that has lost
// its data cannot know that.
func (r *Registry) hasJoined(node registry.Node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, there := r.lives[node.ID]
	return there && held.boot == node.Boot
}

func (r *Registry) live(node registry.Node, until time.Time, expires int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives[node.ID] = life{boot: node.Boot, until: until, expires: expires}
}

// Leave implements registry.Nodes. It drops the leases that were taken through this Registry.
func (r *Registry) Leave(ctx context.Context, node registry.Node) error {
	dropped, err := r.drop(ctx, node)
	if err != nil {
		return err
	}
	raise := 0
	//rule:R_EPOCH.leave-with-leases-raises-epoch-on-redis
	if dropped > 0 {
		raise = 1
	}
	_, err = r.alone(ctx, r.scripts.leave, r.nodes, unused(), string(node.ID), node.Boot, raise)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lives[node.ID].boot == node.Boot {
		delete(r.lives, node.ID)
	}
	return nil
}

// drop releases the leases that a life of a node still has, and leaves no proofs. It returns how
// many there were.
func (r *Registry) drop(ctx context.Context, node registry.Node) (int, error) {
	r.mu.Lock()
	var left []registry.Lease
	for l := range r.held {
		if l.Node == node.ID && l.Boot == node.Boot {
			left = append(left, l)
		}
	}
	r.mu.Unlock()
	dropped := 0
	for chunk := range slices.Chunk(left, tripItems) {
		calls := make([]redis.Call, len(chunk))
		for i := range chunk {
			// This release does not depend on the node's own lease.
			calls[i] = redis.Call{
				Script: r.scripts.close,
				Keys:   []string{r.key(chunk[i].User)},
				Args:   closing(&chunk[i], forever, ""),
			}
		}
		for i, reply := range r.client.Run(ctx, calls) {
			a, err := asAnswer(reply.Value, reply.Err)
			if err != nil {
				return dropped, err
			}
			dropped += int(a.number(1))
			r.release(chunk[i])
		}
	}
	return dropped, nil
}

// forever is later than any time of Redis' clock.
const forever = 1 << 52

// Refresh implements registry.Registry. It takes one round trip for the node and one for each 500
// leases. If some leases are unreachable, it still prolongs the node's lease, and as many others as
// possible until the next heartbeat is due. It then returns Unavailable.
func (r *Registry) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	if _, err := r.joined(node.ID, node.Boot); err != nil {
		return registry.Refreshed{}, err
	}
	began := time.Now()
	a, err := r.alone(ctx, r.scripts.heartbeat, r.nodes, unused(), string(node.ID), node.Boot,
		nodeTTL.Milliseconds())
	switch {
	case err != nil:
		return registry.Refreshed{}, err
	case a.number(0) == 0:
		return registry.Refreshed{}, noLease(node.ID)
	}
	r.live(node, began.Add(nodeTTL), a.number(3))
	r.look(ctx)
	refreshed := registry.Refreshed{Epoch: r.epoch(a)}
	for i := 4; i+1 < len(a); i += 2 {
		refreshed.Nodes = append(refreshed.Nodes, registry.Node{
			ID:   tidemark.NodeID(a.text(i)),
			Boot: a.text(i + 1),
		})
	}
	r.hold(ttl, leases...)
	err = r.prolong(ctx, leases, ttl, began.Add(nodeTTL/3), &refreshed)
	r.release(refreshed.Lost...)
	r.release(refreshed.Replaced...)
	if err != nil {
		return registry.Refreshed{}, err
	}
	return refreshed, nil
}

// prolong prolongs leases, and sorts the others into refreshed. On a cluster a shard that hangs
// delays each round trip. After a failure there, prolong therefore begins no round trip later than
// until.
func (r *Registry) prolong(
	ctx context.Context, leases []registry.Lease, ttl time.Duration, until time.Time,
	refreshed *registry.Refreshed,
) error {
	size := refreshLeases
	if r.client.Cluster() {
		size = 1
	}
	var failed []error
	for part := range slices.Chunk(leases, refreshScripts*refreshLeases) {
		var calls []redis.Call
		for chunk := range slices.Chunk(part, size) {
			keys, args := make([]string, len(chunk)), []any{ttl.Milliseconds()}
			for i := range chunk {
				keys[i] = r.key(chunk[i].User)
				args = append(args, field(&chunk[i]), claim(&chunk[i]))
			}
			calls = append(calls, redis.Call{Script: r.scripts.prolong, Keys: keys, Args: args})
		}
		rest := part
		for i, reply := range r.client.Run(ctx, calls) {
			a, err := asAnswer(reply.Value, reply.Err)
			if err != nil {
				failed = append(failed, err)
			} else {
				sortOut(rest[:len(calls[i].Keys)], a, refreshed)
			}
			rest = rest[len(calls[i].Keys):]
		}
		//rule:R_EPOCH.tolerate-one-failed-shard
		if len(failed) > 0 && (!r.client.Cluster() || time.Now().After(until)) {
			break
		}
	}
	if len(failed) > 0 {
		return tidemark.Wrap(tidemark.Unavailable, failed[0],
			"some leases were not prolonged; the next heartbeat tries again")
	}
	return nil
}

func sortOut(leases []registry.Lease, a answer, refreshed *registry.Refreshed) {
	for i, l := range leases {
		switch a.number(i) {
		case lost:
			refreshed.Lost = append(refreshed.Lost, l)
		case replaced:
			refreshed.Replaced = append(refreshed.Replaced, l)
		case elsewhere:
			refreshed.Elsewhere = append(refreshed.Elsewhere, l)
		}
	}
}
