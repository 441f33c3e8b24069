package test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
	"github.com/tidemark-im/tidemark/test/services/kafka"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

// socket is a WebSocket whose frames are noted. It acknowledges each message of others.
type socket struct {
	name string
	conn *websocket.Conn

	mu sync.Mutex
	// upTo is up to which message of each chat all have come from the one in began on, and ticks up
	// to which message bob has acknowledged.
	upTo, began, ticks map[string]int64
	faults             []string
}

// listen opens a WebSocket and reads it until the test ends.
func listen(t *testing.T, u user) *socket {
	t.Helper()
	s := &socket{
		name: u.name, conn: dial(t, u), upTo: map[string]int64{}, began: map[string]int64{},
		ticks: map[string]int64{},
	}
	s.conn.SetReadLimit(1 << 20)
	ctx, end := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			var f frame
			if err := wsjson.Read(ctx, s.conn, &f); err != nil {
				if ctx.Err() == nil {
					s.fault("the connection ended: %v", err)
				}
				return
			}
			s.take(ctx, f)
		}
	})
	t.Cleanup(func() { end(); reading.Wait() })
	return s
}

// fault notes what is wrong.
func (s *socket) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, s.name+": "+fmt.Sprintf(format, args...))
}

// take notes a frame.
func (s *socket) take(ctx context.Context, f frame) {
	switch f.Type {
	case "message":
		var m message
		if err := json.Unmarshal(f.Payload, &m); err != nil {
			s.fault("%v in %s", err, f.Payload)
			return
		}
		s.mu.Lock()
		next, began := s.upTo[m.ChatID]+1, s.began[m.ChatID]
		// Own messages count as acknowledged. So a session may begin a chat at a later one, and go
		// back when it hears of the first (delivery.md §3, R_MIN).
		begins := m.SenderID == s.name && (began == 0 || m.Sequence < began)
		if began == 0 || begins {
			s.began[m.ChatID] = m.Sequence
		}
		s.upTo[m.ChatID] = m.Sequence
		s.mu.Unlock()
		if m.Sequence != next && !begins {
			s.fault("message %d of %s came in place of message %d", m.Sequence, m.ChatID, next)
		}
		if m.SenderID == s.name {
			return
		}
		if err := wsjson.Write(ctx, s.conn, map[string]any{
			"type": "ack", "payload": map[string]any{
				"chat_id": m.ChatID, "last_acked_sequence": m.Sequence,
			},
		}); err != nil && ctx.Err() == nil {
			s.fault("the acknowledgement of %s: %v", m.ChatID, err)
		}
	case "status_update":
		var update state
		if err := json.Unmarshal(f.Payload, &update); err != nil {
			s.fault("%v in %s", err, f.Payload)
		} else if update.UserID == "bob" {
			s.mu.Lock()
			s.ticks[update.ChatID] = max(s.ticks[update.ChatID], update.Acked)
			s.mu.Unlock()
		}
	}
}

// rowsOf returns in how many chats messages wait for a user, from the first one on.
func rowsOf(t *testing.T, u user) (chats int) {
	t.Helper()
	var page struct {
		Rows []struct {
			First int64 `json:"first_undelivered_sequence"`
		} `json:"pending"`
	}
	u.call(t, http.MethodGet, "/pending?limit=500", nil, &page)
	for _, row := range page.Rows {
		if row.First == 1 {
			chats++
		}
	}
	return chats
}

// have reports whether all of these messages came, or all of these ticks.
func (s *socket) have(of *map[string]int64, want map[string]int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Equal(*of, want)
}

// describe says what came.
func (s *socket) describe(want map[string]int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("messages %v, ticks %v of %v", s.upTo, s.ticks, want)
}

