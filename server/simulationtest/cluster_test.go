package simulationtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

// node is one life of a server process.
type node struct {
	world  *world
	server *server.Server
	id     tidemark.NodeID
	number int
	// name and handler are set while it is subscribed to the bus.
	name    registry.Node
	handler func(bus.Event)
	// up says that it has started and was not told to stop; stopped says that Stop has come to its end.
	up, stopped bool
	// runs says that Start has succeeded, be it after a crash.
	runs atomic.Bool
	// dead says that it crashed: none of its calls goes on. grave is closed when the simulation is over.
	dead  atomic.Bool
	grave chan struct{}
	// island says that it cannot reach the registry, away that it cannot reach the storage.
	island, away bool
}

// rest is where the calls of a dead node wait for the end of the simulation.
func (n *node) rest() error {
	<-n.grave
	return errDown
}

// gatedRegistry is the registry as one node sees it.
type gatedRegistry struct{ n *node }

// ask is through, and notes whether the registry could be asked.
func ask[A any](
	ctx context.Context, n *node, kind, args string, call func(ctx context.Context) (A, error),
) (A, error) {
	a, err := through(ctx, n, kind, args, call)
	if err != nil {
		n.world.shaky.Add(1)
	}
	return a, err
}

func leaseName(l registry.Lease) string {
	if string(l.Device) == string(l.Session) {
		l.Device = "unknown" // its id is another in every run
	}
	return fmt.Sprintf("%s.%s@%s", l.User, l.Device, l.Node)
}

func (r gatedRegistry) Epoch(ctx context.Context) (registry.Epoch, error) {
	return ask(ctx, r.n, "Epoch", "",
		func(ctx context.Context) (registry.Epoch, error) { return r.n.world.reg.Epoch(ctx) })
}

func (r gatedRegistry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	args := leaseName(q.Lease)
	if q.Continue {
		args += " in place of another node's"
	}
	return ask(ctx, r.n, "Open", args, func(ctx context.Context) (registry.Opened, error) {
		opened, err := r.n.world.reg.Open(ctx, q)
		if err == nil && opened.Proof != nil && !opened.Others {
			r.n.world.count("proof found")
		}
		return opened, err
	})
}

func (r gatedRegistry) Close(
	ctx context.Context, lease registry.Lease, proof *registry.Epoch,
) error {
	args := leaseName(lease)
	if proof != nil {
		args += " with a proof"
	}
	_, err := ask(ctx, r.n, "Close", args, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.n.world.reg.Close(ctx, lease, proof)
	})
	return err
}

func (r gatedRegistry) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	return ask(ctx, r.n, "Refresh",
		fmt.Sprint(len(leases)), func(ctx context.Context) (registry.Refreshed, error) {
			refreshed, err := r.n.world.reg.Refresh(ctx, node, nodeTTL, leases, ttl)
			// The node gives its leases in the order of a map.
			order := func(a, b registry.Lease) int {
				return cmp.Compare(leaseName(a), leaseName(b))
			}
			slices.SortFunc(refreshed.Lost, order)
			slices.SortFunc(refreshed.Replaced, order)
			if len(refreshed.Lost) > 0 {
				r.n.world.count("lease lost")
			}
			if len(refreshed.Replaced) > 0 {
				r.n.world.count("lease replaced")
			}
			return refreshed, err
		})
}

func (r gatedRegistry) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	return ask(ctx, r.n, "Lookup",
		join(users), func(ctx context.Context) ([][]registry.Lease, error) {
			return r.n.world.reg.Lookup(ctx, users)
		})
}

func (r gatedRegistry) Join(ctx context.Context, node registry.Node, ttl time.Duration) error {
	_, err := ask(ctx, r.n, "Join", "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.n.world.reg.Join(ctx, node, ttl)
	})
	return err
}

func (r gatedRegistry) Leave(ctx context.Context, node registry.Node) error {
	_, err := ask(ctx, r.n, "Leave", "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.n.world.reg.Leave(ctx, node)
	})
	return err
}

// gatedBus is the bus as one node sees it.
type gatedBus struct{ n *node }

// carriage says what becomes of a publication.
type carriage uint8

const (
	carryNow    carriage = iota // it is there when Publish returns
	carryLater                  // it arrives some time, in any order
	carryTwice                  // it is there, and arrives again some time
	carryFailed                 // it does not arrive, and the publisher is told
	carryDoubt                  // it arrives some time, and the publisher is told that it may not have
)

// publication is an event on its way to a node.
type publication struct {
	to    registry.Node
	event bus.Event
	what  string
}

