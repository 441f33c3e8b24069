package requests

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/server/bus/local"
	registry "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestTurns_table meters on DynamoDB what a message costs between two users who write to each other
// in turn, with all that follows from it. It compares that with the table of request-costs.md.
func TestTurns_table(t *testing.T) {
	lines := []string{
		"| two users, one by one | calls for a message | read units | write units |",
		"|---|---|---|---|",
	}
	for _, nodes := range []int{1, 2} {
		cost := turns(t, nodes)
		name := map[int]string{1: "on one node", 2: "each on a node of their own"}[nodes]
		lines = append(lines, fmt.Sprintf("| %s | %s | %s | %s |",
			name, cost.kinds(), figure(cost.reads), figure(cost.writes)))
	}
	compare(t, "turns", lines)
}

// A side is one of two users, with their node and their connection to it.
type side struct {
	user tidemark.UserID
	node *server.Server
	conn *server.Connection
}

// turns returns what a message costs after the first ones. Each is sent with what its author has
// seen. Its receiver acknowledges it, and then reads it.
func turns(t *testing.T, nodes int) spent {
	t.Helper()
	for attempt := 1; ; attempt++ {
		// If a node was late with a heartbeat, the epoch rose, and all nodes read again.
		if cost, undisturbed := turnsOnce(t, nodes); undisturbed {
			return cost
		}
		if attempt == 5 {
			t.Fatal("in each attempt a node was late with its heartbeat")
		}
	}
}

func turnsOnce(t *testing.T, nodes int) (cost spent, undisturbed bool) {
	t.Helper()
	const warm, messages = 8, 20
	// A new node that is not alone reads rosters again until it has been known for ttl. Then it
	// keeps the messages that follow one of its own.
	const ttl = 3 * time.Second
	const trusted = 3 * ttl
	began := time.Now()
	b := openDynamoDB(t)
	reg, hints := registry.New(), local.New()
	var all []*server.Server
	for i := range nodes {
		var s storage.Store = b
		if i > 0 {
			s = b.beside()
		}
		node, err := server.New(server.Config{
			Storage: s, Registry: reg, Nodes: reg, Bus: hints,
			Node:        tidemark.NodeID(fmt.Sprint("n", i)),
			Logger:      slog.New(slog.DiscardHandler),
			AckInterval: time.Millisecond, Grace: time.Hour, NodeTTL: ttl,
		})
		if err == nil {
			err = node.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := node.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		all = append(all, node)
	}
	chat := tidemark.ChatID(long("turns"))
	sides := [2]side{
		{user: userNo("author", 0), node: all[0]}, {user: userNo("other", 0), node: all[nodes-1]},
	}
	if err := create(t, b, chat, tidemark.Direct,
		[]tidemark.UserID{sides[0].user, sides[1].user}); err != nil {
		t.Fatal(err)
	}
	for i := range sides {
		sides[i].conn = opened(t, sides[i].node, sides[i].user, false, 0)
	}
	counted := func(name string) (n int64) {
		for _, node := range all {
			n += node.Counters()[name]
		}
		return n
	}
	moved := func() int64 { return counted("advances_moved_total") }
	var epochs int64
	last := tidemark.Sequence(2)
	for n := range warm + messages {
		if n == warm-2 {
			wait.Until(t, "caches are trusted", func() bool { return time.Since(began) > trusted })
		}
		if n == warm {
			b.take()
			epochs = counted("epochs_total")
		}
		from, to, before := sides[n%2], sides[(n+1)%2], moved()
		d := draft(chat, from.user, 3+n)
		d.Seen = tidemark.SeenThrough(last)
		sent, err := from.node.Send(t.Context(), from.user, d)
		if err != nil {
			t.Fatal(err)
		}
		last = sent.Message.Sequence
		events(t, to.conn, map[tidemark.EventType]int{tidemark.EventMessage: 1})
		for i, ack := range []server.Ack{{Chat: chat, Acked: last}, {Chat: chat, Read: last}} {
			to.conn.Ack(ack)
			wait.Until(t, "the watermarks of both follow", func() bool {
				return moved() >= before+2+int64(i)
			})
		}
	}
	cost = b.take()
	if counted("epochs_total") != epochs {
		return cost, false
	}
	for kind := range cost.calls {
		if cost.calls[kind]%messages != 0 {
			t.Errorf("%d messages took %d %s", messages, cost.calls[kind], kind)
		}
		cost.calls[kind] /= messages
	}
	cost.reads, cost.writes = cost.reads/messages, cost.writes/messages
	return cost, true
}
