package redis

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/bus/internal/frame"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// pingEvery is how often a node publishes to itself.
	pingEvery = time.Second
	// silence is the time without a ping after which the connection is replaced. The connection may
	// be half open, or its server may no longer be the master.
	silence = 4 * time.Second
	// Least and greatest pause between attempts to subscribe.
	leastWait, mostWait = 50 * time.Millisecond, time.Second
)

// subscription is a node's subscription to its channel. Its goroutine subscribes again whenever the
// connection breaks or the node's own pings do not come back.
type subscription struct {
	bus        *Bus
	node       registry.Node
	subscriber bus.Subscriber
	// up says that the channel is subscribed.
	up atomic.Bool
	// calls counts the calls under way from publishers of this process.
	calls   sync.WaitGroup
	running sync.WaitGroup

	mu sync.Mutex
	// pings has the numbers of pings that have not come back, and when they were sent.
	pings map[uint64]time.Time
}

// Subscribe implements bus.Bus. It returns when the node is subscribed, the first attempt failed,
// or ctx ended. In the latter cases it keeps trying. stop waits for the calls under way, so the
// subscriber must not call it.
func (b *Bus) Subscribe(
	ctx context.Context, node registry.Node, to bus.Subscriber,
) (func(), error) {
	s := &subscription{bus: b, node: node, subscriber: to, pings: make(map[uint64]time.Time)}
	b.mu.Lock()
	if _, there := b.subscriptions[node]; there {
		b.mu.Unlock()
		return nil, tidemark.Errorf(tidemark.Conflict, "node %s is subscribed already", node.ID)
	}
	b.subscriptions[node] = s
	b.mu.Unlock()
	running, cancel := context.WithCancel(context.Background())
	attempted := make(chan struct{})
	s.running.Go(func() { s.run(running, attempted) })
	select {
	case <-attempted:
	case <-ctx.Done():
	}
	return func() {
		b.mu.Lock()
		if b.subscriptions[node] == s {
			delete(b.subscriptions, node)
		}
		b.mu.Unlock()
		//rule:R_ADDR.no-call-after-stop
		cancel()
		s.running.Wait()
		s.calls.Wait()
	}, nil
}

// run keeps the node subscribed until ctx ends. It closes attempted after the first attempt.
func (s *subscription) run(ctx context.Context, attempted chan struct{}) {
	first := sync.OnceFunc(func() { close(attempted) })
	defer first()
	wait, interrupted := leastWait, false
	for ctx.Err() == nil {
		connection, err := s.bus.client.Subscribe(ctx, channel(s.node))
		if err == nil {
			wait = leastWait
			s.up.Store(true)
			first()
			s.listen(ctx, connection, interrupted)
			s.up.Store(false)
			connection.Close()
			interrupted = false // until now
		}
		if !interrupted && ctx.Err() == nil {
			s.bus.count.missed.Add(1)
		}
		interrupted = true
		first()
		signal.Pause(ctx, wait/2+rand.N(wait/2+1))
		wait = min(2*wait, mostWait)
	}
}

// listen handles the frames from a connection until it breaks, pings stop coming back, or ctx ends.
func (s *subscription) listen(
	ctx context.Context, connection *redis.Subscription, interrupted bool,
) {
	over, end := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end()
	helpers.Go(func() {
		<-over.Done()
		connection.Close() // ends Receive
	})
	helpers.Go(func() { s.ping(over, end) })
	//rule:R_EPOCH.report-missed-events
	if interrupted && s.subscriber.Missed != nil {
		s.subscriber.Missed()
	}
	alive := time.Now()
	for {
		//rule:R_EPOCH.detect-silent-connection
		within := silence - time.Since(alive)
		if within <= 0 {
			return
		}
		text, err := connection.Receive(over, within)
		if err != nil || over.Err() != nil {
			return
		}
		if s.take(text) {
			alive = time.Now()
		}
	}
}

// take passes a frame's events to the subscriber. It reports whether the frame had a ping of this
// subscription.
func (s *subscription) take(text string) (ping bool) {
	contents, err := frame.Read(text, s.node)
	count := &s.bus.count
	if err != nil {
		count.malformed.Add(1)
	}
	count.unknown.Add(int64(contents.Unknown))
	count.malformed.Add(int64(contents.Malformed))
	count.received.Add(int64(len(contents.Events)))
	for _, e := range contents.Events {
		s.subscriber.Receive(e)
	}
	for _, number := range contents.Pings {
		ping = s.back(number) || ping
	}
	return ping
}

// ping publishes to the node itself until ctx ends. If nobody receives a ping, it calls end.
func (s *subscription) ping(ctx context.Context, end func()) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		number := s.sent()
		reply := s.bus.client.Run(ctx,
			[]redis.Call{s.bus.client.Publish(channel(s.node),
				frame.AppendPing(frame.Begin(nil), number))})[0]
		if reply.Err == nil && reply.Value == int64(0) {
			end()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// sent records a new ping and returns its number, which is random so that no other connection has
// it.
func (s *subscription) sent() uint64 {
	number := rand.Uint64()
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, at := range s.pings {
		if time.Since(at) > 2*silence {
			delete(s.pings, old)
		}
	}
	s.pings[number] = time.Now()
	return number
}

// back records that a ping came back. It reports whether it belongs to this subscription.
func (s *subscription) back(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ours := s.pings[number]
	if ours {
		delete(s.pings, number)
		s.bus.count.lag.Store(int64(time.Since(at)))
	}
	return ours
}
