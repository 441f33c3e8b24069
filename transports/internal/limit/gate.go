package limit

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// The bounds of a Gate if a GateConfig does not say otherwise.
const (
	CatchUps     = 64
	CatchUpQueue = 2_048
	CatchUpWait  = 10 * time.Second
)

// Who is refused is told to come back after comeBackFrom to comeBackTo, at random, so that they do not come together again.
const (
	comeBackFrom = time.Second
	comeBackTo   = 5 * time.Second
)

// patience is how long a client may keep its place in the gate while it does not take what it was sent.
const patience = 100 * time.Millisecond

// GateConfig configures a Gate.
type GateConfig struct {
	// Slots is how many clients catch up at a time. Default CatchUps.
	Slots int
	// Queue is how many may wait for that. Default CatchUpQueue.
	Queue int
	// Wait is how long one waits at most. Default CatchUpWait.
	Wait time.Duration
}

// Gate bounds how many clients open a session and read what they have missed at the same time: however many come back at once, storage and
// memory serve few, in the order of arrival. A nil Gate admits everybody. It is safe for concurrent use.
type Gate struct {
	cfg     GateConfig
	slots   chan struct{}
	waiting atomic.Int64
	refused atomic.Int64
}

// NewGate returns a Gate.
func NewGate(cfg GateConfig) *Gate {
	orDefault(&cfg.Slots, CatchUps)
	orDefault(&cfg.Queue, CatchUpQueue)
	if cfg.Wait == 0 {
		cfg.Wait = CatchUpWait
	}
	return &Gate{cfg: cfg, slots: make(chan struct{}, cfg.Slots)}
}

// Enter waits for a place, at the most until ctx ends. The error is Unavailable, and knows when to come back.
func (g *Gate) Enter(ctx context.Context) (*Pass, error) {
	if g == nil {
		return nil, nil
	}
	select {
	case g.slots <- struct{}{}:
		return &Pass{gate: g}, nil
	default:
	}
	if g.waiting.Add(1) > int64(g.cfg.Queue) {
		g.waiting.Add(-1)
		return nil, g.refuse()
	}
	defer g.waiting.Add(-1)
	late := time.NewTimer(g.cfg.Wait)
	defer late.Stop()
	select {
	case g.slots <- struct{}{}: // senders are served in the order in which they came
		return &Pass{gate: g}, nil
	case <-late.C:
		return nil, g.refuse()
	case <-ctx.Done():
		return nil, tidemark.Wrap(tidemark.Unavailable, context.Cause(ctx), "the server is restarting; try again")
	}
}

// Counters returns what the gate counts (transports.CounterFunc).
func (g *Gate) Counters() map[string]int64 {
	return map[string]int64{
		"catch_ups": int64(len(g.slots)), "catch_ups_waiting": g.waiting.Load(), "catch_ups_refused_total": g.refused.Load(),
	}
}

// refuse returns what a client is told that was not admitted.
func (g *Gate) refuse() error {
	g.refused.Add(1)
	wait := comeBackFrom + rand.N(comeBackTo-comeBackFrom)
	return problem.RetryAfter(tidemark.Errorf(tidemark.Unavailable, "too many clients are connecting at this moment; come back a little later"), wait)
}

// Pass is a place in a Gate. A nil Pass is that of a nil Gate. Its methods may be called concurrently.
type Pass struct {
	gate *Gate
	left atomic.Bool
}

// Leave gives the place to the next one. It may be called more than once.
func (p *Pass) Leave() {
	if p != nil && !p.left.Swap(true) {
		<-p.gate.slots
	}
}

// During runs write, which sends to the client, and gives the place up if that takes long: a client that does not read keeps nobody waiting.
func (p *Pass) During(write func() error) error {
	if p == nil || p.left.Load() {
		return write()
	}
	slow := time.AfterFunc(patience, p.Leave)
	defer slow.Stop()
	return write()
}
