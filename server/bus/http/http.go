// Package http is a bus for several nodes that reach each other directly. Each has a listener of
// its own for the others, and posts frames (package frame) to theirs. Events that a process
// publishes to a node during a post share the next one.
//
// A post is answered after the subscriber was called. So a publication without an answer may be
// lost, and its publisher knows it. The node that missed it does not: it may serve clients and
// reach the registry. Therefore the publisher complains of it there (Peers.Complain), and the node
// finds that with its next heartbeat (Bus.Complained).
//
// Posts and answers carry a code made with a shared secret (HMAC-SHA256). So a stranger can neither
// publish nor answer, and the secret is never sent. What is posted can be read on the way: nodes
// belong in a private network.
package http

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	// MinSecret is the least length of a secret in bytes.
	MinSecret = 32
	// postEvents is about how many events share a post.
	postEvents = 1024
	// MaxFrame is the size in bytes from which a post takes no further event, and maxBody the
	// greatest body that a node accepts.
	MaxFrame = 256 << 10
	maxBody  = 16 << 20
	// postTime bounds a post with its answer, askTime the question to the registry after it, and
	// dialTime the connection to a node. While a node is not reached, because it stands still for
	// example, a publication waits for failedTime only. A probe waits for postTime, so it also
	// reaches a node that is slow.
	postTime   = 2 * time.Second
	failedTime = 250 * time.Millisecond
	askTime    = time.Second
	dialTime   = time.Second
	// pauseAfterFailure is how long publications to a node are refused at once after a post that
	// failed. Without it each caller would wait for another timeout.
	pauseAfterFailure = 200 * time.Millisecond
	// idleTime is how long a connection without posts is kept. The other node closes it later.
	idleTime = 90 * time.Second
)

// Peers knows the nodes. registry/postgres implements it.
type Peers interface {
	// Address returns HOST:PORT of a life of a node. Its error is NotFound as that of Find.
	Address(ctx context.Context, node registry.Node) (string, error)
	// Find returns it as it is now. NotFound says that this life has no lease now, so that it must
	// join again.
	Find(ctx context.Context, node registry.Node) (string, error)
	// Complain says that a publication may not have reached a node. It does not block.
	Complain(of registry.Node)
}

// Config configures a Bus. All fields are required.
type Config struct {
	// Listener accepts the other nodes' connections. Stop closes it.
	Listener net.Listener
	Secret   []byte
	Peers    Peers
}

// Bus implements bus.Bus. Call New, then Start, and Stop after the last call. It is safe for
// concurrent use.
type Bus struct {
	cfg    Config
	server *http.Server
	client *http.Client
	count  counters
	// began is when the bus was made, by the monotonic clock.
	began time.Time
	// serving waits for the server's goroutine, and probes for those of probe. Stop ends ending.
	serving, probes sync.WaitGroup
	ending          context.Context
	end             context.CancelFunc

	mu            sync.RWMutex
	stopped       bool
	subscriptions map[registry.Node]*subscription
	// known has the names of nodes that ever subscribed here.
	known map[tidemark.NodeID]bool
	links map[registry.Node]*link
}

var _ bus.Complainer = (*Bus)(nil)

type counters struct {
	events, frames, bytes, received, nobody, missed, unknown, malformed atomic.Int64
}

// subscription is a node of this process.
type subscription struct {
	subscriber bus.Subscriber
	// silent is how many more heartbeats without complaints show that other nodes reach the node.
	// It is 0 while they do.
	silent atomic.Int32
	// complained is when the last complaint came, as the time since Bus.began.
	complained atomic.Int64
	// calls counts the calls of the subscriber under way.
	calls sync.WaitGroup
}

// receive passes an event to the subscriber, and ends the call that here added.
func (s *subscription) receive(e bus.Event) {
	defer s.calls.Done() // also if the subscriber panics
	s.subscriber.Receive(e)
}

var _ bus.Bus = (*Bus)(nil)

