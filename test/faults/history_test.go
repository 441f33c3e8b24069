// Package faults breaks the databases under the stores of two nodes, in every way that the project
// knows. It compares what is stored afterwards with the answers that callers got.
package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/test/wait"
)

const (
	// grace bounds how long after its deadline a call returns, without the time in which the
	// process did not run (stalls).
	grace = 2 * time.Second
	// patience bounds how long after a fault nothing more recovers.
	patience = wait.Hang
)

// history is what goroutines do to the stores of several nodes on one database, and the answers
// they get.
type history struct {
	t             *testing.T
	seed          uint64
	stores        []storage.Store
	chats         []tidemark.ChatID
	users         []tidemark.UserID
	soleWriters   []*soleWriter
	intermittents []*intermittentMember
	// readers counts the readers at each node beyond the first.
	readers int
	// creators is empty, unless the case is about chats with many members.
	creators []*groupCreator
	ending   atomic.Bool
	// patience is the constant, except for stores that are stuck on purpose.
	patience time.Duration
	// limits are the deadlines that callers set. bound bounds the duration of a call, whatever its
	// deadline; 0 means the deadline.
	limits []time.Duration
	bound  time.Duration
	// repeatWindow is for how long a confirmed call may take effect again, because the store made
	// it more than once. If late is set, it may do so until calm, when no call runs whose caller
	// has given up (0: not yet).
	repeatWindow time.Duration
	late         bool
	calm         atomic.Int64

	mu    sync.Mutex
	sends map[string]*send                      // by chat and key
	heads map[tidemark.ChatID]tidemark.Sequence // the greatest that was returned
	// the greatest acknowledged watermark that was returned
	raised     map[storage.StateKey]tidemark.Watermark
	attempted  map[storage.StateKey]tidemark.Watermark // the greatest that was requested
	seen       []map[storage.StateKey]tidemark.Watermark
	reasons    map[string]int // of refused calls
	violations []string
	// unrecovered are the chats that have not accepted a message since the fault ended, nil before
	// that.
	unrecovered map[nodeChat]bool

	calls              map[string]int // by method
	refused, confirmed int
	// early counts the refused calls that had time left.
	early int
	// pace bounds the concurrent calls. nil does not.
	pace *pace
	// stalls are the stalls of the machine.
	stalls stalls
	// ambiguous counts the messages that were stored although the caller got Unavailable.
	ambiguous int
	slowest   time.Duration
	recovered time.Duration
}

// nodeChat is a chat as a node serves it.
type nodeChat struct {
	node int
	chat tidemark.ChatID
}

// send is a message that a worker wants stored.
type send struct {
	draft tidemark.Draft
	// tried are the message ids of the calls, one for each. The outcome of refused calls is
	// unknown.
	tried []tidemark.MessageID
	// sequence is the confirmed one, 0 while there is none.
	sequence tidemark.Sequence
}

func newHistory(t *testing.T, stores ...storage.Store) *history {
	t.Helper()
	return newHistoryIn(t, []tidemark.ChatID{"a", "B", "c"}, stores...)
}

// store returns the store of a node.
func (h *history) store(node int) storage.Store {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stores[node]
}

// newHistoryIn is newHistory with other chats.
func newHistoryIn(t *testing.T, shared []tidemark.ChatID, stores ...storage.Store) *history {
	t.Helper()
	h := &history{
		t: t, seed: seed(t), stores: stores, patience: patience,
		limits: []time.Duration{time.Second, 4 * time.Second}, chats: shared,
		users: []tidemark.UserID{"ann", "Ben", "cleo", "dora"}, sends: map[string]*send{},
		heads:     map[tidemark.ChatID]tidemark.Sequence{},
		raised:    map[storage.StateKey]tidemark.Watermark{},
		attempted: map[storage.StateKey]tidemark.Watermark{}, reasons: map[string]int{},
		calls: map[string]int{},
	}
	h.stalls.watch(t)
	for range stores {
		h.seen = append(h.seen, map[storage.StateKey]tidemark.Watermark{})
	}
	for i := range 2 * len(stores) {
		h.soleWriters = append(h.soleWriters, &soleWriter{
			history:  h,
			chat:     tidemark.ChatID(fmt.Sprint("own-", i)),
			possible: map[tidemark.Sequence]bool{0: true},
		})
	}
	for i := range stores {
		h.intermittents = append(h.intermittents, &intermittentMember{
			history: h,
			chat:    h.chats[i%len(h.chats)],
			name:    fmt.Sprint("intermittent", i),
			out:     true,
		})
	}
	chats := slices.Clone(h.chats)
	for _, o := range h.soleWriters {
		chats = append(chats, o.chat)
	}
	for _, id := range chats {
		_, _, err := stores[0].CreateChat(t.Context(), storage.NewChat{
			ID:        id,
			Type:      tidemark.Group,
			CreatedAt: time.Now(),
			Creator:   h.users[0],
			Members:   h.users,
		})
		must(t, err)
	}
	return h
}

