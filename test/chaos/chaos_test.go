// Package chaos runs several nodes as processes, with the services that they use and hundreds of
// clients. It injects the faults of docs/faults.md and docs/cluster.md at random. The checker
// compares what each client sent and received, and the database, with the promises of delivery.md
// §5.
package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
	"github.com/tidemark-im/tidemark/test/chaos/client"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

const (
	// warmUp is how long the clients run before the first fault. A session that began a chat too
	// late has as long again to go back.
	warmUp = 5 * time.Second
	// afterKill is how long clients have to reconnect after a node was killed, before the next
	// fault.
	afterKill = 5 * time.Second
	// completeWithin bounds the time from the last fault until each device has every message,
	// although no other message is sent.
	completeWithin = 20 * time.Second
	// noticedWithin bounds how long a message waits. It holds for every fault of Redis, and for a
	// chat that gets no other message. If Redis does not answer one node for longer than nodeLease,
	// it holds from the end of that.
	noticedWithin = 20 * time.Second
	// nodeLease is the life of a node's lease (delivery.md §4, Heartbeat).
	nodeLease = 9 * time.Second
	// recoveredWithin bounds how long a client whose node was killed takes to be complete after it
	// reconnects. It holds for 99 % of them.
	recoveredWithin = 3 * time.Second
)

func TestChaos(t *testing.T) {
	seconds := number(t, "TIDEMARK_CHAOS_SECONDS", 60)
	if direct() || number(t, "TIDEMARK_CHAOS_NODES", 3) == 1 {
		chaos(t, nil, seconds) // these need no Redis
		return
	}
	chaos(t, single{redis.Start(t)}, seconds)
}

// TestChaos_failover runs with Redis behind Sentinel, for half of the time.
func TestChaos_failover(t *testing.T) {
	if direct() {
		return // without Redis nothing fails over
	}
	service := watched{redis.StartSentinel(t)}
	service.open(t)
	chaos(t, service, number(t, "TIDEMARK_CHAOS_SECONDS", 60)/2)
}

