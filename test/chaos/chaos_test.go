// Package chaos runs several nodes as processes, with everything that they need and hundreds of clients, and lets anything happen to them that docs/faults.md and docs/cluster.md
// speak of, at random. The checker holds delivery.md §5 against what each client was told and against the database.
package chaos

import (
	"fmt"
	"maps"
	"math/rand/v2"
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
	// calm is for how long the clients move about before anything happens to the nodes.
	calm = 5 * time.Second
	// aftermath is for how long clients come back to a node that was killed, before anything else happens.
	aftermath = 5 * time.Second
	// wholeWithin is how long after the last fault everybody has everything, without another message.
	wholeWithin = 20 * time.Second
	// noticedWithin is how long a message waits at most, whatever happens to Redis, and though nothing else is sent to its chat.
	noticedWithin = 20 * time.Second
	// backWithin is how long a client whose node was killed takes to be whole after it is connected again, 99 % of them.
	backWithin = 3 * time.Second
)

func TestChaos(t *testing.T) {
	seconds := number(t, "TIDEMARK_CHAOS_SECONDS", 60)
	if number(t, "TIDEMARK_CHAOS_NODES", 3) == 1 {
		chaos(t, nil, seconds) // one node needs no Redis
		return
	}
	chaos(t, single{redis.Start(t)}, seconds)
}

// TestChaos_failover is about Redis behind Sentinel, for half of the time.
func TestChaos_failover(t *testing.T) {
	service := watched{redis.StartSentinel(t)}
	service.open(t)
	chaos(t, service, number(t, "TIDEMARK_CHAOS_SECONDS", 60)/2)
}

