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
	"github.com/tidemark-im/tidemark/server/bus/redis/internal/frame"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// beatEvery is how often a node publishes to itself.
	beatEvery = time.Second
	// silence is how long no beat may come back. A subscription whose connection is half open, or is to a server that is not the master any more, is noticed by it.
	silence = 4 * time.Second
	// The waits between attempts to subscribe.
	leastWait, mostWait = 50 * time.Millisecond, time.Second
)

// subscription is a node's end of the bus. Its goroutine subscribes, and again whenever the connection breaks or its own beats do not come back.
type subscription struct {
	bus        *Bus
	node       registry.Node
	subscriber bus.Subscriber
	// up says that the channel is subscribed.
	up atomic.Bool
	// calls counts the calls of the subscriber under way that are made by publishers of this process.
	calls   sync.WaitGroup
	running sync.WaitGroup

	mu sync.Mutex
	// beats are when those that have not come back were sent, by their number.
	beats map[uint64]time.Time
}

// Subscribe implements bus.Bus. It returns when the node is subscribed, or when the first attempt failed or ctx ended, and tries on then. stop waits for the calls
// under way; it must not be called by the subscriber.
func (b *Bus) Subscribe(
	ctx context.Context, node registry.Node, to bus.Subscriber,
) (func(), error) {
	s := &subscription{bus: b, node: node, subscriber: to, beats: make(map[uint64]time.Time)}
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

// run keeps the node subscribed until ctx ends. attempted is closed after the first attempt.
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

// listen takes what comes over a connection until that is over.
func (s *subscription) listen(
	ctx context.Context, connection *redis.Subscription, interrupted bool,
) {
	over, end := context.WithCancel(ctx)
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer end()
	helpers.Go(func() {
		<-over.Done()
		connection.Close() // Receive ends
	})
	helpers.Go(func() { s.beat(over, end) })
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

// take hands a frame's events to the subscriber, and reports whether a beat of this subscription was among them.
func (s *subscription) take(text string) (beat bool) {
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
	for _, number := range contents.Beats {
		beat = s.back(number) || beat
	}
	return beat
}

// beat publishes to the node itself until ctx ends; end ends the connection if nobody receives it.
func (s *subscription) beat(ctx context.Context, end func()) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		number := s.sent()
		reply := s.bus.client.Run(ctx,
			[]redis.Call{s.bus.client.Publish(channel(s.node),
				frame.AppendBeat(frame.Begin(nil), number))})[0]
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

// sent notes that a beat is sent, and returns its number, which no other connection's beats have.
func (s *subscription) sent() uint64 {
	number := rand.Uint64()
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, at := range s.beats {
		if time.Since(at) > 2*silence {
			delete(s.beats, old)
		}
	}
	s.beats[number] = time.Now()
	return number
}

// back notes that a beat has come back, and reports whether it is one of ours.
func (s *subscription) back(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ours := s.beats[number]
	if ours {
		delete(s.beats, number)
		s.bus.count.lag.Store(int64(time.Since(at)))
	}
	return ours
}
