// Package trips counts the round trips to Redis of a message that crosses nodes: the cost that does
// not depend on the machine. The nodes are in one process, share one store in memory, and use a
// real Redis.
package trips

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server"
	busredis "github.com/tidemark-im/tidemark/server/bus/redis"
	registryredis "github.com/tidemark-im/tidemark/server/registry/redis"
	"github.com/tidemark-im/tidemark/storage/memory"
	service "github.com/tidemark-im/tidemark/test/services/redis"
)

// node is a core with its own connections to Redis.
type node struct {
	*server.Server
	client *redis.Client
	bus    *busredis.Bus
}

// cluster is nodes that share a Redis and a store.
type cluster struct {
	t     *testing.T
	nodes []node
	// started is the start time of the first node.
	started time.Time
}

// ttl is the life of a node's lease. It is long, so that heartbeats are few compared with what is
// counted.
const ttl = 3 * time.Minute

func start(t *testing.T, nodes int) *cluster {
	t.Helper()
	c, store, url := &cluster{t: t, started: time.Now()}, memory.New(), service.Database(t)
	for i := range nodes {
		client, err := redis.Open(redis.Config{URL: url, Timeout: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		leases, events := registryredis.New(client, "data"), busredis.New(client)
		leases.Start()
		events.Start()
		core, err := server.New(server.Config{
			Storage:         store,
			Registry:        leases,
			Nodes:           leases,
			Bus:             events,
			Node:            tidemark.NodeID(fmt.Sprintf("n%d", i)),
			Logger:          slog.New(slog.DiscardHandler),
			NodeTTL:         ttl,
			LeaseTTL:        time.Hour,
			Grace:           time.Hour,
			SessionsPerUser: 1 << 20,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := core.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := core.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			events.Stop()
			leases.Stop()
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		})
		c.nodes = append(c.nodes, node{core, client, events})
	}
	return c
}

// online opens a session of a user on a node.
func (c *cluster) online(n int, user tidemark.UserID) *server.Connection {
	c.t.Helper()
	conn, err := c.nodes[n].Open(c.t.Context(), server.OpenRequest{User: user})
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *cluster) chat(
	kind tidemark.ChatType, id tidemark.ChatID, creator tidemark.UserID, others ...tidemark.UserID,
) {
	c.t.Helper()
	if _, _, err := c.nodes[0].CreateChat(c.t.Context(), server.Caller{User: creator},
		server.CreateChatRequest{ChatID: id, Type: kind, MemberIDs: others}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) send(n int, user tidemark.UserID, chat tidemark.ChatID, key string) error {
	_, err := c.nodes[n].Send(c.t.Context(), user, tidemark.Draft{
		ChatID:          chat,
		ClientMessageID: key,
		Content:         "hello",
	})
	return err
}

// count is what all nodes have counted.
type count struct {
	trips, publications, events, received int64
	at                                    time.Time
}

func (c *cluster) count() (sum count) {
	for _, n := range c.nodes {
		sum.trips += n.client.Counters()["redis_round_trips_total"]
		bus := n.bus.Counters()
		sum.publications += bus["bus_publications_total"]
		sum.events += bus["bus_events_total"]
		sum.received += bus["bus_received_total"]
	}
	sum.at = time.Now()
	return sum
}

// heartbeats bounds the round trips that the nodes make between two counts without a request. Each
// node publishes to itself every second, and extends its leases every third of ttl, in a few round
// trips.
func (c *cluster) heartbeats(from, to time.Time) int64 {
	third := func(at time.Time) int64 { return int64(at.Sub(c.started) / (ttl / 3)) }
	perNode := int64(to.Sub(from)/time.Second) + 1 +
		4*(third(to.Add(time.Second))-third(from.Add(-time.Second)))
	return perNode * int64(len(c.nodes))
}

// spent returns what was counted while do ran, without heartbeats.
func (c *cluster) spent(do func()) count {
	before := c.count()
	do()
	after := c.count()
	return count{
		trips:        after.trips - before.trips - c.heartbeats(before.at, after.at),
		publications: after.publications - before.publications,
		events:       after.events - before.events,
		received:     after.received - before.received,
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestTrips_of_a_message_to_another_node: one round trip finds the nodes of all members, and
// another one publishes. Messages sent meanwhile share both. The same holds for the
// update that shows the other user how far the author has acknowledged by writing. A chat has at
// most ten such updates a second.
func TestTrips_of_a_message_to_another_node(t *testing.T) {
	const pairs, messages = 64, 640
	c := start(t, 2)
	for i := range pairs {
		anna, ben := tidemark.UserID(fmt.Sprintf("anna%d", i)), tidemark.UserID(fmt.Sprintf("ben%d",
			i))
		c.chat(tidemark.Direct, tidemark.ChatID(fmt.Sprintf("c%d", i)), anna, ben)
		c.online(0, anna)
		c.online(1, ben)
	}
	settle := func() { // waits until the nodes are idle
		before := c.count()
		eventually(t, "the bus is quiet", func() bool {
			last := before
			before = c.count()
			return before.events == before.received && before.events == last.events
		})
	}
	for _, tt := range []struct {
		outstanding int
		most        float64
	}{{1, 2}, {8, 2}, {64, 1}} {
		settle()
		spent := c.spent(func() {
			var next atomic.Int64
			var senders sync.WaitGroup
			for range tt.outstanding {
				senders.Go(func() {
					for i := next.Add(1) - 1; i < messages; i = next.Add(1) - 1 {
						pair := i % pairs
						err := c.send(0, tidemark.UserID(fmt.Sprintf("anna%d", pair)),
							tidemark.ChatID(fmt.Sprintf("c%d", pair)),
							fmt.Sprintf("%d-%d", tt.outstanding, i))
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			senders.Wait()
			settle()
		})
		each := float64(spent.trips) / float64(spent.events)
		t.Logf("%d outstanding: %d messages, %d updates, %d round trips, %d publications",
			tt.outstanding, messages, spent.events-messages, spent.trips, spent.publications)
		if each > tt.most {
			t.Errorf("%d outstanding: %.2f round trips for each event, want at most %v",
				tt.outstanding, each, tt.most)
		}
		if spent.events < messages {
			t.Errorf("%d events for %d messages to another node", spent.events, messages)
		}
	}
}

// TestTrips_of_messages_sent_together: messages that a client sends without waiting for answers
// share round trips, even to different chats.
func TestTrips_of_messages_sent_together(t *testing.T) {
	const chats, each, calls = 4, 8, 20
	c := start(t, 2)
	c.online(0, "anna")
	for i := range chats {
		ben := tidemark.UserID(fmt.Sprintf("ben%d", i))
		c.chat(tidemark.Direct, tidemark.ChatID(fmt.Sprintf("c%d", i)), "anna", ben)
		c.online(1, ben)
	}
	spent := c.spent(func() {
		for call := range calls {
			var requests []tidemark.Draft
			for i := range chats * each {
				requests = append(requests, tidemark.Draft{
					ChatID:          tidemark.ChatID(fmt.Sprintf("c%d", i%chats)),
					ClientMessageID: fmt.Sprintf("%d-%d", call, i),
					Content:         "hello",
				})
			}
			for _, result := range c.nodes[0].SendAll(t.Context(), "anna", requests) {
				if result.Err != nil {
					t.Error(result.Err)
				}
			}
		}
	})
	const messages = chats * each * calls
	updates := spent.events - messages
	t.Logf("%d calls with %d messages: %d updates, %d round trips, %d publications",
		calls, messages, updates, spent.trips, spent.publications)
	if spent.trips > 2*(calls+updates) {
		t.Errorf("%d round trips for %d calls and %d updates, want at most 2 for each",
			spent.trips, calls, updates)
	}
}

// TestTrips_of_a_group_message_do_not_grow_with_its_members: one publication for each other node,
// not for each member, in the two round trips.
func TestTrips_of_a_group_message_do_not_grow_with_its_members(t *testing.T) {
	const members, nodes, messages = 100, 3, 50
	c := start(t, nodes)
	users := make([]tidemark.UserID, members)
	for i := range users {
		users[i] = tidemark.UserID(fmt.Sprintf("u%d", i))
	}
	c.chat(tidemark.Group, "all", users[0], users[1:]...)
	for i, user := range users {
		c.online(i%nodes, user)
	}
	spent := c.spent(func() {
		for i := range messages {
			if err := c.send(0, users[0], "all", fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Logf("%d messages: %d round trips, %d events, %d publications",
		messages, spent.trips, spent.events, spent.publications)
	// The messages to all other nodes share one round trip.
	sent := spent.events / (nodes - 1)
	if spent.trips > 2*sent {
		t.Errorf("%d round trips for %d messages and updates, want at most 2 for each",
			spent.trips, sent)
	}
	if updates := int64(messages); sent < messages || sent > messages+updates {
		t.Errorf("%d events for %d messages to %d other nodes, want one for each and its update",
			spent.events, messages, nodes-1)
	}
}

// TestTrips_of_a_tick_to_another_node: an acknowledgement costs two more round trips if the sender
// is on another node. One finds the sender's nodes, the other publishes the update. The update of
// the author to the recipient costs the same.
func TestTrips_of_a_tick_to_another_node(t *testing.T) {
	const messages = 10
	c := start(t, 2)
	c.chat(tidemark.Direct, "c", "anna", "ben")
	anna, ben := c.online(0, "anna"), c.online(1, "ben")
	spent := c.spent(func() {
		for n := range tidemark.Sequence(messages) {
			if err := c.send(0, "anna", "c", fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
			await(t, ben, tidemark.EventMessage)
			ben.Ack(server.Ack{Chat: "c", Acked: n + 1})
			await(t, anna, tidemark.EventStatus)
		}
	})
	t.Logf("%d messages with their ticks: %d round trips, %d events",
		messages, spent.trips, spent.events)
	if spent.trips > 2*spent.events || spent.events > 3*messages {
		t.Errorf("%d round trips and %d events for %d messages and their ticks, want at most 2 "+
			"for each of 3", spent.trips, spent.events, messages)
	}
}

// await reads events until one of a type comes.
func await(t *testing.T, c *server.Connection, kind tidemark.EventType) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		events, err := c.Next(ctx, nil, true)
		if err != nil {
			t.Fatalf("waiting for %s: %v", kind, err)
		}
		for _, e := range events {
			if e.Type == kind {
				return
			}
		}
	}
}
