package redis_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	busredis "github.com/tidemark-im/tidemark/server/bus/redis"
	"github.com/tidemark-im/tidemark/server/registry"
	service "github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// If Redis fails, every publication with a nil error was received, or its node is told that it
// missed something. A node that receives nothing is told within seconds.

func node(id tidemark.NodeID) registry.Node { return registry.Node{ID: id, Boot: "1"} }

// publisherAndNode is two processes on a Redis. a publishes, and b has a node that is subscribed.
type publisherAndNode struct {
	*testing.T
	a, b   *busredis.Bus
	missed atomic.Int64

	mu       sync.Mutex
	received map[tidemark.Sequence]bool
}

func newPublisherAndNode(t *testing.T, url string) *publisherAndNode {
	t.Helper()
	w := &publisherAndNode{
		T: t, a: open(t, url), b: open(t, url), received: make(map[tidemark.Sequence]bool),
	}
	stop, err := w.b.Subscribe(t.Context(), node("b"), bus.Subscriber{
		Receive: w.receive,
		Missed:  func() { w.missed.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return w
}

func (w *publisherAndNode) receive(e bus.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.received[e.Notification.Sequence] = true
}

func (w *publisherAndNode) has(n tidemark.Sequence) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.received[n]
}

func (w *publisherAndNode) publish(n tidemark.Sequence) error {
	return bus.PublishOne(w.Context(), w.a, node("b"), bus.Event{
		Notification: &bus.Notification{Chat: "c", Sequence: n},
	})
}

// eventually waits until is returns true.
func (w *publisherAndNode) eventually(what string, is func() bool) {
	w.Helper()
	wait.Until(w, what, is)
}

// arrives publishes until a publication arrives.
func (w *publisherAndNode) arrives(from tidemark.Sequence) {
	w.Helper()
	n := from
	w.eventually("a publication arrives again", func() bool {
		n++
		if w.publish(n) != nil {
			return false
		}
		w.eventually("it is received", func() bool { return w.has(n) })
		return true
	})
}

func (w *publisherAndNode) healthy() bool { return w.b.Check(w.Context()) == nil }

func TestSubscription_is_told_that_it_missed_something(t *testing.T) {
	for name, fault := range map[string]func(w *publisherAndNode, s *service.Server){
		"killed and restarted": func(w *publisherAndNode, s *service.Server) {
			s.Kill(w.T)
			w.eventually("the bus reports the interruption", func() bool { return !w.healthy() })
			if err := w.publish(1); tidemark.CodeOf(err) != tidemark.Unavailable {
				w.Errorf("Publish without Redis: %v, want %s", err, tidemark.Unavailable)
			}
			s.Run(w.T)
		},
		"its connection killed": func(w *publisherAndNode, s *service.Server) {
			s.Do(w.T, "CLIENT", "KILL", "TYPE", "pubsub")
		},
		"hangs": func(w *publisherAndNode, s *service.Server) {
			s.Freeze(w.T)
			w.eventually("the bus reports the interruption", func() bool { return !w.healthy() })
			s.Thaw(w.T)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := service.Start(t)
			w := newPublisherAndNode(t, server.URL())
			if !w.healthy() || w.missed.Load() != 0 {
				t.Fatal("a new subscription receives nothing, or missed something")
			}
			fault(w, server)
			w.eventually("the node is told",
				func() bool { return w.missed.Load() >= 1 && w.healthy() })
			w.arrives(10)
			if n, counted := w.missed.Load(), w.b.Counters()["bus_missed_total"]; n != counted {
				t.Errorf("the node was told %d times, and %d are counted", n, counted)
			}
		})
	}
}

// A firewall may drop a connection that stays open on both sides. Here Redis is made to end the
// subscription without a reply.
func TestSubscription_notices_a_connection_that_says_nothing(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	proxy := newMute(t, server.Address())
	w := &publisherAndNode{
		T:        t,
		a:        open(t, server.URL()),
		b:        open(t, "redis://"+proxy.address()),
		received: make(map[tidemark.Sequence]bool),
	}
	stop, err := w.b.Subscribe(t.Context(), node("b"), bus.Subscriber{
		Receive: w.receive,
		Missed:  func() { w.missed.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	w.arrives(0)
	proxy.mute() // present connections; new ones work
	if err := w.publish(1000); err != nil {
		t.Errorf("Publish: %v, want nil, since Redis sends it to the dead connection", err)
	}
	w.eventually("the node is told", func() bool { return w.missed.Load() == 1 })
	if w.has(1000) {
		t.Error("the mute connection carried something: the test shows nothing")
	}
	w.arrives(2000)
}

func TestSubscription_follows_a_failover(t *testing.T) {
	t.Run("behind a sentinel", func(t *testing.T) {
		t.Parallel()
		watched := service.StartSentinel(t)
		w := newPublisherAndNode(t, watched.URL())
		w.arrives(0)
		watched.FailOver(t)
		w.eventually("the node is told", func() bool { return w.missed.Load() >= 1 && w.healthy() })
		w.arrives(1000)
	})
	t.Run("of a shard", func(t *testing.T) {
		t.Parallel()
		cluster := service.StartCluster(t)
		w := newPublisherAndNode(t, cluster.URL())
		w.arrives(0)
		cluster.FailOver(t, cluster.Shard(t, "gateway:b:1:deliver"))
		w.eventually("the node is told", func() bool { return w.missed.Load() >= 1 && w.healthy() })
		w.arrives(1000)
	})
}

// When a slot moves, its sharded channel moves along, and Redis ends the subscription.
func TestSubscription_follows_a_slot_that_moves(t *testing.T) {
	t.Parallel()
	cluster := service.StartCluster(t)
	w := newPublisherAndNode(t, cluster.URL())
	w.arrives(0)
	const channel = "gateway:b:1:deliver"
	from := cluster.Shard(t, channel).Master
	to := cluster.Shards[0].Master
	if to == from {
		to = cluster.Shards[1].Master
	}
	slot := fmt.Sprint(from.Do(t, "CLUSTER", "KEYSLOT", channel))
	name := func(s *service.Server) string { return fmt.Sprint(s.Do(t, "CLUSTER", "MYID")) }
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", name(from))
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", name(to))
	for _, s := range []*service.Server{to, from} {
		s.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", name(to))
	}
	w.eventually("the node is told", func() bool { return w.missed.Load() >= 1 && w.healthy() })
	w.arrives(1000)
}

// Subscribe does not fail while Redis is away, and the node is told when Redis comes.
func TestSubscribe_without_Redis_goes_on_trying(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	server.Kill(t)
	w := newPublisherAndNode(t, server.URL())
	if err := w.b.Check(t.Context()); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("Check: %v, want %s", err, tidemark.Unavailable)
	}
	server.Run(t)
	w.eventually("the node is told", func() bool { return w.missed.Load() == 1 && w.healthy() })
	w.arrives(0)
}

// stop returns even while Redis hangs.
func TestSubscribe_stop_does_not_hang(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	b := open(t, server.URL())
	stop, err := b.Subscribe(t.Context(), node("b"), bus.Subscriber{Receive: func(bus.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	server.Freeze(t)
	began := time.Now()
	stop()
	if took := time.Since(began); took > wait.Hang {
		t.Errorf("stop took %v", took)
	}
	server.Thaw(t)
}

// While Redis is killed with publications in flight, everything answered with nil was received, or
// the node was told that something is missing.
func TestPublish_is_received_or_told_over_kills(t *testing.T) {
	t.Parallel()
	server := service.Start(t)
	w := newPublisherAndNode(t, server.URL())
	var next atomic.Uint64
	var mu sync.Mutex
	promised := make(map[tidemark.Sequence]int64) // with the value of told at that time
	stop := make(chan struct{})
	var publishing sync.WaitGroup
	for range 4 {
		publishing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, told := tidemark.Sequence(next.Add(1)), w.missed.Load()
				if w.publish(n) == nil {
					mu.Lock()
					promised[n] = told
					mu.Unlock()
				}
			}
		})
	}
	for kill := range int64(3) {
		<-time.After(50 * time.Millisecond)
		server.Kill(t)
		server.Run(t)
		w.eventually("the node is told",
			func() bool { return w.missed.Load() > kill && w.healthy() })
	}
	close(stop)
	publishing.Wait()
	w.arrives(1 << 40)
	lost := 0
	for n, told := range promised {
		if !w.has(n) {
			lost++
			if told == w.missed.Load() {
				t.Errorf("publication %d was promised, is lost, and nobody was told after it", n)
			}
		}
	}
	t.Logf("%d publications, %d promised, %d of those lost in kills and told",
		next.Load(), len(promised), lost)
}

// Events for a node that are queued during a round trip share one publication.
func TestPublish_shares_round_trips(t *testing.T) {
	url := service.Database(t)
	w := newPublisherAndNode(t, url)
	const publishers, each = 64, 50
	var all sync.WaitGroup
	for p := range publishers {
		all.Go(func() {
			for i := range each {
				if err := w.publish(tidemark.Sequence(p*each + i + 1)); err != nil {
					t.Errorf("Publish: %v", err)
				}
			}
		})
	}
	all.Wait()
	w.eventually("all are received",
		func() bool { return w.b.Counters()["bus_received_total"] == publishers*each })
	got := w.a.Counters()
	events, frames := got["bus_events_total"], got["bus_publications_total"]
	if events != publishers*each || frames > events/8 {
		t.Errorf("%d events in %d publications, want at most an eighth", events, frames)
	}
	w.eventually("a ping has come back",
		func() bool { return w.b.Counters()["bus_lag_microseconds"] > 0 })
}

// Large events take several publications, and all arrive.
func TestPublish_large_events(t *testing.T) {
	w := newPublisherAndNode(t, service.Database(t))
	draft := tidemark.Draft{
		ChatID:          "c",
		SenderID:        "alice",
		ClientMessageID: "k",
		Content:         strings.Repeat("x", tidemark.MaxContent),
		ContentType:     tidemark.DefaultContentType,
		MessageID:       "m",
	}
	var publications []bus.Publication
	const events = 40
	for i := range events {
		m := draft.Message(tidemark.Sequence(i+1), 1)
		publications = append(publications, bus.Publication{
			Node: node("b"),
			Event: bus.Event{
				Notification: &bus.Notification{Chat: "c", Sequence: m.Sequence, Message: &m},
			},
		})
	}
	for i, err := range w.a.Publish(t.Context(), publications) {
		if err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
	w.eventually("all are received", func() bool { return w.has(events) })
	got := w.a.Counters()
	size := int64(events * tidemark.MaxContent)
	least, most := size/(busredis.MaxFrame+2*tidemark.MaxContent), size/busredis.MaxFrame+1
	if frames := got["bus_publications_total"]; frames < least || frames > most {
		t.Errorf("%d publications for %d bytes, want about %d",
			frames, got["bus_published_bytes_total"], most)
	}
}
