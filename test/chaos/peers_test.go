package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/chaos/cluster"
)

// direct reports whether the nodes run without Redis: TIDEMARK_CHAOS_CLUSTER=postgres.
func direct() bool { return os.Getenv("TIDEMARK_CHAOS_CLUSTER") == "postgres" }

// askNode is a request that the listener for other nodes answers at once.
const askNode = "GET / HTTP/1.0\r\n\r\n"

// peerFaults returns the faults between nodes that reach each other. The others do not reach one
// node, or its answers do not come back. It reaches them, and all reach the database.
func peerFaults() []fault {
	from := func(m *machine) *cluster.Link { return m.fromNodes }
	return []fault{
		{"node cannot be reached by the others", func(b *testbed, r *rand.Rand) (string, error) {
			return unreached(b, r, cluster.Out, between(r, 2, 13))
		}},
		{"answers of a node do not reach the others", func(b *testbed, r *rand.Rand) (string,
			error) {
			return unreached(b, r, cluster.In, between(r, 2, 13))
		}},
		{"posts to a node are slow", func(b *testbed, r *rand.Rand) (string, error) {
			return slow(b, r, from, askNode, time.Duration(200+r.IntN(2800))*time.Millisecond)
		}},
		{"connections to a node are reset", func(b *testbed, r *rand.Rand) (string, error) {
			return reset(b, r, from, askNode)
		}},
	}
}

// unreached cuts the way from the other nodes to one.
func unreached(
	b *testbed, r *rand.Rand, d cluster.Direction, lasts time.Duration,
) (string, error) {
	m := b.nodes[r.IntN(len(b.nodes))]
	defer m.fromNodes.Hold()()
	if err := m.fromNodes.Cut(d); err != nil {
		return "", err
	}
	silent := ""
	if _, err := exchange(m.fromNodes.Address(), askNode, time.Second); err != nil {
		silent = fmt.Sprintf("nothing came through for %v", lasts)
	}
	pause(b.ctx, lasts)
	return silent, m.fromNodes.Heal()
}

// TestChaos_direct_is_asked_for checks that the variable has a value that is known.
func TestChaos_direct_is_asked_for(t *testing.T) {
	if kind := os.Getenv("TIDEMARK_CHAOS_CLUSTER"); kind != "" && kind != "postgres" {
		t.Errorf("TIDEMARK_CHAOS_CLUSTER is %q; it must be postgres", kind)
	}
}
