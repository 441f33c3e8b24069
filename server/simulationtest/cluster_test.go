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
	simulation *simulation
	server     *server.Server
	id         tidemark.NodeID
	number     int
	// name and handler are set while the node is subscribed to the bus.
	name    registry.Node
	handler func(bus.Event)
	// up says that the node has started and was not told to stop. stopped says that Stop has
	// returned.
	up, stopped bool
	// runs says that Start has succeeded, even if the node has crashed since.
	runs atomic.Bool
	// dead says that the node has crashed: none of its calls continues. ended is closed at the end
	// of the simulation.
	dead  atomic.Bool
	ended chan struct{}
	// noRegistry says that the node cannot reach the registry, noStorage that it cannot reach
	// storage.
	noRegistry, noStorage bool
}

// rest blocks the calls of a dead node until the end of the simulation.
func (n *node) rest() error {
	<-n.ended
	return errDown
}

// gatedRegistry is the registry for one node.
type gatedRegistry struct{ n *node }

// ask is through, and counts calls that the registry did not answer.
func ask[A any](
	ctx context.Context, n *node, kind, args string, call func(ctx context.Context) (A, error),
) (A, error) {
	a, err := through(ctx, n, kind, args, call)
	if err != nil {
		n.simulation.unanswered.Add(1)
	}
	return a, err
}

func leaseName(l registry.Lease) string {
	if string(l.Device) == string(l.Session) {
		l.Device = "unknown" // its id differs in every run
	}
	return fmt.Sprintf("%s.%s@%s", l.User, l.Device, l.Node)
}

func (r gatedRegistry) Epoch(ctx context.Context) (registry.Epoch, error) {
	return ask(ctx, r.n, "Epoch", "",
		func(ctx context.Context) (registry.Epoch, error) { return r.n.simulation.reg.Epoch(ctx) })
}

func (r gatedRegistry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	args := leaseName(q.Lease)
	if q.Continue {
		args += " in place of another node's"
	}
	return ask(ctx, r.n, "Open", args, func(ctx context.Context) (registry.Opened, error) {
		opened, err := r.n.simulation.reg.Open(ctx, q)
		if err == nil && opened.Proof != nil && !opened.Others {
			r.n.simulation.count("proof found")
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
		return struct{}{}, r.n.simulation.reg.Close(ctx, lease, proof)
	})
	return err
}

func (r gatedRegistry) Refresh(
	ctx context.Context, node registry.Node, nodeTTL time.Duration, leases []registry.Lease,
	ttl time.Duration,
) (registry.Refreshed, error) {
	return ask(ctx, r.n, "Refresh",
		fmt.Sprint(len(leases)), func(ctx context.Context) (registry.Refreshed, error) {
			refreshed, err := r.n.simulation.reg.Refresh(ctx, node, nodeTTL, leases, ttl)
			// The node passes its leases in the order of a map.
			order := func(a, b registry.Lease) int {
				return cmp.Compare(leaseName(a), leaseName(b))
			}
			slices.SortFunc(refreshed.Lost, order)
			slices.SortFunc(refreshed.Replaced, order)
			if len(refreshed.Lost) > 0 {
				r.n.simulation.count("lease lost")
			}
			if len(refreshed.Replaced) > 0 {
				r.n.simulation.count("lease replaced")
			}
			return refreshed, err
		})
}

func (r gatedRegistry) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	return ask(ctx, r.n, "Lookup",
		join(users), func(ctx context.Context) ([][]registry.Lease, error) {
			return r.n.simulation.reg.Lookup(ctx, users)
		})
}

func (r gatedRegistry) Join(ctx context.Context, node registry.Node, ttl time.Duration) error {
	_, err := ask(ctx, r.n, "Join", "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.n.simulation.reg.Join(ctx, node, ttl)
	})
	return err
}

func (r gatedRegistry) Leave(ctx context.Context, node registry.Node) error {
	_, err := ask(ctx, r.n, "Leave", "", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, r.n.simulation.reg.Leave(ctx, node)
	})
	return err
}

// gatedBus is the bus for one node.
type gatedBus struct{ n *node }

// carriage says how a publication is delivered.
type carriage uint8

const (
	carryNow    carriage = iota // before Publish returns
	carryLater                  // later, in any order
	carryTwice                  // now, and again later
	carryFailed                 // not at all, with an error
	carryDoubt                  // later, with an error
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
	case e.End != nil:
		return fmt.Sprintf("end %s for %s", e.End.User, e.End.From.ID)
	case e.Done != nil:
		return "done"
	default:
		return "typing"
	}
}

// Subscribe implements bus.Bus. Publications to the node are delivered before stop returns.
func (b gatedBus) Subscribe(
	_ context.Context, name registry.Node, s bus.Subscriber,
) (func(), error) {
	w := b.n.simulation
	w.mu.Lock()
	defer w.mu.Unlock()
	b.n.name, b.n.handler = name, s.Receive
	return func() {
		w.mu.Lock()
		var rest []*publication
		w.inFlight = slices.DeleteFunc(w.inFlight, func(p *publication) bool {
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
	w := b.n.simulation
	p := &publication{to: to, event: e, what: "to " + string(to.ID) + ": " + describe(e)}
	c := newCall(ctx, b.n, "Publish", p.what)
	c.publication = p
	err := w.gate.pass(ctx, b.n, c, func(v verdict) error {
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
		if v.carry == carryLater || v.carry == carryDoubt {
			w.misses(ctx)
		}
		if v.carry == carryDoubt {
			return errDown
		}
		return nil
	})
	if err != nil {
		w.misses(ctx)
	}
	return err
}

// named returns the subscribed node with a name. A dead node stays subscribed until its death is
// noticed.
func (w *simulation) named(name registry.Node) *node {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		if n.name == name && n.handler != nil {
			return n
		}
	}
	return nil
}

func (w *simulation) post(p *publication) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight = append(w.inFlight, p)
}

// deliver delivers a publication. One to a dead node is lost, but its death raises the epoch.
func (w *simulation) deliver(p *publication) {
	n := w.named(p.to)
	if n == nil || n.dead.Load() {
		return
	}
	w.mu.Lock()
	h := n.handler
	w.mu.Unlock()
	h(p.event)
}

// boot starts a new node. It is an act: its calls wait at the gate.
func (w *simulation) boot(id tidemark.NodeID) {
	n := &node{simulation: w, id: id, number: len(w.nodes), ended: make(chan struct{})}
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	s, err := server.New(server.Config{
		Storage: gatedStore{n}, Registry: gatedRegistry{n}, Nodes: gatedRegistry{n},
		Bus: gatedBus{n}, Node: id, Logger: w.log, ResumeWindow: resumeWindow, Grace: grace,
		NodeTTL: w.ttl(), LeaseTTL: w.ttl(), AckInterval: ackInterval,
		StatusInterval: statusInterval, AggregateInterval: aggregateInterval,
		WrittenInterval: writtenInterval, AuthorRetry: authorRetry, TailMessages: 3,
		Clock: w.clock, StatusFanout: w.crowd.fanout,
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
			if err != nil { // it never served, and what it joined expires
				w.kill(n)
				w.transcribe("start of %s failed", id)
				return
			}
			n.up = true
		}
	})
}

// halt stops a node cleanly. It is an act.
func (w *simulation) halt(n *node) {
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

// kill makes a node crash.
func (w *simulation) kill(n *node) {
	n.dead.Store(true)
	n.up = false
}

// OnlyNode lets a node use what it may know while it is alone.
func (r gatedRegistry) OnlyNode(node registry.Node) bool {
	return r.n.simulation.reg.OnlyNode(node)
}
