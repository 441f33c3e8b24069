// Package redis is a bus for several nodes that share a Redis. Each life of a node subscribes to a
// channel of its own, gateway:<node>:<boot>:deliver. On a cluster that is a sharded channel. Events
// that a process publishes during a round trip share the next one, with one publication for each
// node (redis.NewTrips, package frame).
//
// Redis drops a publication without a subscriber and tells the publisher, who marks. A node notices
// by itself that its subscription was interrupted (subscription.go).
package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/batch"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/internal/frame"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// tripEvents is about how many events share one round trip.
	tripEvents = 1024
	// MaxFrame is the size in bytes from which a publication takes no further event. A publication
	// of this size delays the next one by less than a millisecond.
	MaxFrame = 256 << 10
)

// Bus implements bus.Bus. Call New, then Start, and Stop after the last call. It is safe for
// concurrent use.
type Bus struct {
	client *redis.Client
	trips  *batch.Batcher[parcel, error]
	count  counters

	mu            sync.RWMutex
	subscriptions map[registry.Node]*subscription
}

type counters struct {
	events, frames, bytes, received, nobody, missed, unknown, malformed atomic.Int64
	// lag is how long the last ping took to come back, in nanoseconds.
	lag atomic.Int64
}

// parcel is an event for a node.
type parcel struct {
	node  registry.Node
	event bus.Event
}

var _ bus.Bus = (*Bus)(nil)

// New returns a bus on a Redis. The caller closes client.
func New(client *redis.Client) *Bus {
	b := &Bus{client: client, subscriptions: make(map[registry.Node]*subscription)}
	b.trips = redis.NewTrips(tripEvents, b.trip)
	return b
}

// Start starts the goroutine that publishes.
func (b *Bus) Start() { b.trips.Start() }

// Stop stops it and waits for it. Publications under way get Unavailable. Subscriptions end by
// their own stop.
func (b *Bus) Stop() { b.trips.Abort() }

// Counters returns the bus's counters by name. Names that end in _total only grow.
func (b *Bus) Counters() map[string]int64 {
	c := &b.count
	return map[string]int64{
		"bus_events_total":          c.events.Load(),
		"bus_publications_total":    c.frames.Load(),
		"bus_published_bytes_total": c.bytes.Load(),
		"bus_unreceived_total":      c.nobody.Load(),
		"bus_received_total":        c.received.Load(),
		"bus_missed_total":          c.missed.Load(),
		"bus_unknown_total":         c.unknown.Load(),
		"bus_malformed_total":       c.malformed.Load(),
		"bus_lag_microseconds":      c.lag.Load() / int64(time.Microsecond),
	}
}

// Check returns Unavailable while a subscription is interrupted, else nil.
func (b *Bus) Check(context.Context) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for node, s := range b.subscriptions {
		if !s.up.Load() {
			return tidemark.Errorf(tidemark.Unavailable,
				"node %s receives nothing from the other nodes: its subscription in Redis is "+
					"interrupted, and it subscribes again",
				node.ID)
		}
	}
	return nil
}

func channel(node registry.Node) string {
	return "gateway:" + string(node.ID) + ":" + node.Boot + ":deliver"
}

// Publish implements bus.Bus. An event for a node of this process does not pass through Redis:
// Publish calls the subscriber.
func (b *Bus) Publish(ctx context.Context, publications []bus.Publication) []error {
	errs := make([]error, len(publications))
	var away []parcel
	var from []int
	for i := range publications {
		p := &publications[i]
		if s := b.here(p.Node); s != nil {
			s.subscriber.Receive(p.Event)
			s.calls.Done()
			continue
		}
		away, from = append(away, parcel{p.Node, p.Event}), append(from, i)
	}
	if len(away) == 0 {
		return errs
	}
	b.count.events.Add(int64(len(away)))
	answers, err := b.trips.Do(ctx, away)
	for k, i := range from {
		//rule:R_NOBODY.report-unknown-outcome
		if errs[i] = err; err == nil {
			errs[i] = answers[k]
		}
	}
	return errs
}

// here returns the subscription of a node of this process and adds a call to it, or nil.
func (b *Bus) here(node registry.Node) *subscription {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.subscriptions[node]
	if s != nil {
		s.calls.Add(1)
	}
	return s
}

// trip publishes in one round trip. The events for a node share one publication, or several if they
// are large.
func (b *Bus) trip(ctx context.Context, parcels []parcel) ([]error, error) {
	var calls []redis.Call
	place := make([]int, len(parcels)) // index in calls of each parcel's publication
	frames := make(map[registry.Node][]byte)
	open := make(map[registry.Node]int)
	for i := range parcels {
		node := parcels[i].node
		f, begun := frames[node]
		if !begun || len(f) > MaxFrame {
			f, open[node] = frame.Begin(nil), len(calls)
			calls = append(calls, redis.Call{})
		}
		frames[node] = frame.AppendEvent(f, &parcels[i].event)
		place[i] = open[node]
		calls[place[i]] = b.client.Publish(channel(node), frames[node])
	}
	replies := b.client.Run(ctx, calls)
	errs, failed := make([]error, len(parcels)), 0
	for i := range parcels {
		errs[i] = outcome(replies[place[i]], parcels[i].node)
	}
	for i, reply := range replies {
		b.count.frames.Add(1)
		b.count.bytes.Add(int64(size(&calls[i])))
		switch {
		case reply.Err != nil:
			failed++
		case reply.Value == int64(0):
			b.count.nobody.Add(1)
		}
	}
	if failed == len(replies) {
		return nil, replies[0].Err
	}
	return errs, nil
}

func size(call *redis.Call) int {
	payload, _ := call.Args[len(call.Args)-1].([]byte)
	return len(payload)
}

// outcome returns the error of a publication.
func outcome(reply redis.Reply, node registry.Node) error {
	switch n, ok := reply.Value.(int64); {
	case reply.Err != nil:
		return reply.Err
	case !ok:
		return tidemark.Errorf(tidemark.Unavailable,
			"Redis gave an answer of an unexpected type, %T", reply.Value)
	//rule:R_NOBODY.report-no-receiver
	case n == 0:
		return tidemark.Errorf(tidemark.NotFound, "node %s is not subscribed", node.ID)
	}
	return nil
}