func describe(e bus.Event) string {
	names := func(leases []registry.Lease) string {
		all := make([]string, 0, len(leases))
		for _, l := range leases {
			all = append(all, leaseName(l))
		}
		return join(all)
	}
	switch {
	case e.Notification != nil:
		return fmt.Sprintf("wake %s %d marked=%v %s",
			e.Notification.Chat, e.Notification.Sequence, e.Notification.Marked, names(e.To))
	case e.Status != nil:
		return fmt.Sprintf("status %v %s", e.Status.Updates, names(e.To))
	case e.Membership != nil:
		return fmt.Sprintf("membership %v %s", e.Membership.Changes, names(e.To))
	case e.Request != nil:
		return fmt.Sprintf("request %s for %s, %d hops",
			e.Request.User, e.Request.To.ID, e.Request.Hops)
	case e.Transfer != nil:
		return "transfer"
	case e.Seek != nil:
		return fmt.Sprintf("seek %s for %s", e.Seek.User, e.Seek.From.ID)
	case e.Sought != nil:
		return "sought"
	default:
		return "typing"
	}
}

// Subscribe implements bus.Bus. What is on its way to the node arrives before stop returns.
func (b gatedBus) Subscribe(
	_ context.Context, name registry.Node, s bus.Subscriber,
) (func(), error) {
	w := b.n.world
	w.mu.Lock()
	defer w.mu.Unlock()
	b.n.name, b.n.handler = name, s.Receive
	return func() {
		w.mu.Lock()
		var rest []*publication
		w.mail = slices.DeleteFunc(w.mail, func(p *publication) bool {
			if p.to == name {
				rest = append(rest, p)
			}
			return p.to == name
		})
		b.n.handler = nil
		w.mu.Unlock()
		if !b.n.dead.Load() {
			for _, p := range rest {
				s.Receive(p.event)
			}
		}
	}, nil
}

// Publish implements bus.Bus.
func (b gatedBus) Publish(ctx context.Context, publications []bus.Publication) []error {
	errs := make([]error, len(publications))
	for i, p := range publications {
		errs[i] = b.publish(ctx, p.Node, p.Event)
	}
	return errs
}

func (b gatedBus) publish(ctx context.Context, to registry.Node, e bus.Event) error {
	w := b.n.world
	p := &publication{to: to, event: e, what: "to " + string(to.ID) + ": " + describe(e)}
	c := newCall(ctx, b.n, "Publish", p.what)
	c.publication = p
	return w.gate.pass(ctx, b.n, c, func(v verdict) error {
		target := w.named(to)
		if target == nil {
			return tidemark.Errorf(tidemark.NotFound, "node %s is not subscribed", to.ID)
		}
		switch v.carry {
		case carryFailed:
			return errDown
		case carryNow, carryTwice:
			w.deliver(p)
		}
		if v.carry != carryNow {
			w.post(p)
		}
		if v.carry == carryDoubt {
			return errDown
		}
		return nil
	})
}

// named returns the node of a name that is subscribed; a dead one is, as long as nobody knows.
func (w *world) named(name registry.Node) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if n.name == name && n.handler != nil {
			return n
		}
	}
	return nil
}

func (w *world) post(p *publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mail = append(w.mail, p)
}

// deliver hands a publication to its node. One to a dead node is lost: its death raises the epoch.
func (w *world) deliver(p *publication) {
	n := w.named(p.to)
	if n == nil || n.dead.Load() {
		return
	}
	w.mu.Lock()
	h := n.handler
	w.mu.Unlock()
	h(p.event)
}

// boot makes a new node and starts it. It is an act: its calls wait at the gate.
func (w *world) boot(id tidemark.NodeID) {
	n := &node{world: w, id: id, number: len(w.nodes), grave: make(chan struct{})}
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	s, err := server.New(server.Config{
		Storage: gatedStore{n}, Registry: gatedRegistry{n}, Nodes: gatedRegistry{n},
		Bus: gatedBus{n}, Node: id, Logger: w.log, ResumeWindow: resumeWindow, Grace: grace,
		NodeTTL: leaseTTL, LeaseTTL: leaseTTL, AckInterval: ackInterval,
		StatusInterval: statusInterval, AuthorRetry: authorRetry, TailMessages: 3,
	})
	if err != nil {
		w.failf("New: %v", err)
		return
	}
	n.server = s
	w.act(n, "start "+string(id), func(ctx context.Context) func() {
		err := s.Start(ctx)
		n.runs.Store(err == nil)
		return func() {
			if err != nil { // it never was there; what it joined expires
				w.kill(n)
				w.transcribe("start of %s failed", id)
				return
			}
			n.up = true
		}
	})
}

// halt stops a node cleanly. It is an act.
func (w *world) halt(n *node) {
	n.up = false
	w.act(n, "stop "+string(n.id), func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err := n.server.Stop(ctx)
		return func() {
			w.transcribe("%s has stopped: %v", n.id, err)
			n.stopped = true
		}
	})
}

// kill lets a node crash.
func (w *world) kill(n *node) {
	n.dead.Store(true)
	n.up = false
}
