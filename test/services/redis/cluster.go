package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/ports"
	"github.com/tidemark-im/tidemark/test/services/process"
)

// slots is the number of slots of a cluster.
const slots = 16384

// Cluster is a Redis Cluster of three shards. Each shard is a master and its replica, which the
// cluster promotes only during FailOver and Promoted: on a busy machine a master may be silent for
// longer than the second after which the others take it for dead. The other shards serve meanwhile.
type Cluster struct {
	Shards [3]*Pair
	slots  [3]int // the last slot of each shard
}

// StartCluster starts a cluster for one test, and ends it with the test.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	home, err := newHome()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{}
	for i := range c.Shards {
		pair := &Pair{}
		pair.Master, err = startMember(home, fmt.Sprint("master", i))
		if err == nil {
			pair.Replica, err = startMember(home, fmt.Sprint("replica", i))
		}
		if err != nil {
			t.Fatal(errors.Join(err, home.Close()))
		}
		c.Shards[i], c.slots[i] = pair, slots*(i+1)/len(c.Shards)-1
	}
	ends(t, home, c.members()...)
	c.form(t)
	return c
}

func startMember(home *process.Home, name string) (*Server, error) {
	bus, err := ports.Free()
	if err != nil {
		return nil, err
	}
	s, err := start(home, name, "cluster-enabled yes", fmt.Sprint("cluster-port ", bus),
		"cluster-node-timeout 1000", "cluster-replica-validity-factor 0",
		"cluster-allow-replica-migration no", "cluster-require-full-coverage no",
		"cluster-replica-no-failover yes")
	if err != nil {
		return nil, err
	}
	s.bus = bus
	return s, nil
}

// form joins the members to one cluster.
func (c *Cluster) form(t testing.TB) {
	t.Helper()
	members := c.members()
	for i, s := range members {
		s.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		for _, other := range members[:i] {
			s.Do(t, "CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(other.port), fmt.Sprint(other.bus))
		}
	}
	first := 0
	for i, shard := range c.Shards {
		shard.Master.Do(t, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(c.slots[i]))
		first = c.slots[i] + 1
	}
	c.whole(t, members...)
	for _, shard := range c.Shards {
		shard.Replica.Do(t, "CLUSTER", "REPLICATE",
			fmt.Sprint(shard.Master.Do(t, "CLUSTER", "MYID")))
		shard.joined(t)
	}
	c.whole(t, members...)
}

// members returns all servers, masters first.
func (c *Cluster) members() []*Server {
	var masters, replicas []*Server
	for _, shard := range c.Shards {
		masters, replicas = append(masters, shard.Master), append(replicas, shard.Replica)
	}
	return append(masters, replicas...)
}

// whole waits until the members agree on the cluster: all slots are served, and all members are
// known and healthy.
func (c *Cluster) whole(t testing.TB, members ...*Server) {
	t.Helper()
	for _, s := range members {
		wait(t, "the cluster is whole", func() (string, bool) {
			reply, err := s.Ask("CLUSTER", "INFO")
			about := fields(fmt.Sprint(reply))
			reply, _ = s.Ask("CLUSTER", "NODES")
			nodes := strings.ReplaceAll(fmt.Sprint(reply), "nofailover", "")
			well := !strings.Contains(nodes, "fail") && !strings.Contains(nodes, "handshake")
			return fmt.Sprint(about, err, nodes), about["cluster_state"] == "ok" &&
				about["cluster_known_nodes"] == fmt.Sprint(2*len(c.Shards)) && well
		})
	}
}

// URL returns the URL with the addresses of the present masters.
func (c *Cluster) URL() string {
	var addresses []string
	for _, shard := range c.Shards {
		addresses = append(addresses, shard.Master.Address())
	}
	return "redis+cluster://" + strings.Join(addresses, ",")
}

// Shard returns the shard of a key.
func (c *Cluster) Shard(t testing.TB, key string) *Pair {
	t.Helper()
	slot, _ := c.Shards[0].Replica.Do(t, "CLUSTER", "KEYSLOT", key).(int64)
	for i, last := range c.slots {
		if int(slot) <= last {
			return c.Shards[i]
		}
	}
	t.Fatalf("%q has slot %d", key, slot)
	return nil
}

// FailOver kills the master of a shard, and waits until its replica is Promoted.
func (c *Cluster) FailOver(t testing.TB, shard *Pair) {
	t.Helper()
	shard.Master.Kill(t)
	c.Promoted(t, shard)
}

// Promoted lets the cluster promote the replica of a shard, after its master was killed, and waits
// until it has. That takes about 2 s. Until then no other shard serves either, which is Redis's
// default. Then it starts the former master, which becomes a replica, and waits until all members
// know.
func (c *Cluster) Promoted(t testing.TB, shard *Pair) {
	t.Helper()
	c.requireFullCoverage(t, shard.Master, "yes")
	defer c.requireFullCoverage(t, nil, "no")
	shard.Replica.Do(t, "CONFIG", "SET", "cluster-replica-no-failover", "no")
	shard.promoted(t)
	shard.Master.Do(t, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
	shard.Replica.RunEmpty(t)
	shard.joined(t)
	c.whole(t, c.members()...)
}

// requireFullCoverage says to all members, except to one that is down, whether they refuse commands
// while a shard has no master.
func (c *Cluster) requireFullCoverage(t testing.TB, down *Server, yes string) {
	t.Helper()
	for _, s := range c.members() {
		if s != down {
			s.Do(t, "CONFIG", "SET", "cluster-require-full-coverage", yes)
		}
	}
}
