package test

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
	"github.com/tidemark-im/tidemark/test/wait"
)

// redisFaults is three nodes on one database, whose Redis has faults. Clients have streams on all
// of the nodes, and some of them move. Senders use each node in turn.
//
// During every fault sends are confirmed as usual, /readyz is green and streams stay open. Nothing
// is lost or stored twice, and no watermark falls (see crashTest).
type redisFaults struct {
	*crashTest
	// healed is the longest that a device waited for its messages after a fault. prompt is the
	// longest for one sent after it.
	healed, prompt time.Duration
	during         int // messages confirmed during faults
}

func newRedisFaults(t *testing.T, url string) *redisFaults {
	t.Helper()
	binary, database := build(t), postgres.Shared(t).Database(t)
	var nodes []*process
	for n := range 3 {
		p := processOf(t, binary)
		p.url = database
		p.flags = append(p.flags, "--redis", url, "--node", fmt.Sprint("n", n))
		nodes = append(nodes, p)
	}
	f := &redisFaults{crashTest: newCrashTest(t, nodes...)}
	// A look-up postponed by the fault notifies dora's session of what was stored then (R_RELOOK,
	// R_MIN).
	f.again = true
	f.opened()
	t.Logf("seed %d", f.seed)
	return f
}

// opened waits until every device has its stream.
func (f *redisFaults) opened() {
	f.t.Helper()
	for _, d := range f.devices {
		until(f.t, d.name+" has a stream", d.caughtUp, func() string { return "" })
	}
}

// fault sends before begin starts a fault, and during it, until a moment before end. Some clients
// move during it. Each device with a stream then gets all messages, without another send.
func (f *redisFaults) fault(run int, begin, end func()) {
	f.t.Helper()
	opens := f.staying()
	f.load(run, func() {
		before := f.confirmations()
		begin()
		most := 600
		if run%5 == 4 {
			most = 3_000 // longer than it takes until a node misses its lease
		}
		<-time.After(time.Duration(f.random.IntN(most)) * time.Millisecond)
		for _, d := range f.moving {
			d.cut()
		}
		<-time.After(time.Duration(f.random.IntN(most)) * time.Millisecond)
		f.green()
		f.ending.Store(true)
		f.during += f.confirmations() - before
	})
	end()
	f.healed = max(f.healed, f.whole())
	f.check()
	if after := f.staying(); f.t.Failed() || after != opens {
		f.t.Fatalf("run %d (seed %d); streams of those that stay were opened %d times, and %d "+
			"before", run, f.seed, after, opens)
	}
	f.promptly(run)
}

// whole waits until all devices have everything, and returns how long that took.
func (f *redisFaults) whole() time.Duration {
	f.t.Helper()
	began, heads := time.Now(), map[string]int64{}
	var list struct {
		Chats []struct {
			ChatID string `json:"chat_id"`
			Head   int64  `json:"head_sequence"`
		}
	}
	f.as("bob").call(f.t, http.MethodGet, "/chats", nil, &list)
	for _, chat := range list.Chats {
		heads[chat.ChatID] = chat.Head
	}
	for _, d := range f.devices {
		until(f.t, d.name+" has everything",
			func() bool { return maps.Equal(d.heads(), heads) }, func() string {
				return fmt.Sprintf("%v of %v by %s at %v",
					d.heads(), heads, d.how(), time.Since(began))
			})
	}
	return time.Since(began)
}

// promptly sends one message in each chat, until messages reach all devices at once again. That is
// so when all nodes have found each other, which they do as soon as they are connected to Redis.
func (f *redisFaults) promptly(run int) {
	f.t.Helper()
	const bound = 5 * time.Second // a busy machine may need more than one attempt
	for n, began := 0, time.Now(); ; n++ {
		for _, chat := range killChats {
			f.send(f.t.Context(), chat, fmt.Sprintf("r%d-after%d", run, n))
		}
		took := f.whole()
		if took < bound {
			f.prompt = max(f.prompt, took)
			return
		}
		if n >= 3 && time.Since(began) > 4*wait.Hang {
			f.t.Fatalf("run %d (seed %d): long after the fault a message still takes %v",
				run, f.seed, took)
		}
	}
}

// green checks /readyz of all nodes.
func (f *redisFaults) green() {
	for _, node := range f.nodes {
		ready := "http://" + node.address + "/readyz"
		if err := waitReady(f.t.Context(), ready, node.ended); err != nil {
			f.t.Error(err)
		}
	}
}