func chaos(t *testing.T, service redisService, seconds int) {
	b := newTestbed(t, service, seconds)
	random := rand.New(rand.NewPCG(b.seed, 1))
	b.create(random)
	// More would need all of the CPU, and then a wait shows the machine.
	devices := min(240, 80*runtime.NumCPU())
	disconnect := b.connect(random, number(t, "TIDEMARK_CHAOS_CLIENTS", devices))
	b.await("all devices are connected", func() string {
		for _, d := range b.devices[:len(b.devices)-readers] {
			if d.Log.Counts().Opens == 0 {
				return d.Log.Name
			}
		}
		return ""
	})
	before := b.disturbances()
	stop := b.send()
	pause(b.ctx, warmUp)
	now := b.disturbances()
	for end := time.Now().Add(warmUp); now == before && b.ledger.Late() > 0 &&
		time.Now().Before(end); now = b.disturbances() {
		pause(b.ctx, 20*time.Millisecond)
	}
	if now != before {
		t.Logf("the machine has disturbed the nodes %v times before the first fault", now-before)
		b.ledger.Excuse()
		b.late = true
	}
	b.ledger.Disturb()
	began := time.Now()
	if b.wanted(killed) {
		b.kills(random)
	}
	b.faults(began.Add(time.Duration(b.seconds)*time.Second), random)
	healed := time.Now()
	close(b.stayConnected)
	stop()
	sent := time.Since(healed)
	whole := b.waitUntilComplete(healed)
	b.pendingAtRest()
	disconnect()
	b.comeBack()
	truth, err := checker.ReadTruth(b.ctx, b.url)
	must(t, err)
	b.ledger.Verify(truth, b.logs)
	for _, m := range b.nodes {
		if err := m.Died(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the last sends were confirmed %v after the last fault, all devices were complete "+
		"%v after it",
		sent.Round(time.Millisecond), whole.Round(time.Millisecond))
	b.report(truth)
}

// faults injects faults until the given time: one of a node and one of a service at a time.
func (b *testbed) faults(until time.Time, random *rand.Rand) {
	services := databaseFaults()
	if b.direct {
		services = append(services, peerFaults()...)
	}
	if b.redis != nil {
		services = append(services, b.redis.faults()...)
	}
	var lanes sync.WaitGroup
	for i, faults := range [][]fault{nodeFaults(), services} {
		r := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		faults = slices.DeleteFunc(faults, func(f fault) bool { return !b.wanted(f.name) })
		for _, f := range faults {
			b.kinds[f.name] = &kindTally{}
		}
		if len(faults) == 0 {
			continue
		}
		lanes.Go(func() {
			for n := 0; time.Now().Before(until) && b.ctx.Err() == nil; n++ {
				if n%len(faults) == 0 {
					r.Shuffle(len(faults),
						func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
				}
				b.inject(faults[n%len(faults)], r)
				pause(b.ctx, between(r, 0.2, 1.2))
			}
		})
	}
	lanes.Wait()
}

// kills kills nodes while no other fault happens, and measures how their clients recover.
func (b *testbed) kills(r *rand.Rand) {
	b.kinds[killed+alone] = &kindTally{}
	b.measuring.Store(true)
	for range 1 + b.seconds/60 {
		b.inject(fault{killed + alone, func(b *testbed, r *rand.Rand) (string, error) {
			return kill(b, r, false, between(r, 0, 2))
		}}, r)
		pause(b.ctx, afterKill)
	}
	b.measuring.Store(false)
}

// killed is a kind of fault. It is also measured alone, while no other fault happens.
const (
	killed = "node killed"
	alone  = ", and nothing else"
)

// wanted reports whether faults of this name are to be injected. TIDEMARK_CHAOS_FAULTS selects
// names that contain it.
func (b *testbed) wanted(name string) bool {
	return strings.Contains(name, only()) && (b.redis != nil || !strings.Contains(name, "Redis"))
}

// attempts is how often a fault is injected until it shows. It may find nothing to break: a node
// that has no streams, that sends nothing to a service, or that knows already that Redis is away.
const attempts = 5

// inject injects a fault, at most attempts times until it shows, and counts it once.
func (b *testbed) inject(f fault, r *rand.Rand) {
	began := time.Now()
	shown := ""
	for n := 0; n < attempts && shown == "" && b.ctx.Err() == nil; n++ {
		var err error
		if shown, err = f.inject(b, r); err != nil {
			b.t.Errorf("%s: %v", f.name, err)
			break
		}
	}
	b.mu.Lock()
	tally := b.kinds[f.name]
	tally.injected++
	if shown != "" {
		tally.shown++
		tally.how = shown
	}
	b.mu.Unlock()
	if testing.Verbose() {
		fmt.Printf("%s %6.1fs %s: %s\n",
			time.Now().Format("15:04:05"), time.Since(began).Seconds(), f.name, shown)
		b.complaints()
	}
	healed := time.Now()
	for _, d := range b.devices {
		d.Log.Await(func(time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			tally.whole.Add(time.Since(healed))
		})
	}
}

// complaints prints the complaints that were not printed yet.
func (b *testbed) complaints() {
	b.mu.Lock()
	defer b.mu.Unlock()
	faults, _ := b.ledger.Faults()
	for _, f := range faults[b.complained:] {
		fmt.Printf("%s %s: %s\n", time.Now().Format("15:04:05"), f.Kind, f.Text)
	}
	b.complained = len(faults)
}

// waitUntilComplete waits until each device has every stored message, and returns the time since
// the last fault.
func (b *testbed) waitUntilComplete(healed time.Time) time.Duration {
	b.t.Helper()
	truth, err := checker.ReadTruth(b.ctx, b.url)
	must(b.t, err)
	for {
		lack := ""
		for _, d := range b.logs {
			if lack = d.Missing(truth.Expected(d.User)); lack != "" {
				break
			}
		}
		took := time.Since(healed)
		if lack == "" {
			if took > completeWithin {
				b.ledger.Complain(checker.Late, "all devices were complete only "+
					"%v after the last fault", took)
			}
			return took
		}
		if took > 3*completeWithin {
			b.ledger.Complain(checker.Incomplete, "%v after the last fault %s", took, lack)
			return took
		}
		pause(b.ctx, 20*time.Millisecond)
	}
}

// pendingAtRest waits until each member who is behind has a pending row (pending_or_delivered). A
// member may have none if the node died that had to write it. Then the next open compares, which
// comeBack shows.
func (b *testbed) pendingAtRest() {
	var behind, unmarked []checker.Member
	for deadline := time.Now().Add(15 * time.Second); ; pause(b.ctx, 500*time.Millisecond) {
		truth, err := checker.ReadTruth(b.ctx, b.url)
		must(b.t, err)
		behind, unmarked = truth.Behind()
		if len(unmarked) == 0 || time.Now().After(deadline) {
			break
		}
	}
	b.t.Logf("at rest %d times a user is behind in a chat, %d of them without a row: there the "+
		"next open compares", len(behind), len(unmarked))
}

// report logs what happened, and fails if a fault had no effect.
func (b *testbed) report(truth checker.Truth) {
	b.t.Helper()
	var counts checker.Counts
	var waits checker.Waits
	for _, d := range b.logs {
		c := d.Counts()
		counts.Opens += c.Opens
		counts.Resumed += c.Resumed
		counts.Resets += c.Resets
		counts.Messages += c.Messages
		counts.Again += c.Again
		counts.Gaps += c.Gaps
		counts.Late += c.Late
		counts.Back += c.Back
		counts.Statuses += c.Statuses
		counts.Stale += c.Stale
		waits.Merge(d.Waits())
	}
	var over [client.Transports]int
	ends := map[string]int{}
	for _, d := range b.devices {
		for i, n := range d.Opened() {
			over[i] += n
		}
		for why, n := range d.Ends() {
			ends[why] += n
		}
	}
	lines := []string{}
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	injected := 0
	for _, name := range slices.Sorted(maps.Keys(b.kinds)) {
		k := b.kinds[name]
		injected += k.injected
		say("%3d × %-38s shown %d; whole after it: %s; such as: %s",
			k.injected, name, k.shown, k.whole.String(), k.how)
		if k.shown < k.injected {
			b.t.Errorf("%q: %d of %d did not show", name, k.injected-k.shown, k.injected)
		}
		if k.injected == 0 && b.long() && only() == "" {
			b.t.Errorf("%q never happened", name)
		}
	}
	faults, kinds := b.ledger.Faults()
	tally := b.ledger.Tally()
	unconfirmed := b.ledger.Unconfirmed(truth)
	say("%d faults; %d sends, %d confirmed; lost %d, twice %d, gaps %d, ticks back %d", injected,
		tally.Sends, tally.Confirmed, kinds[checker.Lost], kinds[checker.Twice], kinds[checker.Gap],
		kinds[checker.Back])
	say("%d sends had an attempt without an answer, %d of them were found stored; %d were stored "+
		"and never confirmed", tally.Unanswered, tally.Found, unconfirmed)
	say("%d devices: %d messages stored, %d came again, %d times a connection began a chat "+
		"too late, %d times one went back by itself, %d gaps sent, %d status updates, "+
		"%d of them below an earlier one; %d opens, %d resumed, %d resets; "+
		"%d over WebSocket, %d SSE, %d long-poll",
		len(b.devices), counts.Messages, counts.Again, counts.Late, counts.Back, counts.Gaps,
		counts.Statuses, counts.Stale, counts.Opens, counts.Resumed, counts.Resets,
		over[0], over[1], over[2])
	say("connections of the balancer: %v", b.proxy.Taken())
	say("the nodes' own counters: %v", b.metrics())
	say("how connections ended: %v", ends)
	say("messages waited: %s; the longest %s", waits.String(), waits.Worst)
	say("clients whose node was killed while nothing else happened were whole after they were "+
		"connected again: %s", b.returned.String())
	b.t.Log("\n" + strings.Join(lines, "\n"))
	if waits.Worst.Took > noticedWithin {
		b.t.Errorf("a message waited for %s", waits.Worst)
	}
	within := recoveredWithin
	if !b.long() {
		// In a short run, one slow second of the machine is too large a share.
		within *= 3
	}
	took := b.returned.Quantile(0.99)
	switch {
	case took <= within:
	case b.late && !b.long():
		// If leases ran out before the first fault, the machine is too slow to measure recovery.
		b.t.Logf("1 %% of the clients took %v to be whole, which is not judged here", took)
	default:
		b.t.Errorf("1 %% of the clients took %v to be whole after their node was killed, want at "+
			"most %v", took, within)
	}
	for _, f := range faults {
		b.t.Errorf("%s: %s", f.Kind, f.Text)
	}
	if len(kinds) > 0 {
		b.t.Errorf("%v (TIDEMARK_SEED=%d)", kinds, b.seed)
	}
}

// metrics returns sums over all nodes, of the metrics that concern more than one node. A restarted
// node counts from 0.
func (b *testbed) metrics() map[string]float64 {
	sums := map[string]float64{}
	for _, m := range b.nodes {
		for name, value := range m.Metrics(b.ctx) {
			for _, part := range []string{
				"claim", "moved", "given", "lease", "registry", "bus", "redis", "epoch", "compar",
				"degraded", "beat", "marks",
			} {
				if strings.Contains(name, part) && value != 0 {
					sums[name] += value
				}
			}
		}
	}
	return sums
}

// disturbances counts what lets sessions go back: leases that ran out, and publications that may be
// missed.
func (b *testbed) disturbances() (n float64) {
	for _, m := range b.nodes {
		metrics := m.Metrics(b.ctx)
		for _, name := range []string{
			"tidemark_leases_lost_total", "tidemark_publications_missed_total",
		} {
			value, exported := metrics[name]
			if !exported {
				b.t.Fatalf("a node does not export %s", name)
			}
			n += value
		}
	}
	return n
}

// await polls for at most a minute, until missing returns "".
func (b *testbed) await(what string, who func() string) {
	b.t.Helper()
	left := ""
	deadline := time.Now().Add(time.Minute)
	for ; time.Now().Before(deadline); pause(b.ctx, 20*time.Millisecond) {
		if left = who(); left == "" {
			return
		}
	}
	b.t.Fatalf("%s: not after a minute: %s", what, left)
}
