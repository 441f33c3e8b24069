package limit

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// The bounds that a Gate has by default.
const (
	CatchUps     = 64
	CatchUpQueue = 2_048
	CatchUpWait  = 10 * time.Second
)

// A refused client is asked to retry after a random time between retryFrom and retryTo, so that
// refused clients do not return together.
const (
	retryFrom = time.Second
	retryTo   = 5 * time.Second
)

// slowWrite is how long a write to a client may take before the client loses its place.
const slowWrite = 100 * time.Millisecond

// GateConfig configures a Gate. A zero field has its default.
type GateConfig struct {
	// Slots is how many clients may catch up at the same time. Default CatchUps.
	Slots int
	// Queue is how many clients may wait for a place. Default CatchUpQueue.
	Queue int
	// Wait is how long a client may wait for a place. Default CatchUpWait.
	Wait time.Duration
}

// Gate bounds how many clients may open a session and read missed messages at the same time.
// Clients are served in the order of arrival, so a reconnect storm does not overload storage or
// memory. A nil Gate admits every client. It is safe for concurrent use.
type Gate struct {
	cfg     GateConfig
	slots   chan struct{}
	waiting atomic.Int64
	refused atomic.Int64
}

// NewGate returns a Gate with no client in it.
func NewGate(cfg GateConfig) *Gate {
	orDefault(&cfg.Slots, CatchUps)
	orDefault(&cfg.Queue, CatchUpQueue)
	if cfg.Wait == 0 {
		cfg.Wait = CatchUpWait
	}
	return &Gate{cfg: cfg, slots: make(chan struct{}, cfg.Slots)}
}

// Enter waits for a place, for at most GateConfig.Wait and until ctx ends. It returns Unavailable
// if the queue is full or the wait is over; the error then says when to retry. It returns
// Unavailable without a time if ctx ends first.
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
	case g.slots <- struct{}{}: // a channel serves its senders in the order of arrival
		return &Pass{gate: g}, nil
	case <-late.C:
		return nil, g.refuse()
	case <-ctx.Done():
		return nil, tidemark.Wrap(tidemark.Unavailable, context.Cause(ctx),
			"the server is restarting; try again")
	}
}

// Counters returns the gate's metrics (transports.CounterFunc).
func (g *Gate) Counters() map[string]int64 {
	return map[string]int64{
		"catch_ups": int64(len(g.slots)), "catch_ups_waiting": g.waiting.Load(),
		"catch_ups_refused_total": g.refused.Load(),
	}
}

// refuse counts a refused client and returns the error for it.
func (g *Gate) refuse() error {
	g.refused.Add(1)
	wait := retryFrom + rand.N(retryTo-retryFrom)
	return problem.RetryAfter(tidemark.Errorf(tidemark.Unavailable,
		"too many clients are connecting; try again in a few seconds"), wait)
}

// Pass is a client's place in a Gate. The methods of a nil Pass do nothing but run their argument.
// They may be called concurrently.
type Pass struct {
	gate *Gate
	left atomic.Bool
}

// Leave frees the place for the next client. Further calls do nothing.
func (p *Pass) Leave() {
	if p != nil && !p.left.Swap(true) {
		<-p.gate.slots
	}
}

// During runs write, which sends to the client, and returns its error. If write takes longer than
// slowWrite, the client loses its place, so that a client that does not read blocks no other
// client.
func (p *Pass) During(write func() error) error {
	if p == nil || p.left.Load() {
		return write()
	}
	slow := time.AfterFunc(slowWrite, p.Leave)
	defer slow.Stop()
	return write()
}