// staying counts how often the streams of the devices that do not move were opened.
func (f *redisFaults) staying() (opens int) {
	for _, d := range f.devices {
		if len(d.elsewhere) > 0 {
			continue
		}
		d.mu.Lock()
		opens += d.opens
		d.mu.Unlock()
	}
	return opens
}

// done ends the nodes, and logs what happened.
func (f *redisFaults) done(what string) {
	f.t.Helper()
	f.stop()
	f.t.Logf("%s: %d messages confirmed, %d of them during faults, %d over a WebSocket; lost %d, "+
		"twice %d, gaps %d, watermarks back %d; %d sends refused; the slowest answer took %v; "+
		"all devices were complete %v after a fault, and had a message in %v after that; "+
		"the offline user got %d messages",
		what, len(f.confirmed), f.during, f.overSocket, f.lost, f.twice, f.gaps, f.back,
		f.unanswered, f.slowest.Round(time.Millisecond),
		f.healed.Round(time.Millisecond), f.prompt.Round(time.Millisecond), f.caughtUp)
	if f.unanswered > 0 || len(f.reasons) > 0 {
		f.t.Errorf("%d sends were refused: %v %v", f.unanswered, f.reasons, f.why)
	}
	if bound := wait.Hang; f.slowest > bound {
		f.t.Errorf("the slowest answer took %v, want at most %v", f.slowest, bound)
	}
	if f.during == 0 || f.caughtUp == 0 || f.overSocket == 0 {
		f.t.Error("something of this did not happen: the runs show nothing")
	}
}

// TestFault_Redis_killed kills Redis with SIGKILL under load, TIDEMARK_KILL_RUNS times (3 if it is
// not set). It comes back empty, or with the data of an earlier moment.
func TestFault_Redis_killed(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := redis.Start(t)
	f := newRedisFaults(t, server.URL())
	runs, old := killRuns(t), 0
	for run := range runs {
		again := server.RunEmpty
		if run%2 == 1 {
			// The Redis that comes back does not know what happens from here on: sessions begin,
			// end and move in each run.
			server.Do(t, "SAVE")
			again = server.Run
			old++
		}
		f.fault(run, func() { server.Kill(t) }, func() { again(t) })
	}
	f.done(fmt.Sprintf("%d kills of Redis, which came back with old data %d times", runs, old))
}

func TestFault_Redis_emptied(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := redis.Start(t)
	f := newRedisFaults(t, server.URL())
	for run := range 2 {
		f.fault(run, func() { server.Do(t, "FLUSHALL") }, func() {})
	}
	f.done("FLUSHALL")
}

// TestFault_Redis_hangs stops Redis with SIGSTOP under load for TIDEMARK_HANG_SECONDS (3 if it is
// not set). Connections stay open, and no command is answered.
func TestFault_Redis_hangs(t *testing.T) {
	t.Parallel() // It waits more than it works.
	server := redis.Start(t)
	f := newRedisFaults(t, server.URL())
	seconds := hangSeconds(t)
	f.fault(0, func() {
		server.Freeze(t)
		<-time.After(time.Duration(seconds) * time.Second)
	}, func() { server.Thaw(t) })
	f.done(fmt.Sprintf("stopped for %d s and more", seconds))
}

// TestFault_Redis_fails_over_to_a_stale_replica: Sentinel promotes a replica that lacks the
// master's last second or two: acquired and released leases, stored and used proofs.
func TestFault_Redis_fails_over_to_a_stale_replica(t *testing.T) {
	t.Parallel() // It waits more than it works.
	w := redis.StartSentinel(t)
	f := newRedisFaults(t, w.URL())
	for run := range 2 {
		f.fault(run, func() { stale(t, f, &w.Pair) }, func() { w.Promoted(t) })
	}
	f.done("2 fail-overs")
}

// TestFault_Redis_shard_fails_over does the same in a cluster, first for the shard that knows the
// nodes, then for that of a user.
func TestFault_Redis_shard_fails_over(t *testing.T) {
	t.Parallel() // It waits more than it works.
	c := redis.StartCluster(t)
	f := newRedisFaults(t, c.URL())
	for run, key := range []string{"{tidemark}", "ws:bob"} {
		shard := c.Shard(t, key)
		f.fault(run, func() { stale(t, f, shard) }, func() { c.Promoted(t, shard) })
	}
	f.done("2 shards failed over")
}

// stale detaches the replica, calls during, and kills the master.
func stale(t *testing.T, f *redisFaults, pair *redis.Pair) {
	pair.Detach(t)
	for _, d := range f.moving {
		d.cut()
	}
	<-time.After(100 * time.Millisecond)
	pair.Master.Kill(t)
}
