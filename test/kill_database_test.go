package test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/wait"
)

// database is a server's database, in a process of its own.
type database interface {
	Kill(t testing.TB)
	Run(t testing.TB)
	Freeze(t testing.TB)
	Thaw(t testing.TB)
}

func TestKill_Postgres_confirmed_is_durable(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := postgres.Start(t)
	killDatabase(t, server, server.Database(t))
}

func TestKill_DynamoDB_confirmed_is_durable(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := dynamodb.Start(t)
	killDatabase(t, server, server.Store(t))
}

// killDatabase kills all processes of the database with SIGKILL under load, TIDEMARK_KILL_RUNS
// times (3 if it is not set). Every fourth time it also kills the server. Then it starts them
// again.
//
// The promises of TestKill_confirmed_is_durable hold. Meanwhile callers get 503 with a reason in
// bounded time, and /readyz is red. Both end by themselves.
func killDatabase(t *testing.T, database database, url string) {
	t.Helper()
	const bound = wait.Hang // the 10 s of a request, and what a slow machine adds
	runs := killRuns(t)
	p := newProcess(t)
	p.url = url
	k := newCrashTest(t, p)
	t.Logf("%d runs with TIDEMARK_SEED=%d", runs, k.seed)
	red, restarts := 0, 0
	for run := range runs {
		both, refused := run%4 == 3, k.refusals()
		k.load(run, func() {
			database.Kill(t)
			if both {
				must(t, k.server.process.Kill())
				return
			}
			if run%10 == 0 {
				// Longer than any caller waits.
				until(t, "/readyz is red, and callers are refused", func() bool {
					return k.ready() == http.StatusServiceUnavailable && k.refusals() > refused
				}, func() string { return "" })
				red++
			}
			database.Run(t)
			until(t, "/readyz is green again", func() bool { return k.ready() == http.StatusOK },
				func() string { return k.server.log.String() })
			k.goesOn()
		})
		if both {
			restarts++
			k.server.wait()
			database.Run(t)
			k.server.start()
		}
		if k.refusals() > refused {
			k.quiet()
		}
		k.check()
		if t.Failed() {
			t.Fatalf("run %d (TIDEMARK_SEED=%d)", run, k.seed)
		}
	}
	k.stop()
	t.Logf("%d kills of the database, %d of them with the server: %d messages confirmed, %d of "+
		"them over a WebSocket; lost %d, twice %d, gaps %d, watermarks back %d; %d sends without "+
		"an answer or refused; "+
		"the slowest answer took %v; %d times red; %d watermarks reported; "+
		"the offline user got %d messages; reasons: %s",
		runs, restarts, len(k.confirmed), k.overSocket, k.lost, k.twice, k.gaps, k.back,
		k.unanswered, k.slowest.Round(time.Millisecond), red, k.watermarks, k.caughtUp,
		strings.Join(slices.Sorted(maps.Keys(k.reasons)), "; "))
	if k.slowest > bound {
		t.Errorf("the slowest answer took %v, want at most %v", k.slowest, bound)
	}
	if k.overSocket == 0 || k.overSocket == len(k.confirmed) || len(k.reasons) == 0 ||
		k.watermarks == 0 || k.caughtUp == 0 || red == 0 || runs > 3 && restarts == 0 {
		t.Error("something of this did not happen: the runs show nothing")
	}
}

func TestKill_stopped_Postgres_goes_on(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := postgres.Start(t)
	stopDatabase(t, server, server.Database(t))
}

func TestKill_stopped_DynamoDB_goes_on(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := dynamodb.Start(t)
	stopDatabase(t, server, server.Store(t))
}

// stopDatabase stops all processes of the database with SIGSTOP under load for
// TIDEMARK_HANG_SECONDS (3 if it is not set). Connections stay open, and no call is answered.
func stopDatabase(t *testing.T, database database, url string) {
	t.Helper()
	seconds := hangSeconds(t)
	p := newProcess(t)
	p.url = url
	k := newCrashTest(t, p)
	k.load(0, func() {
		database.Freeze(t)
		<-time.After(time.Duration(seconds) * time.Second)
		status := k.ready()
		database.Thaw(t)
		if status != http.StatusServiceUnavailable {
			t.Errorf("/readyz says %d while the database hangs", status)
		}
		until(t, "/readyz is green again", func() bool { return k.ready() == http.StatusOK },
			func() string { return k.server.log.String() })
		k.goesOn()
	})
	k.quiet()
	k.check()
	k.stop()
	t.Logf("stopped for %d s: %d messages confirmed, lost %d, twice %d, gaps %d, "+
		"watermarks back %d; the slowest answer took %v", seconds, len(k.confirmed),
		k.lost, k.twice, k.gaps, k.back, k.slowest.Round(time.Millisecond))
	if least := time.Duration(min(seconds, 5)-1) * time.Second; k.slowest < least {
		t.Errorf("the slowest answer took %v: nothing hung", k.slowest)
	}
}

// quiet waits until nothing more is stored. The server resolves what it had to refuse, even if no
// client sends it again.
func (k *crashTest) quiet() {
	k.t.Helper()
	var heads map[string]int64
	since := time.Now()
	until(k.t, "nothing is stored for a second", func() bool {
		<-time.After(100 * time.Millisecond) // it reads everything
		now, _ := k.stored()
		if !maps.Equal(now, heads) {
			heads, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	}, func() string { return "" })
}

// refusals returns how often callers were answered 503.
func (k *crashTest) refusals() (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, count := range k.reasons {
		n += count
	}
	return n
}

// ready asks /readyz; 0 means that there was no answer.
func (k *crashTest) ready() int {
	response, err := http.Get("http://" + k.server.address + "/readyz")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