// TestFanout_survives_the_death_of_workers: two workers (--roles worker) bring messages to their
// recipients by way of Kafka, and are killed with SIGKILL under load, one after the other,
// TIDEMARK_OUTLET_KILLS times, and every fifth time both at once. Every confirmed message reaches
// its reader, in order and once, and its tick comes. Who is away gets a pending row in each chat.
func TestFanout_survives_the_death_of_workers(t *testing.T) {
	t.Parallel() // It waits more than it works.
	broker := kafka.Start(t)
	place := kafkatest.NewPlace(t, []string{broker.Address()})
	place.CreateFanout(4)
	nodes := newFanoutNodes(t, place, []string{broker.Address()})
	gateway := nodes.node("gateway", "gateway")
	workers := []*process{nodes.node("w0", "worker"), nodes.node("w1", "worker")}
	alice := as(gateway.address, "alice")
	a, b := listen(t, alice), listen(t, as(gateway.address, "bob"))
	l := &sending{head: map[string]int64{}}
	t.Cleanup(l.stop)
	chats := 0
	// A chat for each kill: who is away gets one row in each chat, by whichever worker was alive.
	more := func() {
		chat := fmt.Sprint("c", chats)
		chats++
		alice.call(t, http.MethodPost, "/chats", map[string]any{
			"type": "group", "chat_id": chat, "member_ids": []string{"bob", "carol"},
		}, nil)
		l.begin(t, alice, chat)
	}
	for range 4 {
		more()
	}
	byKafka := func(p *process, n int) {
		before := fanouts(t, "handed_over", p)
		eventually(t, "messages go by way of Kafka to the worker",
			func() bool { return fanouts(t, "handed_over", p) >= before+n },
			func() string { return fmt.Sprint(fanouts(t, "handed_over", p), " after ", before) })
	}
	for kill := range fromEnvironment(t, "TIDEMARK_OUTLET_KILLS", 2) {
		p := workers[kill%2]
		byKafka(p, 50)
		victims := []*process{p}
		if kill%5 == 4 {
			victims = workers
		}
		for _, p := range victims {
			must(t, p.process.Kill())
			_ = p.wait()
		}
		more()
		for _, p := range victims {
			p.start()
		}
	}
	byKafka(workers[0], 1)
	l.stop()
	heads := l.heads()
	sent := int64(0)
	for _, n := range heads {
		sent += n
	}
	eventually(t, "each message reaches bob", func() bool { return b.have(&b.upTo, heads) },
		func() string { return b.describe(heads) })
	eventually(t, "each tick comes", func() bool { return a.have(&a.ticks, heads) },
		func() string { return a.describe(heads) })
	eventually(t, "carol has a row in each chat", func() bool {
		return rowsOf(t, as(gateway.address, "carol")) == chats
	}, func() string { return fmt.Sprint(rowsOf(t, as(gateway.address, "carol")), " of ", chats) })
	for _, s := range []*socket{a, b} {
		for _, fault := range s.faults {
			t.Error(fault)
		}
		for chat, first := range s.began {
			if first != 1 {
				t.Errorf("%s: %s begins at message %d", s.name, chat, first)
			}
		}
	}
	t.Logf("%d messages in %d chats came", sent, len(heads))
}

