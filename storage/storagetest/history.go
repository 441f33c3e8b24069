package storagetest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// history records the calls that clients make concurrently on few chats and users, with their
// results. Porcupine looks for an order of the operations in which the specification (room) gives
// each the same result. A call is recorded as several operations if it is about several chats, or
// if its items are atomic one by one. The context of some calls ends early. Such a call may take
// effect at once, later or never.
type history struct {
	*fixture
	// stores contains all stores on the same data. Client n uses store n modulo their number.
	stores []storage.Store
	seed   uint64
	began  time.Time
	people []tidemark.UserID
	rooms  []tidemark.ChatID
	first  map[tidemark.ChatID]room

	mu         sync.Mutex
	operations []*operation
	// top is the highest sequence of each chat that a client has seen.
	top          map[tidemark.ChatID]tidemark.Sequence
	observations []observation
	lost         int           // calls of unknown outcome
	searchTime   time.Duration // the time limit of each search for an order
	tick         int
}

// operation is one operation in one chat.
type operation struct {
	span
	client    int
	chat      tidemark.ChatID
	what, got string
	// apply is the specification of the operation. It returns the room afterwards, and the result.
	apply func(room) (room, string)
	// reads says that the operation changed nothing, by its kind or by its result.
	reads bool
	// writes says that the operation may lock the chat while it runs, even if it changes nothing.
	writes bool
	// refused says that one of its drafts was refused alone as Unavailable.
	refused bool
}

// span is the time of an operation since the history began.
type span struct {
	call, answer time.Duration
	// unknown says that the operation may or may not have taken effect. answer is maxTime then.
	unknown bool
}

const maxTime = time.Duration(math.MaxInt64)

const (
	// historyVariable sets the number of histories for each store.
	historyVariable = "TIDEMARK_HISTORY_RUNS"
	historyRuns     = 30
	disturbedRuns   = 600 // chance decides which history is disturbed; about one in twenty is
	historyClients  = 6
	historyCalls    = 14
	historyKeys     = 5
	maxUnknown      = 3
)

// testHistories runs histories on one store, or on several stores with the same data.
func testHistories(t *testing.T, first suite, others ...storage.Store) {
	runs := historyRuns
	if given := os.Getenv(historyVariable); given != "" {
		var err error
		if runs, err = strconv.Atoi(given); err != nil || runs < 1 {
			t.Fatalf("%s is %q, want a number from 1", historyVariable, given)
		}
	}
	var sum tally
	for sum.histories < runs {
		sum.add(t, newHistory(first.fixture(t), others), runs)
	}
	sum.log(t)
}

// RunHistories runs histories on a store that the test disturbs. It ends when a number of drafts
// were refused alone.
func RunHistories(t *testing.T, open func(t *testing.T) storage.Store, refusals int) {
	s := newSuite(open(t))
	var sum tally
	for sum.refused < refusals {
		if sum.histories == disturbedRuns {
			t.Fatalf("%d drafts were refused alone in %d histories, want %d",
				sum.refused, disturbedRuns, refusals)
		}
		sum.add(t, newHistory(s.fixture(t), nil), disturbedRuns)
	}
	sum.log(t)
}

// tally counts histories and their operations. undecided counts further histories, for which the
// search took too long. They show nothing.
type tally struct {
	histories, undecided, operations, unknown, refused int
	longest                                            time.Duration
}

// add runs a history. It fails the test if the contract does not allow the results, or if more than
// a tenth of planned histories, and more than one, are undecided. On a slow machine more calls
// overlap, so there are more orders to search.
func (sum *tally) add(t *testing.T, h *history, planned int) {
	t.Helper()
	h.run()
	began := time.Now()
	undecided := ""
	for _, chat := range h.rooms {
		broken, decided := h.check(chat)
		if !decided {
			undecided, broken = broken, ""
		}
		if broken += h.unexplained(chat); broken != "" {
			t.Fatalf("history with TIDEMARK_SEED=%d: %s", h.seed, broken)
		}
	}
	h.checkObservations()
	if undecided != "" {
		if sum.undecided++; sum.undecided > max(1, planned/10) {
			t.Fatalf("%d histories are undecided, the last one with TIDEMARK_SEED=%d: %s",
				sum.undecided, h.seed, undecided)
		}
		return
	}
	sum.histories++
	sum.longest = max(sum.longest, time.Since(began))
	for _, o := range h.operations {
		sum.operations++
		if o.unknown {
			sum.unknown++
		}
		if o.refused {
			sum.refused++
		}
	}
}

func (sum *tally) log(t *testing.T) {
	t.Helper()
	t.Logf("%d histories of %d operations, %d of unknown outcome, %d with a draft refused alone; "+
		"the longest check took %v; %d further histories are undecided",
		sum.histories, sum.operations, sum.unknown, sum.refused, sum.longest, sum.undecided)
}

