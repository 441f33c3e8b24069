package http_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/bustest"
	bushttp "github.com/tidemark-im/tidemark/server/bus/http"
	"github.com/tidemark-im/tidemark/server/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peers is a registry in which all nodes have one address.
type peers struct {
	mu      sync.Mutex
	address string
	// gone has the nodes without a lease.
	gone map[registry.Node]bool
	// complaints counts them for each node. asked counts the calls of Find.
	complaints map[registry.Node]int
	asked      int
}

func newPeers(address string) *peers {
	return &peers{
		address: address, gone: map[registry.Node]bool{}, complaints: map[registry.Node]int{},
	}
}

func (p *peers) Address(context.Context, registry.Node) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address, nil
}

func (p *peers) Find(ctx context.Context, node registry.Node) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", tidemark.Wrap(tidemark.Unavailable, err, "there is no time to ask")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.gone[node] {
		return "", tidemark.Errorf(tidemark.NotFound, "node %s has no lease", node.ID)
	}
	return p.address, nil
}

func (p *peers) Complain(of registry.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints[of]++
}

// move gives all nodes another address.
func (p *peers) move(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address = address
}

// end ends the lease of a node.
func (p *peers) end(node registry.Node, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone[node] = over
}

func (p *peers) complained(of registry.Node) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.complaints[of]
}

const secret = "0123456789abcdef0123456789abcdef"

// open returns a bus that is started, and its address.
func open(t *testing.T, of *peers, secret string) (*bushttp.Bus, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := bushttp.New(bushttp.Config{Listener: listener, Secret: []byte(secret), Peers: of})
	b.Start()
	t.Cleanup(b.Stop)
	return b, listener.Addr().String()
}

// apart is a bus with publishers in one process and nodes in another.
type apart struct{ publishes, subscribes *bushttp.Bus }

func (a apart) Subscribe(
	ctx context.Context, node registry.Node, s bus.Subscriber,
) (func(), error) {
	return a.subscribes.Subscribe(ctx, node, s)
}

func (a apart) Publish(ctx context.Context, publications []bus.Publication) []error {
	return a.publishes.Publish(ctx, publications)
}

// two returns a bus of two processes, and what the publisher knows of the other one.
func two(t *testing.T) (apart, *peers) {
	t.Helper()
	others := newPeers("")
	publishes, _ := open(t, others, secret)
	subscribes, address := open(t, newPeers(""), secret)
	others.move(address)
	return apart{publishes, subscribes}, others
}

func TestBus(t *testing.T) {
	t.Run("one process", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus {
			of := newPeers("")
			b, address := open(t, of, secret)
			of.move(address)
			return b
		})
	})
	t.Run("two processes", func(t *testing.T) {
		bustest.Run(t, func(t *testing.T) bus.Bus { b, _ := two(t); return b })
	})
}