// TestFanout_finds_what_kafka_lost: a worker hangs, and the topic is deleted with the messages that
// it has not read, and created anew. The other worker notices. The reader's session finds the
// messages in the database, and messages go by way of the new topic.
func TestFanout_finds_what_kafka_lost(t *testing.T) {
	t.Parallel() // It waits more than it works.
	topics := kfake.MustCluster()
	t.Cleanup(topics.Close)
	place := kafkatest.NewPlace(t, topics.ListenAddrs())
	place.CreateFanout(4)
	n := newFanoutNodes(t, place, topics.ListenAddrs())
	gateway := n.node("gateway", "gateway")
	hangs, works := n.node("w0", "worker"), n.node("w1", "worker")
	alice := as(gateway.address, "alice")
	b := listen(t, as(gateway.address, "bob"))
	heads := map[string]int64{}
	for i := range 12 {
		chat := fmt.Sprint("c", i)
		alice.call(t, http.MethodPost, "/chats", map[string]any{
			"type": "group", "chat_id": chat, "member_ids": []string{"bob"},
		}, nil)
		heads[chat] = 0
	}
	round := func() {
		for chat := range heads {
			heads[chat]++
			alice.send(t, chat, fmt.Sprint(chat, heads[chat]))
		}
	}
	arrived := func() bool { return b.have(&b.upTo, heads) }
	shared := func() {
		t.Helper()
		first, second := fanouts(t, "handed_over", hangs), fanouts(t, "handed_over", works)
		eventually(t, "both workers hand over", func() bool {
			round()
			return fanouts(t, "handed_over", hangs) > first &&
				fanouts(t, "handed_over", works) > second
		}, func() string { return "they do not" })
		eventually(t, "all messages come", arrived, func() string { return b.describe(heads) })
	}
	shared()
	// On a busy machine Kafka may not answer in time. Then messages go without it for 5 s.
	for attempt := 1; ; attempt++ {
		must(t, hangs.process.Signal(syscall.SIGSTOP))
		for end := time.Now().Add(8 * time.Second); arrived() && time.Now().Before(end); {
			round()
			<-time.After(500 * time.Millisecond)
		}
		if !arrived() {
			break
		}
		if attempt == 3 {
			t.Fatal("no message waits in Kafka for the worker that hangs")
		}
		must(t, hangs.process.Signal(syscall.SIGCONT))
		shared()
	}
	place.Delete(".fanout")
	place.CreateFanout(4)
	eventually(t, "the lost messages come", arrived, func() string { return b.describe(heads) })
	losses := func() string { return metricOf(t, works.address, "tidemark_fanout_losses_total") }
	eventually(t, "the worker counts the loss", func() bool { return losses() == "1" }, losses)
	eventually(t, "messages go by way of the new topic", func() bool {
		before := fanouts(t, "handed_over", works)
		round()
		return fanouts(t, "handed_over", works) > before
	}, func() string { return "they do not" })
	eventually(t, "all messages come", arrived, func() string { return b.describe(heads) })
	for _, fault := range b.faults {
		t.Error(fault)
	}
}

// fanoutNodes are nodes that share a store, a Redis and a Kafka.
type fanoutNodes struct {
	*testing.T
	binary, url string
	flags       []string
}

func newFanoutNodes(t *testing.T, place *kafkatest.Place, brokers []string) *fanoutNodes {
	t.Helper()
	return &fanoutNodes{
		T: t, binary: build(t), url: postgres.Shared(t).Database(t),
		flags: []string{
			"--dev", "--redis", redis.Database(t), "--worker-timeout", "6s",
			"--fanout", "kafka:" + place.Prefix, "--kafka", "kafka://" + strings.Join(brokers, ","),
		},
	}
}

// node starts a node with one role.
func (n *fanoutNodes) node(name, role string) *process {
	n.Helper()
	p := processOf(n.T, n.binary)
	p.url, p.flags = n.url, append([]string{"--node", name, "--roles", role}, n.flags...)
	p.start()
	return p
}

// sending sends messages to chats until it is stopped.
type sending struct {
	running sync.WaitGroup
	ended   atomic.Bool
	mu      sync.Mutex
	// head is the last confirmed message of each chat.
	head map[string]int64
}

// begin sends messages to a chat, one after the other. Each one must be confirmed.
func (l *sending) begin(t *testing.T, sender user, chat string) {
	l.running.Go(func() {
		for n := int64(1); !l.ended.Load() && !t.Failed(); n++ {
			text := fmt.Sprint(chat, ":", n)
			status, answer, err := sender.try(context.Background(), http.MethodPost,
				"/chats/"+chat+"/messages",
				map[string]any{"client_message_id": text, "content": text})
			if err != nil || status >= 300 {
				t.Errorf("%s: %d %s, %v", text, status, answer, err)
				return
			}
			l.mu.Lock()
			l.head[chat] = n
			l.mu.Unlock()
			<-time.After(10 * time.Millisecond)
		}
	})
}

// stop ends the sending.
func (l *sending) stop() {
	l.ended.Store(true)
	l.running.Wait()
}

// heads returns the last confirmed message of each chat.
func (l *sending) heads() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.head)
}
