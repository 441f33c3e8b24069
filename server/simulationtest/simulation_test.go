// Package simulationtest runs the delivery core in a simulation. Several nodes share a store, a
// registry and a bus, and users' devices come and go, in virtual time. A seed decides the order of
// all events and what goes wrong. The rules are docs/internals/delivery.md §4 and §5.
package simulationtest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defaultRuns is how many seeds a plain `go test` runs. TIDEMARK_SIMULATION_RUNS sets another
// number, and TIDEMARK_SIMULATION_SEED repeats one seed.
const defaultRuns = 500

// pointRuns is the number of seeds that reaches every crash point, every call that may fail, and
// whatever else is seldom. Fewer seeds reach every kind of fault.
const pointRuns = 2000

// number returns the number in an environment variable, or def.
func number(t *testing.T, name string, def uint64) uint64 {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		return def
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// result is the outcome of a run.
type result struct {
	seed    uint64
	failure string
	lines   []byte
	counts  map[string]int
	steps   int
}

// TestSimulation_invariants_hold runs the seeds. Every fault must occur in one of them.
func TestSimulation_invariants_hold(t *testing.T) {
	if os.Getenv("TIDEMARK_SIMULATION_SEED") != "" {
		seed := number(t, "TIDEMARK_SIMULATION_SEED", 0)
		r := simulate(t, seed)
		t.Logf("seed %d: %d steps\n%s", seed, r.steps, r.lines)
		if r.failure != "" {
			t.Error(r.failure)
		}
		return
	}
	runs := number(t, "TIDEMARK_SIMULATION_RUNS", defaultRuns)
	counts, steps, failures := map[string]int{}, 0, 0
	began := time.Now()
	for r := range simulateAll(t, 0, runs) {
		steps += r.steps
		for what, n := range r.counts {
			counts[what] += n
		}
		if r.failure != "" {
			failures++
			report(t, r)
		}
		if failures == 3 {
			break
		}
	}
	t.Logf("%d seeds, %d steps, %v", runs, steps, time.Since(began).Round(time.Millisecond))
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%7d %s", counts[what], what)
	}
	if runs < defaultRuns || failures > 0 {
		return
	}
	for _, what := range mustFire() {
		if counts[what] == 0 && (runs >= pointRuns || !seldom(what)) {
			t.Errorf("never fired: %s", what)
		}
	}
}

// seldom reports whether it takes pointRuns seeds until something occurs.
func seldom(what string) bool {
	return strings.HasPrefix(what, "crash ") || strings.HasPrefix(what, "failed ") ||
		what == "reset unknown_position"
}

// mustFire returns the faults, and what else must occur for the runs to mean anything.
func mustFire() []string {
	must := []string{"confirmed", "unknown outcome", "sent again", "proof found", "resumed",
		"synced", "gap told", "lease lost", "lease replaced", "cut between events",
		"reset unknown_session", "reset unknown_position",
		"confirmation in place of an event", "confirmation beside an event", "edit", "redact",
		"edit of what was redacted"}
	must = append(must, removed()...)
	must = append(must, shortcuts()...)
	for _, f := range faults() {
		must = append(must, string(f))
	}
	for _, kind := range []string{"Append", "Mark", "Clear", "Advance", "Open", "Close",
		"Publish"} {
		must = append(must, "crash before "+kind, "crash after "+kind)
	}
	for _, kind := range []string{"Append", "Mark", "Clear", "Advance"} {
		must = append(must, "failed before "+kind, "failed after "+kind)
	}
	return must
}

// shortcuts returns the counters of what nodes did not do because they knew better. The runs show
// nothing about a shortcut that is never taken.
func shortcuts() []string {
	return []string{"pending_rows_known_total", "latest_chats_known_total"}
}

// removed returns the counters of what expired and of what was deleted, and of the checks that saw
// something of it.
func removed() []string {
	must := []string{"days pass", "messages expired", "relation to what has expired",
		"chat deleted", "members purged", "checked sequence_gapless above a floor",
		"checked unread_exact above a floor", "checked tick_monotone at a floor",
		"checked floor_recorded by a gap", "checked deleted_is_gone"}
	for _, kind := range []string{"Expire", "DeleteChat"} {
		must = append(must, "crash before "+kind, "crash after "+kind,
			"failed before "+kind, "failed after "+kind)
	}
	return must
}

// report logs the end of a run's transcript.
func report(t *testing.T, r result) {
	t.Helper()
	lines := bytes.Split(r.lines, []byte("\n"))
	end := bytes.Join(lines[max(0, len(lines)-120):], []byte("\n"))
	t.Errorf("%s\n%s\nreplay it with TIDEMARK_SIMULATION_SEED=%d", r.failure, end, r.seed)
}