// New returns a bus that is not started.
func New(cfg Config) *Bus {
	b := &Bus{
		cfg:           cfg,
		began:         time.Now(),
		subscriptions: make(map[registry.Node]*subscription),
		known:         make(map[tidemark.NodeID]bool),
		links:         make(map[registry.Node]*link),
	}
	b.ending, b.end = context.WithCancel(context.Background())
	b.server = &http.Server{
		Handler: http.HandlerFunc(b.receive), ReadHeaderTimeout: postTime,
		ReadTimeout: 10 * postTime, IdleTimeout: 2 * idleTime, MaxHeaderBytes: 8 << 10,
	}
	b.client = &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialTime}).DialContext,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: idleTime, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	return b
}

// Start begins to accept the posts of other nodes.
func (b *Bus) Start() {
	b.serving.Go(func() { _ = b.server.Serve(b.cfg.Listener) })
}

// Stop closes the listener, and ends the publications under way: they get Unavailable.
// Subscriptions end by their own stop.
func (b *Bus) Stop() {
	b.mu.Lock()
	b.stopped = true
	links := b.links
	b.links = make(map[registry.Node]*link)
	b.mu.Unlock()
	b.end()
	for _, l := range links {
		l.posts.Abort()
	}
	b.probes.Wait()
	_ = b.server.Close()
	_ = b.cfg.Listener.Close() // if it was never served
	b.serving.Wait()
	b.client.CloseIdleConnections()
}

// Counters returns the bus's counters by name. They only grow.
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
	}
}

// Complains implements bus.Complainer.
func (*Bus) Complains() {}

// Check returns Unavailable while other nodes do not reach a node of this process, else nil.
func (b *Bus) Check(context.Context) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for node, s := range b.subscriptions {
		//rule:R_EPOCH.degraded-while-not-reached
		if s.silent.Load() > 0 {
			return tidemark.Errorf(tidemark.Unavailable,
				"other nodes do not reach node %s at its address; check --cluster-advertise, and "+
					"the network between the nodes", node.ID)
		}
	}
	return nil
}

// quietBeats is how many heartbeats without a complaint show that a node is reached. quietTime is
// how long after the last complaint the last of them must come. Nodes complain with their own
// heartbeats, a little more than three seconds apart, or twice that if one finds no time to probe.
// A node's own heartbeat may come early.
const (
	quietBeats = 2
	quietTime  = 7 * time.Second
)

// Complained takes from the registry, with each heartbeat of a node of this process, whether other
// nodes complained of it. While they do, the node is degraded (Check). When they no longer do,
// publications arrive again, and it has missed some. Complained also begins to post to the nodes
// that were not reached from here. It does not block.
func (b *Bus) Complained(node registry.Node, complained bool) {
	b.unlink()
	b.probe()
	b.mu.RLock()
	s := b.subscriptions[node]
	b.mu.RUnlock()
	switch {
	case s == nil:
	case complained:
		s.complained.Store(int64(time.Since(b.began)))
		if s.silent.Swap(quietBeats) == 0 {
			b.count.missed.Add(1)
		}
	//rule:R_EPOCH.wait-for-further-complaints
	case s.silent.Load() == 1 && time.Since(b.began)-time.Duration(s.complained.Load()) < quietTime:
	case s.silent.Load() > 0:
		//rule:R_EPOCH.report-unreached-node
		if s.silent.Add(-1) == 0 && s.subscriber.Missed != nil {
			s.subscriber.Missed()
		}
	}
}

// Subscribe implements bus.Bus. stop waits for the calls under way, so the subscriber must not call
// it.
func (b *Bus) Subscribe(
	_ context.Context, node registry.Node, to bus.Subscriber,
) (func(), error) {
	s := &subscription{subscriber: to}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.subscriptions[node]; there {
		return nil, tidemark.Errorf(tidemark.Conflict, "node %s is subscribed already", node.ID)
	}
	b.subscriptions[node], b.known[node.ID] = s, true
	return func() {
		b.mu.Lock()
		if b.subscriptions[node] == s {
			delete(b.subscriptions, node)
		}
		b.mu.Unlock()
		//rule:R_ADDR.no-call-after-stop-over-http
		s.calls.Wait()
	}, nil
}

// here returns the subscription of a node of this process, or nil. It adds a call to the
// subscription. known says that a life of that node is or was in this process.
func (b *Bus) here(node registry.Node) (s *subscription, known bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	s = b.subscriptions[node]
	if s != nil {
		s.calls.Add(1)
	}
	return s, b.known[node.ID]
}
