package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports"
)

const (
	// drainWithin is how long an orderly stop may take: what clients have begun is finished, sessions are closed and marked.
	drainWithin = 15 * time.Second
	// drainDelay is for how long before that /readyz is red while everything still works, so that load balancers notice; none in development.
	drainDelay = time.Second
	// drainSpread is in what time the streams are sent to other nodes, if there are some; at most half of what the delay leaves.
	drainSpread = 10 * time.Second
	// drainSettle is how long the sessions of those that were told last are kept for the nodes that they go to; at most a quarter of what is left then.
	drainSettle = 2 * time.Second
	// stopFailedWithin is how long a stop may take when the disk has failed: nothing can be stored any more, so there is little to wait for.
	stopFailedWithin = time.Second
)

// streamAdapter is a transport that takes connections over from net/http, and so ends them itself.
type streamAdapter interface {
	Shutdown(ctx context.Context) error
	// Drain sends the clients to other nodes, one after the other within a time. Shutdown has to follow.
	Drain(ctx context.Context, within time.Duration)
}

// drain is an orderly stop.
type drain struct {
	// delay is a part of within.
	delay, within time.Duration
	// spread is in what time streams are sent to other nodes while there are some.
	spread time.Duration
	// alone reports whether there is no other node.
	alone func() bool

	handler  *transports.Handler
	front    *http.Server
	adapters []streamAdapter
	core     *server.Server
	log      *slog.Logger
}

// run ends the server from outside to inside, within the time. What is not done by then is cut, and left as after a crash; nothing that was confirmed is
// lost by that. The store is closed by its opener, afterwards.
func (d *drain) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.within)
	defer cancel()
	began := time.Now()

	// 1. /readyz is red. Everything still works, while load balancers look.
	//rule:stop_in_order.tell-balancers-first
	d.handler.Leave()
	//rule:stop_in_order.give-balancers-time
	signal.Pause(ctx, d.delay)

	// 2. If there are other nodes, each stream is told to go there, one after the other, and none is taken any more; everything else still works, and the
	// sessions are given to the nodes that ask for them.
	if !d.alone() {
		//rule:stop_in_order.send-clients-elsewhere
		d.sendElsewhere(ctx)
	}

	// 3. No further connections are accepted; requests under way are answered. Every stream that is left is told, one after the other, to come back and when;
	// the requests of its client are finished, and what was appended for it is written. A client that is slow, or silent in the middle of its request, may
	// not take the time that sessions need to be marked.
	streams, cut := context.WithTimeout(ctx, (d.within-time.Since(began))*2/3)
	defer cut()
	if err := d.endConnections(streams); err != nil {
		d.log.Warn("connections were cut", "error", err)
	}

	// 4. Acknowledgements that wait are written, sessions are closed and marked, leases released.
	if err := d.core.Stop(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	d.log.Info("stopped", "after", time.Since(began).Round(time.Millisecond).String())
	return nil
}

// sendElsewhere tells the clients of all streams to go to other nodes, and waits until their sessions have gone, or for a while.
func (d *drain) sendElsewhere(ctx context.Context) {
	began := time.Now()
	var telling sync.WaitGroup
	for _, adapter := range d.adapters {
		telling.Go(func() { adapter.Drain(ctx, d.spread) })
	}
	telling.Wait()
	told := time.Now()
	settle := drainSettle
	if end, limited := ctx.Deadline(); limited {
		settle = min(settle, time.Until(end)/4)
	}
	//rule:stop_in_order.wait-while-sessions-remain
	for d.core.Counters()["sessions"] > 0 && time.Since(told) < settle && ctx.Err() == nil {
		signal.Pause(ctx, settle/40)
	}
	d.log.Info("clients were sent to other nodes", "after", time.Since(began).Round(time.Millisecond).String(), "sessions_left", d.core.Counters()["sessions"])
}

// endConnections ends all connections side by side, since each adapter waits for its own. What is left when ctx ends is cut.
func (d *drain) endConnections(ctx context.Context) error {
	errs := make([]error, len(d.adapters)+1)
	var group sync.WaitGroup
	group.Go(func() {
		if err := d.front.Shutdown(ctx); err != nil {
			errs[0] = errors.Join(err, d.front.Close())
		}
	})
	for i, adapter := range d.adapters {
		group.Go(func() { errs[i+1] = adapter.Shutdown(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}