// runAndReport lets all goroutines work while inject injects faults. Then it checks that all rules
// hold and nothing is stuck. inject must end with all faults removed.
func (h *history) runAndReport(inject func()) {
	h.t.Helper()
	h.run(inject)
	for _, v := range h.violations[:min(len(h.violations), enough)] {
		h.t.Error(v)
	}
	h.t.Logf("TIDEMARK_SEED=%d: %d calls (%v), %d refused, %d of them early; "+
		"%d messages confirmed, %d of them stored by a call that was refused; slowest call %v; "+
		"the last chat was well %v after the fault; reasons: %s",
		h.seed, total(h.calls), h.calls, h.refused, h.early, h.confirmed, h.ambiguous,
		h.slowest.Round(time.Millisecond), h.recovered.Round(time.Millisecond), h.why())
	if len(h.violations) > enough {
		h.t.Errorf("%d rules were broken in all", len(h.violations))
	}
}

// run is runAndReport without the report.
func (h *history) run(inject func()) {
	h.t.Helper()
	h.work(inject)
	h.settle()
	h.verify()
}

// work runs the goroutines until inject has returned.
func (h *history) work(inject func()) {
	ctx := h.t.Context()
	var running sync.WaitGroup
	number := 0
	start := func(do func(w *worker)) {
		number++
		w := &worker{
			history: h,
			number:  number,
			random:  rand.New(rand.NewPCG(h.seed, uint64(number))),
		}
		running.Go(func() {
			for !h.ending.Load() && ctx.Err() == nil {
				do(w)
				<-time.After(time.Duration(1+w.random.IntN(4)) * time.Millisecond)
			}
		})
	}
	for node := range h.stores {
		for range 4 {
			start(func(w *worker) { w.node = node; w.send(ctx) })
		}
		for range 2 {
			start(func(w *worker) { w.node = node; w.advance(ctx) })
		}
		for range 1 + h.readers {
			start(func(w *worker) { w.node = node; w.read(ctx) })
		}
	}
	for _, o := range h.soleWriters {
		start(func(w *worker) { o.step(ctx, w) })
	}
	for _, g := range h.intermittents {
		start(func(w *worker) { g.step(ctx, w) })
	}
	for _, f := range h.creators {
		start(func(w *worker) { f.step(ctx, w) })
	}
	h.await("some messages are confirmed",
		func() (int, bool) { return h.confirmed, h.confirmed >= 20 })
	inject()
	mended := time.Now()
	h.mu.Lock()
	h.unrecovered = map[nodeChat]bool{}
	for node := range h.stores {
		for _, chat := range h.chats {
			h.unrecovered[nodeChat{node, chat}] = true
		}
	}
	pairs, before := len(h.stores)*len(h.chats), h.confirmed
	h.mu.Unlock()
	h.await("every chat takes messages again, over every node", func() (int, bool) {
		// As many messages as are enough to meet each chat over each node by chance, and then
		// those of a chat that was not met.
		met := min(h.confirmed-before, 20*pairs)
		return met + pairs - len(h.unrecovered), len(h.unrecovered) == 0
	})
	h.recovered = time.Since(mended)
	h.ending.Store(true)
	running.Wait()
}

// await waits until the condition holds, for patience without progress. It calls condition under
// the lock.
func (h *history) await(what string, condition func() (progress int, holds bool)) {
	h.t.Helper()
	most, deadline := -1, time.Time{}
	for {
		h.mu.Lock()
		progress, holds := condition()
		holds = holds || len(h.violations) >= enough
		h.mu.Unlock()
		if holds {
			return
		}
		if progress > most {
			most, deadline = progress, time.Now().Add(h.patience)
		}
		if time.Now().After(deadline) {
			h.broken("%s: no progress for %v", what, h.patience)
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// enough is how many violations are shown. With so many, the test waits for nothing more.
const enough = 10

// over reports whether there are enough violations.
func (h *history) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.violations) >= enough
}

func (h *history) broken(format string, arguments ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.violations = append(h.violations, fmt.Sprintf(format, arguments...))
}

// why lists the reasons of refused calls.
func (h *history) why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := []string{}
	for _, reason := range slices.Sorted(maps.Keys(h.reasons)) {
		lines = append(lines, fmt.Sprintf("%d × %q", h.reasons[reason], reason))
	}
	return strings.Join(lines, ", ")
}

// refusals returns how many calls were refused with a reason that contains the words.
func (h *history) refusals(words string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for reason, count := range h.reasons {
		if strings.Contains(reason, words) {
			n += count
		}
	}
	return n
}

// seed returns TIDEMARK_SEED, or another number for each run.
func seed(t *testing.T) uint64 {
	t.Helper()
	return uint64(number(t, "TIDEMARK_SEED", int(time.Now().UnixNano())))
}

// number reads a variable of the environment.
func number(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is not a number: %v", variable, err)
	}
	return n
}

// least returns the smallest number of calls of a method, of all methods but one.
func (h *history) least(but string) int {
	least := total(h.calls)
	for method, count := range h.calls {
		if method != but {
			least = min(least, count)
		}
	}
	return least
}

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