func chaos(t *testing.T, service redisService, seconds int) {
	w := newWorld(t, service, seconds)
	random := rand.New(rand.NewPCG(w.seed, 1))
	w.create(random)
	disconnect := w.connect(random, number(t, "TIDEMARK_CHAOS_CLIENTS", 240))
	w.await("everybody is connected", func() string {
		for _, d := range w.devices[:len(w.devices)-readers] {
			if d.Log.Counts().Opens == 0 {
				return d.Log.Name
			}
		}
		return ""
	})
	stop := w.send()
	pause(w.ctx, calm)
	w.ledger.Storm()
	began := time.Now()
	if w.wanted(killed) {
		w.kills(random)
	}
	w.faults(began.Add(time.Duration(w.seconds)*time.Second), random)
	healed := time.Now()
	close(w.home)
	stop()
	sent := time.Since(healed)
	whole := w.settle(healed)
	w.pendingAtRest()
	w.comeBack()
	disconnect()
	truth, err := checker.ReadTruth(w.ctx, w.url)
	must(t, err)
	w.ledger.Verify(truth, w.logs)
	for _, m := range w.nodes {
		if err := m.Died(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("the last sends were confirmed %v after the last fault, everybody was whole %v after it",
		sent.Round(time.Millisecond), whole.Round(time.Millisecond))
	w.report(truth)
}

// faults lets two things at a time happen, until then.
func (w *world) faults(until time.Time, random *rand.Rand) {
	services := databaseFaults()
	if w.redis != nil {
		services = append(services, w.redis.faults()...)
	}
	var lanes sync.WaitGroup
	for i, faults := range [][]fault{nodeFaults(), services} {
		r := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		faults = slices.DeleteFunc(faults, func(f fault) bool { return !w.wanted(f.name) })
		for _, f := range faults {
			w.kinds[f.name] = &kindTally{}
		}
		if len(faults) == 0 {
			continue
		}
		lanes.Go(func() {
			for n := 0; time.Now().Before(until) && w.ctx.Err() == nil; n++ {
				if n%len(faults) == 0 {
					r.Shuffle(len(faults),
						func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
				}
				w.strike(faults[n%len(faults)], r)
				pause(w.ctx, between(r, 0.2, 1.2))
			}
		})
	}
	lanes.Wait()
}

// kills kills nodes while nothing else happens, and measures how their clients come back.
func (w *world) kills(r *rand.Rand) {
	w.kinds[killed+alone] = &kindTally{}
	w.measuring.Store(true)
	for range 1 + w.seconds/60 {
		w.strike(fault{killed + alone, func(w *world, r *rand.Rand) (string, error) { return kill(w, r, false, between(r, 0, 2)) }}, r)
		pause(w.ctx, aftermath)
	}
	w.measuring.Store(false)
}

// killed is the kind of fault that is measured alone, too.
const (
	killed = "node killed"
	alone  = ", and nothing else"
)

// wanted reports whether faults of a name are asked for: TIDEMARK_CHAOS_FAULTS is a part of it, for looking into one kind.
func (w *world) wanted(name string) bool {
	return strings.Contains(name, only()) && (w.redis != nil || !strings.Contains(name, "Redis"))
}

func (w *world) strike(f fault, r *rand.Rand) {
	began := time.Now()
	shown, err := f.strike(w, r)
	if err != nil {
		w.t.Errorf("%s: %v", f.name, err)
	}
	w.mu.Lock()
	tally := w.kinds[f.name]
	tally.struck++
	if shown != "" {
		tally.shown++
		tally.how = shown
	}
	w.mu.Unlock()
	if testing.Verbose() {
		fmt.Printf("%s %6.1fs %s: %s\n",
			time.Now().Format("15:04:05"), time.Since(began).Seconds(), f.name, shown)
		w.complaints()
	}
	healed := time.Now()
	for _, d := range w.devices {
		d.Log.Await(func(time.Duration) {
			w.mu.Lock()
			defer w.mu.Unlock()
			tally.whole.Add(time.Since(healed))
		})
	}
}

// complaints prints those that are new.
func (w *world) complaints() {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults, _ := w.ledger.Faults()
	for _, f := range faults[w.complained:] {
		fmt.Printf("%s %s: %s\n", time.Now().Format("15:04:05"), f.Kind, f.Text)
	}
	w.complained = len(faults)
}

// settle waits until everybody has everything that is stored, and returns how long that took since the last fault.
func (w *world) settle(healed time.Time) time.Duration {
	w.t.Helper()
	truth, err := checker.ReadTruth(w.ctx, w.url)
	must(w.t, err)
	for {
		lack := ""
		for _, d := range w.logs {
			if lack = d.Lacks(truth.Owed(d.User)); lack != "" {
				break
			}
		}
		took := time.Since(healed)
		if lack == "" {
			if took > wholeWithin {
				w.ledger.Complain(checker.Late, "everybody was whole only %v after the last fault",
					took)
			}
			return took
		}
		if took > 3*wholeWithin {
			w.ledger.Complain(checker.Unwhole, "%v after the last fault %s", took, lack)
			return took
		}
		pause(w.ctx, 20*time.Millisecond)
	}
}

// pendingAtRest: whoever is behind in a chat has a row, some time after the last message (pending_or_delivered). He may be without one if a node died that would have written it: then the
// next open compares, which comeBack shows.
func (w *world) pendingAtRest() {
	var behind, unmarked []checker.Member
	for deadline := time.Now().Add(15 * time.Second); ; pause(w.ctx, 500*time.Millisecond) {
		truth, err := checker.ReadTruth(w.ctx, w.url)
		must(w.t, err)
		behind, unmarked = truth.Behind()
		if len(unmarked) == 0 || time.Now().After(deadline) {
			break
		}
	}
	w.t.Logf("at rest %d times a user is behind in a chat, %d of them without a row: there the "+
		"next open compares", len(behind), len(unmarked))
}

// report says what happened, and fails if something did not.
func (w *world) report(truth checker.Truth) {
	w.t.Helper()
	var counts checker.Counts
	var waits checker.Waits
	for _, d := range w.logs {
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
	for _, d := range w.devices {
		for i, n := range d.Opened() {
			over[i] += n
		}
		for why, n := range d.Ends() {
			ends[why] += n
		}
	}
	lines := []string{}
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	struck := 0
	for _, name := range slices.Sorted(maps.Keys(w.kinds)) {
		k := w.kinds[name]
		struck += k.struck
		say("%3d × %-38s shown %d; whole after it: %s; such as: %s",
			k.struck, name, k.shown, k.whole.String(), k.how)
		if k.shown < k.struck {
			w.t.Errorf("%q: %d of %d did not show", name, k.struck-k.shown, k.struck)
		}
		if k.struck == 0 && w.long() && only() == "" {
			w.t.Errorf("%q never happened", name)
		}
	}
	faults, kinds := w.ledger.Faults()
	tally := w.ledger.Tally()
	unconfirmed := w.ledger.Unconfirmed(truth)
	say("%d faults; %d sends, %d confirmed; lost %d, twice %d, gaps %d, ticks back %d", struck,
		tally.Sends, tally.Confirmed, kinds[checker.Lost], kinds[checker.Twice], kinds[checker.Gap],
		kinds[checker.Back])
	say("%d sends had an attempt without an answer, %d of them were found stored; %d were stored "+
		"and never confirmed", tally.Unanswered, tally.Found, unconfirmed)
	say("%d devices: %d messages stored, %d came again, %d times a connection began a chat too late, %d times one went back by itself, %d gaps told, %d status updates, %d of them below an earlier one; %d opens, %d resumed, %d resets; %d over WebSocket, %d SSE, %d long-poll",
		len(w.devices), counts.Messages, counts.Again, counts.Late, counts.Back, counts.Gaps, counts.Statuses, counts.Stale, counts.Opens, counts.Resumed, counts.Resets, over[0], over[1], over[2])
	say("connections of the balancer: %v", w.proxy.Taken())
	say("the nodes' own counters: %v", w.metrics())
	say("how connections ended: %v", ends)
	say("messages waited: %s; the longest %s", waits.String(), waits.Worst)
	say("clients whose node was killed while nothing else happened were whole after they were "+
		"connected again: %s", w.returned.String())
	w.t.Log("\n" + strings.Join(lines, "\n"))
	if waits.Worst.Took > noticedWithin {
		w.t.Errorf("a message waited for %s", waits.Worst)
	}
	within := backWithin
	if !w.long() {
		within *= 3 // a second at which the machine does something else is too much of a short run
	}
	if took := w.returned.Quantile(0.99); took > within {
		w.t.Errorf("1 %% of the clients took %v to be whole after their node was killed, want at "+
			"most %v", took, within)
	}
	for _, f := range faults {
		w.t.Errorf("%s: %s", f.Kind, f.Text)
	}
	if len(kinds) > 0 {
		w.t.Errorf("%v (TIDEMARK_SEED=%d)", kinds, w.seed)
	}
}

// metrics are the sums of what the nodes say of themselves, as far as several nodes have to do with it; those that were started anew begin at 0.
func (w *world) metrics() map[string]float64 {
	sums := map[string]float64{}
	for _, m := range w.nodes {
		for name, value := range m.Metrics(w.ctx) {
			for _, part := range []string{"claim", "moved", "given", "lease", "registry", "bus", "redis", "epoch", "compar", "degraded", "beat", "marks"} {
				if strings.Contains(name, part) && value != 0 {
					sums[name] += value
				}
			}
		}
	}
	return sums
}

// await polls until nobody is named any more.
func (w *world) await(what string, who func() string) {
	w.t.Helper()
	left := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); pause(w.ctx, 20*time.Millisecond) {
		if left = who(); left == "" {
			return
		}
	}
	w.t.Fatalf("%s: not after a minute: %s", what, left)
}
