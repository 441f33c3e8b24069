package simulationtest

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/tidemark-im/tidemark"
)

// gate holds every call to storage, registry and bus until the scheduler releases it. So the
// scheduler alone decides the order of the nodes' effects, and which of them fail or never happen.
type gate struct {
	mu     sync.Mutex
	parked []*call
	// open says that calls pass at once. Then inTurn has them take effect one at a time.
	open   bool
	inTurn sync.Mutex
	// arrivals counts the calls that arrived, including replies that were held back.
	arrivals int
}

// call is a call that waits at the gate.
type call struct {
	node *node
	// kind is the method, such as "Append" or "Append reply". what is the call as the transcript
	// shows it.
	kind, what string
	// publication is set for a call to the bus.
	publication *publication
	// seen says that the scheduler knows the call. hold is the step before which the call is not
	// released.
	seen    bool
	hold    int
	verdict chan verdict
}

// verdict is the scheduler's decision about a call.
type verdict struct {
	// lost says that the call fails without an effect, unknown that it fails after its effect.
	lost, unknown bool
	// dieBefore and dieAfter say that the node crashes before or after the effect.
	dieBefore, dieAfter bool
	// late says that the reply waits at the gate again.
	late bool
	// carry says how a publication is delivered.
	carry carriage
}

var errDown = tidemark.Errorf(tidemark.Unavailable, "the simulation says that it cannot be reached")

// pass runs effect when the scheduler releases the call.
func (g *gate) pass(ctx context.Context, n *node, c call, effect func(verdict) error) error {
	if g.isOpen() && !n.dead.Load() {
		if c.publication == nil {
			g.inTurn.Lock()
			defer g.inTurn.Unlock()
		}
		return effect(verdict{})
	}
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
		if _, err := g.park(
			ctx, n, &call{kind: c.kind + " reply", what: "reply of " + c.what},
		); err != nil {
			return err
		}
	}
	if v.unknown && err == nil {
		err = errDown
	}
	return err
}

func (g *gate) isOpen() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// setOpen opens or closes the gate for new calls.
func (g *gate) setOpen(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
}

// park waits for the verdict. If the node dies, it waits until the end of the simulation.
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
	case <-n.ended:
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

// leave removes a call. It reports whether the call was waiting.
func (g *gate) leave(c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.parked, c)
	if i >= 0 {
		g.parked = slices.Delete(g.parked, i, i+1)
	}
	return i >= 0
}

// waiting returns the waiting calls of live nodes. The order does not depend on which call arrived
// first within one step.
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
	copy(g.parked[len(g.parked)-len(fresh):], fresh) // new calls come after those that were waiting
	for _, c := range fresh {
		c.seen = true
	}
	return slices.Clone(g.parked), fresh
}

// release releases a call.
func (g *gate) release(c *call, v verdict) {
	if g.leave(c) {
		c.verdict <- v
	}
}
