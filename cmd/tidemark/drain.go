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
	// drainWithin is the default time of an orderly stop.
	// Within it, requests under way are finished, and sessions are closed and marked.
	drainWithin = 15 * time.Second
	// drainDelay is the default time for which /readyz is red while everything still works.
	// In this time load balancers notice. It is 0 in development.
	drainDelay = time.Second
	// drainSpread is the default time for sending streams to other nodes, if there are any.
	// It is at most half of what the delay leaves.
	drainSpread = 10 * time.Second
	// drainSettle is how long the last sessions wait for the nodes that their clients go to.
	// It is at most a quarter of the time that is then left.
	drainSettle = 2 * time.Second
	// stopFailedWithin is the time of a stop after the disk has failed.
	// It is short, because nothing can be stored any more.
	stopFailedWithin = time.Second
	// stopReplacedWithin is the time of a stop after the database has become another one. Calls
	// under way may wait for the database before, which does not answer.
	stopReplacedWithin = 8 * time.Second
)

// streamAdapter is a transport that hijacks connections from net/http, and so must end them itself.
type streamAdapter interface {
	Shutdown(ctx context.Context) error
	// Drain sends the clients to other nodes, one after the other, within a time.
	// A Shutdown must follow.
	Drain(ctx context.Context, within time.Duration)
}

// drain is an orderly stop.
type drain struct {
	// delay is a part of within.
	delay, within time.Duration
	// spread is the time in which streams are sent to other nodes, if there are any.
	spread time.Duration
	// alone reports whether there is no other node.
	alone func() bool

	handler  *transports.Handler
	front    *http.Server
	adapters []streamAdapter
	core     *server.Server
	log      *slog.Logger
}

// run stops the server from the outside to the inside, within d.within.
// It cuts what is not done by then, which is then left as after a crash.
// Even so, nothing that was confirmed is lost. The caller closes the store afterwards.
func (d *drain) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.within)
	defer cancel()
	began := time.Now()

	// 1. /readyz is red. Everything still works until load balancers have noticed.
	//rule:stop_in_order.tell-balancers-first
	d.handler.Leave()
	//rule:stop_in_order.give-balancers-time
	signal.Pause(ctx, d.delay)

	// 2. If there are other nodes, streams are sent there, one after the other.
	// This node opens no stream any more, but everything else still works.
	// It gives its sessions to the nodes that request them.
	if !d.alone() {
		//rule:stop_in_order.send-clients-elsewhere
		d.sendElsewhere(ctx)
	}

	// 3. No further connections are accepted, and requests under way are answered.
	// Each remaining stream gets a time to come back, one after the other.
	// The requests of its client are finished, and what was appended for it is written.
	// A client that is slow or stalls in a request must not use up the time for marking sessions.
	streams, cut := context.WithTimeout(ctx, (d.within-time.Since(began))*2/3)
	defer cut()
	if err := d.endConnections(streams); err != nil {
		d.log.Warn("connections were cut, because they did not close in time; their clients "+
			"connect again", "error", err)
	}

	// 4. Waiting acknowledgements are written. Sessions are closed and marked, leases released.
	if err := d.core.Stop(ctx); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	d.log.Info("stopped", "after", time.Since(began).Round(time.Millisecond).String())
	return nil
}

// sendElsewhere sends the clients of all streams to other nodes.
// It then waits for at most drainSettle until their sessions have moved.
func (d *drain) sendElsewhere(ctx context.Context) {
	began := time.Now()
	var draining sync.WaitGroup
	for _, adapter := range d.adapters {
		draining.Go(func() { adapter.Drain(ctx, d.spread) })
	}
	draining.Wait()
	drained := time.Now()
	settle := drainSettle
	if end, limited := ctx.Deadline(); limited {
		settle = min(settle, time.Until(end)/4)
	}
	//rule:stop_in_order.wait-while-sessions-remain
	for d.core.Counters()["sessions"] > 0 && time.Since(drained) < settle && ctx.Err() == nil {
		signal.Pause(ctx, settle/40)
	}
	d.log.Info("clients were sent to other nodes",
		"after", time.Since(began).Round(time.Millisecond).String(),
		"sessions_left", d.core.Counters()["sessions"])
}

// endConnections ends the connections of all adapters concurrently, since each waits for its own.
// It cuts the connections that are left when ctx ends.
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
