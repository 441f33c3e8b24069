package requests

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

// TestOutlets_table meters on DynamoDB what outlets add to messages, and compares the units of
// writes with the table of request-costs.md. A burst is several messages of one chat, until it is
// quiet and settled. What processes poll is not in it: it does not depend on the number of
// messages. What is read depends on the time that it takes, and is only logged.
func TestOutlets_table(t *testing.T) {
	rows := []struct {
		name           string
		outlets, burst int
		down           bool
	}{
		{"none", 0, 1, false}, {"none", 0, 10, false},
		{"one", 1, 1, false}, {"one", 1, 10, false},
		{"three", 3, 1, false}, {"three", 3, 10, false},
		{"one that is down", 1, 1, true}, {"one that is down", 1, 10, true},
	}
	costs := make([]spent, len(rows))
	t.Run("rows", func(t *testing.T) {
		for i, row := range rows {
			t.Run(fmt.Sprint(row.name, " ", row.burst), func(t *testing.T) {
				t.Parallel() // It waits more than it works.
				for slow := true; slow; {
					costs[i], slow = burst(t, row.outlets, row.burst, row.down)
				}
			})
		}
	})
	lines := []string{"| outlets | messages of a burst | write units |", "|---|---|---|"}
	for i, row := range rows {
		writes := costs[i].writes
		t.Logf("%s, %d messages: %s, %s read units, %s write units", row.name, row.burst,
			costs[i].kinds(), figure(costs[i].reads), figure(writes))
		if row.down {
			// Now and then a backlog is opened twice.
			if least := float64(6*row.burst + 3 + 1); writes < least || writes > least+2 {
				t.Errorf("%s, %d messages: %s write units", row.name, row.burst, figure(writes))
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("| %s | %d | %s |", row.name, row.burst,
			figure(writes)))
	}
	compare(t, "outlets", lines)
}

// bursts is in how many chats there is a burst.
const bursts = 10

// linger is how long a chat is quiet before it is settled.
const linger = 5 * time.Second

// burst returns what a burst costs with some outlets, which may refuse everything. It is slow if a
// chat may have been settled between two of its messages, because the machine was busy. Then it was
// not one burst.
func burst(t *testing.T, outlets, messages int, down bool) (cost spent, slow bool) {
	t.Helper()
	b := openDynamoDB(t)
	chat := func(i int) tidemark.ChatID {
		return tidemark.ChatID(long(fmt.Sprintf("burst-%d", i)))
	}
	for i := range bursts {
		members := []tidemark.UserID{userNo("author", 0), userNo("other", i)}
		if err := create(t, b, chat(i), tidemark.Direct, members); err != nil {
			t.Fatal(err)
		}
	}
	w := &worker{backend: b, plain: b.again(), down: down}
	store := w.run(t, outlets, nil)
	b.take()
	for i := range bursts {
		began := time.Now()
		for n := range messages {
			d := draft(chat(i), userNo("author", 0), 100+n)
			if _, err := storage.AppendOne(t.Context(), store, d); err != nil {
				t.Fatal(err)
			}
		}
		slow = slow || time.Since(began) > linger/2
	}
	w.quiet(t, outlets, bursts*messages)
	if outlets > 0 {
		w.stop() // What its last call costs is counted now.
	}
	cost = b.take()
	for kind, n := range cost.calls {
		if cost.calls[kind] = (n + bursts/2) / bursts; cost.calls[kind] == 0 {
			delete(cost.calls, kind)
		}
	}
	cost.reads, cost.writes = cost.reads/bursts, cost.writes/bursts
	return cost, slow
}

// worker is an engine on a backend. Its polls go to a store without a meter.
type worker struct {
	backend
	plain storage.Store
	down  bool
	// accepted counts what outlets accepted, and refused what they refused.
	accepted, refused atomic.Int64
	// stop stops the engine, and returns when its calls have ended.
	stop func()
}

// Documents, PutDocument and Backlogs without a chat are polls.
func (w *worker) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	return w.plain.Documents(ctx, kind, after, limit)
}

func (w *worker) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	return w.plain.PutDocument(ctx, d)
}

func (w *worker) Backlogs(
	ctx context.Context, q storage.BacklogQuery,
) ([]storage.Backlog, bool, error) {
	if len(q.Chats) == 0 {
		return w.plain.Backlogs(ctx, q)
	}
	return w.backend.Backlogs(ctx, q)
}

// Deliver, Limits and Close are those of its outlets.
func (w *worker) Deliver(_ context.Context, events []outlet.Event) (int, *outlet.Refusal) {
	if w.down {
		w.refused.Add(1)
		return 0, &outlet.Refusal{Detail: "it is down"}
	}
	w.accepted.Add(int64(len(events)))
	return len(events), nil
}

func (*worker) Limits() outlet.Limits { return outlet.Limits{Events: 100, Bytes: 1 << 20} }

// receiver is an outlet of the worker.
type receiver struct{ *worker }

func (receiver) Close() error { return nil }

// run runs an engine with outlets, and returns the store by which messages are sent.
func (w *worker) run(t *testing.T, outlets int, events []outlet.Type) storage.Store {
	t.Helper()
	if outlets == 0 {
		return w.backend
	}
	engine := reach.New(reach.Config{
		Store: w, Log: slog.New(slog.DiscardHandler),
		Kinds: map[string]reach.Kind{"receiver": {
			Open: func(*reach.Spec, []string) (outlet.Client, error) { return receiver{w}, nil },
		}},
		Times: reach.Times{
			Poll: 300 * time.Millisecond, Trust: 10 * time.Second, Dead: time.Second,
			Linger: linger, Save: time.Minute, Quiet: 10 * time.Minute,
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { engine.Run(ctx) })
	w.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(w.stop)
	for n := range outlets {
		created, err := engine.Create(t.Context(), reach.NewOutlet{
			ID: storage.OutletID(fmt.Sprint("o", n)), Kind: "receiver",
			URL: strings.Repeat("x", n+1), Events: events,
		})
		if err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the outlet is active", func() bool {
			info, err := engine.Outlet(t.Context(), created.ID)
			return err == nil && info.State == reach.Active
		})
	}
	w.settled(t)
	return engine.Hinting(w.backend)
}

// quiet waits until the messages were delivered or refused, and settled for all.
func (w *worker) quiet(t *testing.T, outlets, messages int) {
	t.Helper()
	if outlets == 0 {
		return
	}
	if !w.down {
		wait.Until(t, "all messages are delivered", func() bool {
			return w.accepted.Load() >= int64(outlets*messages)
		})
	}
	w.settled(t)
}

// settled waits until no chat owes anything to all outlets.
func (w *worker) settled(t *testing.T) {
	t.Helper()
	q := storage.BacklogQuery{Limit: 1}
	for shard := range storage.Shards {
		q.Shards = append(q.Shards, shard)
	}
	wait.Until(t, "all is settled", func() bool {
		<-time.After(50 * time.Millisecond) // each look takes a query for each shard
		found, _, err := w.plain.Backlogs(t.Context(), q)
		return err == nil && len(found) == 0
	})
}
