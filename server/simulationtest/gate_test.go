package simulationtest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// gate is the door through which every call to storage, registry and bus passes. A caller waits there until the scheduler lets it
// go on, so that the scheduler alone decides in which order the nodes' effects happen, which of them fail, and which never happen.
type gate struct {
	mu     sync.Mutex
	parked []*call
	// arrivals counts the calls that came, the replies that were held back included.
	arrivals int
}

// call is one caller who waits.
type call struct {
	node *node
	// kind is the method, such as "Append" or "Append reply"; what is the whole call as the transcript shows it.
	kind, what string
	// publication is set for a call to the bus.
	publication *publication
	// seen says that the scheduler has found it; hold is the step before which it is not let go.
	seen    bool
	hold    int
	verdict chan verdict
}

// verdict is what the scheduler decides about a call.
type verdict struct {
	// lost says that the call fails without an effect, unknown that it fails although it had one.
	lost, unknown bool
	// dieBefore and dieAfter say that the node ends here, before the effect or after it.
	dieBefore, dieAfter bool
	// late says that the reply waits at the gate once more.
	late bool
	// carry says what becomes of a publication.
	carry carriage
}

var errDown = tidemark.Errorf(tidemark.Unavailable, "the simulation says that it cannot be reached")

// pass lets an effect happen when the scheduler says so.
func (g *gate) pass(ctx context.Context, n *node, c call, effect func(verdict) error) error {
	v, err := g.park(ctx, n, &c)
	if err != nil {
		return err
	}
	switch {
	case v.dieBefore:
		return n.rest()
	case v.lost:
		return errDown
	}
	err = effect(v)
	if v.dieAfter {
		return n.rest()
	}
	if v.late {
		if _, err := g.park(ctx, n, &call{kind: c.kind + " reply", what: "reply of " + c.what}); err != nil {
			return err
		}
	}
	if v.unknown && err == nil {
		err = errDown
	}
	return err
}

// park waits for the verdict. A node that died waits until the simulation is over.
func (g *gate) park(ctx context.Context, n *node, c *call) (verdict, error) {
	if n.dead.Load() {
		return verdict{}, n.rest()
	}
	if ctx.Err() != nil {
		return verdict{}, tidemark.Wrap(tidemark.Unavailable, ctx.Err(),
			"the request ran out of time")
	}
	c.node, c.verdict = n, make(chan verdict, 1)
	g.mu.Lock()
	g.parked = append(g.parked, c)
	g.arrivals++
	g.mu.Unlock()
	select {
	case v := <-c.verdict:
		return v, nil
	case <-n.grave:
		g.leave(c)
		return verdict{}, errDown
	case <-ctx.Done():
	}
	if n.dead.Load() {
		return verdict{}, n.rest()
	}
	if !g.leave(c) {
		return <-c.verdict, nil
	}
	return verdict{}, tidemark.Wrap(tidemark.Unavailable, ctx.Err(), "the request ran out of time")
}

// leave takes a call out, and reports whether it was there.
func (g *gate) leave(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.parked, c)
	if i >= 0 {
		g.parked = slices.Delete(g.parked, i, i+1)
	}
	return i >= 0
}

// waiting returns those who wait, of nodes that live, in an order that does not depend on who came first within one step.
func (g *gate) waiting() (all, fresh []*call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parked = slices.DeleteFunc(g.parked, func(c *call) bool { return c.node.dead.Load() })
	for _, c := range g.parked {
		if !c.seen {
			fresh = append(fresh, c)
		}
	}
	slices.SortStableFunc(fresh, func(a, b *call) int {
		return cmp.Or(cmp.Compare(a.node.number, b.node.number), cmp.Compare(a.what, b.what))
	})
	copy(g.parked[len(g.parked)-len(fresh):], fresh) // what is new stands behind what was there
	for _, c := range fresh {
		c.seen = true
	}
	return slices.Clone(g.parked), fresh
}

// release lets one go on.
func (g *gate) release(c *call, v verdict) {
	if g.leave(c) {
		c.verdict <- v
	}
}
