package cost

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/reach/webhook/webhooktest"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// told is a store whose messages are told to outlets.
type told struct {
	store    storage.Store
	receiver *webhooktest.Receiver
	// postmaster is the process of Postgres, or 0. statements counts those of the database.
	postmaster int
	statements func() int
	times      reach.Times
	outlets    []storage.OutletID
	chats      []tidemark.ChatID
}

// hasty are times by which tests need not wait for long.
var hasty = reach.Times{
	Poll: 100 * time.Millisecond, Trust: 500 * time.Millisecond, Dead: 700 * time.Millisecond,
	Linger: 200 * time.Millisecond,
}

// openTold opens an empty database.
func openTold(t *testing.T, name string, r *webhooktest.Receiver, times reach.Times) *told {
	t.Helper()
	w := &told{receiver: r, times: times}
	if name == "Postgres" {
		server := service.Shared(t)
		server.Exec(t, "postgres", "CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
		url := server.Database(t)
		w.store, w.postmaster = openStore(t, url), server.PID()
		meter, err := pgx.Connect(t.Context(), server.URL("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = meter.Close(context.Background()) })
		w.statements = func() int { return statementsOf(t, meter, url) }
		return w
	}
	s, err := sqlite.Open(t.Context(),
		sqlite.Config{Path: filepath.Join(t.TempDir(), "tidemark.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w.store = s
	return w
}

// run runs an engine until the returned function is called.
func (w *told) run(t *testing.T, times reach.Times) (e *reach.Engine, stop func()) {
	t.Helper()
	e = engine(t, w.receiver, w.store, times)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	wait.Until(t, "the outlets are open", func() bool {
		return e.Counters()["outlets"] == int64(len(w.outlets))
	})
	return e, stop
}

// create creates outlets of a kind, and waits until they are active.
func (w *told) create(t *testing.T, kind string, n int) {
	t.Helper()
	if n == 0 {
		return
	}
	e, stop := w.run(t, hasty)
	defer stop()
	for i := range n {
		made, err := e.Create(t.Context(), reach.NewOutlet{
			Kind: kind, URL: fmt.Sprint(w.receiver.URL, "/", i), Batch: true,
			Events: []outlet.Type{outlet.MessagePersisted},
		})
		if err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the outlet is active", func() bool {
			info, err := e.Outlet(t.Context(), made.ID)
			return err == nil && info.State == reach.Active
		})
		w.outlets = append(w.outlets, made.ID)
	}
	w.settled(t, e, 0)
}

// settled waits until all outlets have accepted some messages each, and no chat owes them anything.
func (w *told) settled(t *testing.T, e *reach.Engine, messages uint64) {
	t.Helper()
	if len(w.outlets) == 0 {
		return
	}
	q := storage.BacklogQuery{Limit: 1}
	for shard := range storage.Shards {
		q.Shards = append(q.Shards, shard)
	}
	last := time.Time{}
	wait.For(t, "all is told and settled", func() (int, bool) {
		if time.Since(last) < 50*time.Millisecond {
			return 0, false
		}
		last = time.Now()
		accepted := uint64(0)
		for _, id := range w.outlets {
			info, err := e.Outlet(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			accepted += info.Accepted
		}
		if accepted < messages*uint64(len(w.outlets)) {
			return int(accepted), false
		}
		found, _, err := w.store.Backlogs(t.Context(), q)
		return int(accepted), err == nil && len(found) == 0
	})
}

// cpu returns the CPU time of this process and of Postgres.
func (w *told) cpu(t *testing.T) time.Duration {
	t.Helper()
	if w.postmaster == 0 {
		return ownTime(t)
	}
	return ownTime(t) + treeTime(t, w.postmaster)
}

// spent is what was used up to a time: microseconds of CPU, and statements of Postgres.
type spent struct {
	at                time.Time
	micro, statements float64
}

func (w *told) spent(t *testing.T) spent {
	t.Helper()
	s := spent{at: time.Now(), micro: float64(w.cpu(t)) / float64(time.Microsecond)}
	if w.statements != nil {
		s.statements = float64(w.statements())
	}
	return s
}

// since returns what was used since an earlier time.
func (s spent) since(before spent) spent {
	return spent{s.at, s.micro - before.micro, s.statements - before.statements}
}

// idle returns what the engine needs in a period while nothing is sent.
func (w *told) idle(t *testing.T, e *reach.Engine, period time.Duration) spent {
	t.Helper()
	before := w.spent(t)
	for end := before.at.Add(period); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		w.settled(t, e, 0)
	}
	return w.spent(t).since(before)
}

// message returns what a message takes, if each chat gets a burst of some, until the outlets have
// accepted them and everything is settled. What the engine needs without messages in that time is
// not in it.
func (w *told) message(t *testing.T, burst int) spent {
	t.Helper()
	e, stop := w.run(t, w.times)
	defer stop()
	sending := e.Hinting(w.store)
	began := time.Now()
	idle := w.idle(t, e, 2*w.times.Linger)
	period := float64(idle.at.Sub(began))
	before := w.spent(t)
	var next atomic.Int64
	var group sync.WaitGroup
	for range senders {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(w.chats); i = int(next.Add(1)) - 1 {
				for range burst {
					d := draftFor(w.chats[i], "anna")
					if _, err := storage.AppendOne(t.Context(), sending, d); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	group.Wait()
	messages := len(w.chats) * burst
	w.settled(t, e, uint64(messages))
	used := w.spent(t).since(before)
	share := float64(used.at.Sub(before.at)) / period
	used.micro = (used.micro - share*idle.micro) / float64(messages)
	used.statements = (used.statements - share*idle.statements) / float64(messages)
	return used
}

// TestOutlets_cost_of_a_message measures on each SQL store what outlets add to a message, in
// alternating runs. The yardstick is the message without outlets of the same round. The outlets are
// webhooks whose receiver is another process, or lead nowhere. TIDEMARK_COST_CHATS is how many
// chats get messages in each run, and TIDEMARK_COST_ROUNDS the number of runs of each.
func TestOutlets_cost_of_a_message(t *testing.T) {
	chats, rounds := number(t, "TIDEMARK_COST_CHATS", 20), number(t, "TIDEMARK_COST_ROUNDS", 1)
	times := hasty
	if chats >= 1000 {
		times = reach.Times{Linger: 2 * time.Second} // those of the program
	}
	r := webhooktest.Start(t)
	for _, name := range []string{"Postgres", "SQLite"} {
		t.Run(name, func(t *testing.T) {
			if chats < 1000 {
				t.Parallel() // It is too short to measure anything, and waits more than it works.
			}
			outletCosts(t, name, r, times, chats, rounds)
		})
	}
}

func outletCosts(
	t *testing.T, name string, r *webhooktest.Receiver, times reach.Times, chats, rounds int,
) {
	variants := []struct {
		name, kind string
		outlets    int
	}{
		{"none", "", 0}, {"one that leads nowhere", "nothing", 1}, {"one", "webhook", 1},
		{"three", "webhook", 3},
	}
	worlds := make([]*told, len(variants))
	for i, v := range variants {
		w := openTold(t, name, r, times)
		w.chats = openedChats(t, w.store, tidemark.Direct, chats)
		w.create(t, v.kind, v.outlets)
		worlds[i] = w
	}
	for _, burst := range []int{1, 10} {
		costs := make([][]float64, len(variants))
		ratios := make([][]float64, len(variants))
		statements := make([][]float64, len(variants))
		for range rounds {
			for i, w := range worlds {
				cost := w.message(t, burst)
				costs[i] = append(costs[i], cost.micro)
				ratios[i] = append(ratios[i], cost.micro/costs[0][len(costs[0])-1])
				statements[i] = append(statements[i], cost.statements)
			}
		}
		for i, v := range variants {
			t.Logf("bursts of %d, outlets: %s: least %.0f, median %.0f µs a message; %.1f times a "+
				"message without outlets; %.2f statements (medians of %d)", burst, v.name,
				slices.Min(costs[i]), median(costs[i]), median(ratios[i]), median(statements[i]),
				rounds)
		}
	}
}