// historySeed returns TIDEMARK_SEED, or a random number if it is not set. With the variable, all
// histories make the same choices.
func historySeed(f *fixture) uint64 {
	given := os.Getenv("TIDEMARK_SEED")
	if given == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		f.Fatalf("TIDEMARK_SEED is %q, want a number", given)
	}
	return seed
}

// newHistory creates two groups of the same three people. The fourth person is a stranger to both.
func newHistory(f *fixture, others []storage.Store) *history {
	h := &history{
		fixture: f,
		stores:  append([]storage.Store{f.store}, others...),
		seed:    historySeed(f),

		searchTime: searchTime,
		people:     f.users("alice", "bob", "carol", "dave"),
		first:      map[tidemark.ChatID]room{},
		top:        map[tidemark.ChatID]tidemark.Sequence{},
	}
	for _, mode := range []tidemark.HistoryMode{tidemark.HistoryFull, tidemark.HistorySinceJoin} {
		chat := f.create(storage.NewChat{
			ID:      f.chat(string(mode)),
			Type:    tidemark.Group,
			History: mode,
			Members: h.people[:3],
		})
		h.rooms = append(h.rooms, chat)
		h.first[chat] = newRoom(mode, 3)
	}
	h.began = time.Now()
	return h
}

// run makes all clients call concurrently. Afterwards one more client reads everything.
func (h *history) run() {
	h.ok(concurrently(historyClients, func(n int) error {
		c := h.client(n)
		for range historyCalls {
			if err := c.callOne(); err != nil {
				return fmt.Errorf("TIDEMARK_SEED=%d: %w", h.seed, err)
			}
		}
		return nil
	}))
	h.ok(h.client(historyClients).readAll())
}

// client makes calls, one after the other.
type client struct {
	*history
	n      int
	store  storage.Store
	random *rand.Rand
}

func (h *history) client(n int) *client {
	return &client{
		history: h,
		n:       n,
		store:   h.stores[n%len(h.stores)],
		random:  rand.New(rand.NewPCG(h.seed, uint64(n))),
	}
}

// now returns a time that no other operation of the history has.
func (h *history) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	return at(h.tick)
}

// do calls the store. The context of some writes ends early. A write that returns Unavailable may
// have taken effect or not: its context ended, or a lock or the disk delayed it for too long. A
// read waits for neither, so it must succeed.
func (c *client) do(write bool, call func(ctx context.Context) error) (span, error) {
	ctx := c.ctx
	if write && c.random.IntN(12) == 0 && c.mayTimeOut() {
		limit := time.Duration(c.random.IntN(1_500)) * time.Microsecond
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	s := span{call: time.Since(c.began)}
	err := call(ctx)
	s.answer = time.Since(c.began)
	if write && tidemark.CodeOf(err) == tidemark.Unavailable {
		s.unknown, s.answer = true, maxTime
		c.mu.Lock()
		c.lost++
		c.mu.Unlock()
		return s, nil
	}
	return s, err
}

// mayTimeOut limits the number of calls with an unknown outcome. Each of them doubles the search.
func (h *history) mayTimeOut() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost < maxUnknown
}

// recordWrite records a write. what describes the call, and got the result. changed says whether
// the result means a change. apply is the specification.
func (c *client) recordWrite(
	s span, chat tidemark.ChatID, what, got string, changed bool, apply func(room) (room, string),
) {
	c.record(operation{
		span: s, client: c.n, chat: chat, what: what, got: got,
		reads: !changed && !s.unknown, writes: true, apply: apply,
	})
}

// recordRead records an operation that changes nothing.
func (c *client) recordRead(s span, chat tidemark.ChatID, what, got string, see func(room) string) {
	c.record(operation{
		span: s, client: c.n, chat: chat, what: what, got: got, reads: true,
		apply: func(r room) (room, string) { return r, see(r) },
	})
}

func (c *client) record(o operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = append(c.operations, &o)
}

// observation is a delivery state that a client received. States may return older states than other
// processes wrote, but not older ones than its own process has seen.
type observation struct {
	span
	store storage.Store
	reads bool // returned by States
	state tidemark.DeliveryState
}

func (c *client) observed(s span, reads bool, state tidemark.DeliveryState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observations = append(c.observations,
		observation{span: s, store: c.store, reads: reads, state: state})
}

// checkObservations tests the bounds of States where it is eventual.
func (h *history) checkObservations() {
	h.Helper()
	for _, g := range h.observations {
		for _, before := range h.observations {
			same := before.store == g.store && before.state.UserID == g.state.UserID &&
				before.state.ChatID == g.state.ChatID
			if g.reads && same && before.answer < g.call &&
				(before.state.Acked > g.state.Acked || before.state.Read > g.state.Read) {
				h.Fatalf("history with TIDEMARK_SEED=%d: States returned %+v at %v, after %+v was "+
					"returned at %v", h.seed, g.state, g.call, before.state, before.answer)
			}
		}
	}
}