// A seed gives the same run again. Two timers of one moment may fire in either order, so one of a
// few repetitions must be the same as another.
func TestSimulation_same_seed_same_run(t *testing.T) {
	const tries = 6
	for seed := range uint64(20) {
		runs := [][]byte{simulate(t, seed).lines}
		for len(runs) < tries {
			again := simulate(t, seed).lines
			if slices.ContainsFunc(runs, func(r []byte) bool { return bytes.Equal(r, again) }) {
				break
			}
			runs = append(runs, again)
		}
		if len(runs) == tries {
			t.Errorf("seed %d: %d runs differ from each other:\n%s", seed, tries,
				firstDifference(runs[0], runs[1]))
		}
	}
}

// firstDifference returns where two runs part.
func firstDifference(one, other []byte) string {
	a, b := bytes.Split(one, []byte("\n")), bytes.Split(other, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			return fmt.Sprintf("line %d is %q and then %q, after %q",
				i, a[i], b[i], bytes.Join(a[max(0, i-5):i], []byte("\n")))
		}
	}
	return "one ends earlier"
}

// simulateAll runs seeds from first on, on two processors.
func simulateAll(t *testing.T, first, runs uint64) func(func(result) bool) {
	return func(yield func(result) bool) {
		results, stop := make(chan result), make(chan struct{})
		var all sync.WaitGroup
		const workers = 2
		for worker := range uint64(workers) {
			all.Go(func() {
				for seed := first + worker; seed < first+runs; seed += workers {
					select {
					case results <- simulate(t, seed):
					case <-stop:
						return
					}
				}
			})
		}
		go func() { // ends after the workers, which end when told to
			all.Wait()
			close(results)
		}()
		for r := range results {
			if !yield(r) {
				close(stop)
				for range results {
				}
				return
			}
		}
	}
}

// simulate does one run.
func simulate(t *testing.T, seed uint64) (r result) {
	synctest.Test(t, func(*testing.T) {
		w := &simulation{
			dice:    rand.New(rand.NewPCG(seed, 3)),
			raw:     memory.New(),
			reg:     registrymemory.New(),
			log:     slog.New(slog.DiscardHandler),
			enabled: map[fault]bool{},
			counts:  map[string]int{},
		}
		w.truth = newTruth(w)
		w.run(seed)
		r = result{seed: seed, failure: w.failure, lines: w.lines, counts: w.counts, steps: w.now}
	})
	return r
}

// run is the course of one run. First things happen and go wrong. Then nothing goes wrong any more,
// and the invariants are checked.
func (w *simulation) run(seed uint64) {
	defer w.cleanUp()
	possible := faults()
	switch w.roll(4) {
	case 0, 1:
		possible = mildFaults()
	case 2:
		possible, w.small = smallFaults(), true
	}
	for _, f := range possible {
		w.enabled[f] = w.roll(3) == 0
	}
	w.enabled[crashes] = slices.Contains(possible, crashes) && w.roll(4) > 0
	w.enabled[elsewhere] = w.enabled[elsewhere] || w.roll(3) == 0
	w.enabled[confirms] = w.roll(2) == 0
	w.enabled[closes] = w.small || w.roll(3) > 0
	w.enabled[stalls] = w.small || w.enabled[stalls] || w.roll(3) == 0
	w.enabled[carriedLate] = w.enabled[carriedLate] || w.enabled[busRejoins]
	// The seeds take the crash points in turn, so that each one is reached.
	points := uint64(len(durable()))
	w.crash = crashPoint{
		kind:   durable()[seed%points],
		effect: seed/points%2 == 0,
		after:  1 + w.roll(3),
	}
	w.live(seed)
	w.crowd = newCrowd(seed)
	w.found()
	w.calm = true
	for _, id := range []tidemark.NodeID{"a", "b", "c"}[:1+w.roll(3)] {
		w.boot(id)
		w.settle()
	}
	w.calm = false
	for range 100 + w.roll(500) {
		if w.step(); w.failed() {
			return
		}
	}
	w.heal()
}

// cleanUp ends everything that runs, so that the bubble can end.
func (w *simulation) cleanUp() {
	for _, n := range w.nodes {
		w.kill(n)
		close(n.ended)
	}
	w.running.Wait()
	for _, n := range w.nodes {
		if n.runs.Load() {
			for _, shortcut := range shortcuts() {
				w.counts[shortcut] += int(n.server.Counters()[shortcut])
			}
			for _, step := range []string{"asked", "taken", "given", "failed"} {
				w.counts["hand-over "+step] += int(n.server.Counters()["transfers_total{"+step+"}"])
			}
			_ = n.server.Stop(context.Background())
		}
	}
}
