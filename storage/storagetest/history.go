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

// A history is what clients ask of few chats and users at once, and what they are answered. Porcupine looks for an order of the operations in which
// each gets the answer that it got from the specification (room). A call about several chats, or several items that are atomic one by one,
// is taken apart. Some calls lose their context under way: they may have happened, then or later, or not.
type history struct {
	*world
	// stores are those on the same data. Client n uses the nth, and so on around.
	stores []storage.Store
	seed   uint64
	began  time.Time
	people []tidemark.UserID
	rooms  []tidemark.ChatID
	first  map[tidemark.ChatID]room

	mu         sync.Mutex
	operations []*operation
	// top is the highest sequence that somebody was told.
	top     map[tidemark.ChatID]tidemark.Sequence
	glances []glance
	lost    int // calls of unknown outcome
	tick    int
}

// operation is one operation in one chat.
type operation struct {
	span
	client    int
	chat      tidemark.ChatID
	what, got string
	// apply is what the specification does: the room afterwards, and the answer.
	apply func(room) (room, string)
	// reads says that it changed nothing, by its nature or by its answer.
	reads bool
	// writes says that it may lock the chat while it is under way, whatever it changes.
	writes bool
	// refused says that a draft of it was refused alone as Unavailable.
	refused bool
}

// span is when an operation was under way, since the history began.
type span struct {
	call, answer time.Duration
	// unknown says that nobody knows whether it happened; answer is maxTime then.
	unknown bool
}

const maxTime = time.Duration(math.MaxInt64)

const (
	// historyVariable says how many histories are made of each store.
	historyVariable = "TIDEMARK_HISTORY_RUNS"
	historyRuns     = 30
	historyClients  = 6
	historyCalls    = 14
	historyKeys     = 5
	historyLost     = 3
)

// testHistories makes histories on one store, or on several with the same data.
func testHistories(t *testing.T, first suite, others ...storage.Store) {
	runs := historyRuns
	if given := os.Getenv(historyVariable); given != "" {
		var err error
		if runs, err = strconv.Atoi(given); err != nil || runs < 1 {
			t.Fatalf("%s is %q, want a number from 1", historyVariable, given)
		}
	}
	var sum tally
	for range runs {
		sum.add(t, first, others)
	}
	sum.log(t)
}

// RunHistories makes histories on a store that the test disturbs, until a number of drafts were
// refused alone.
func RunHistories(t *testing.T, open func(t *testing.T) storage.Store, refusals int) {
	s := newSuite(open(t))
	var sum tally
	for sum.refused < refusals {
		if sum.histories == historyRuns {
			t.Fatalf("%d drafts were refused alone in %d histories, want %d",
				sum.refused, historyRuns, refusals)
		}
		sum.add(t, s, nil)
	}
	sum.log(t)
}

// tally counts histories and what was in them.
type tally struct {
	histories, operations, unknown, refused int
	hardest                                 time.Duration
}

// add makes a history, and fails the test if the contract does not allow it.
func (sum *tally) add(t *testing.T, first suite, others []storage.Store) {
	t.Helper()
	h := newHistory(first.world(t), others)
	h.run()
	sum.histories++
	for _, o := range h.operations {
		sum.operations++
		if o.unknown {
			sum.unknown++
		}
		if o.refused {
			sum.refused++
		}
	}
	began := time.Now()
	for _, chat := range h.rooms {
		for _, broken := range []string{h.check(chat), h.unexplained(chat)} {
			if broken != "" {
				t.Fatalf("history with TIDEMARK_SEED=%d: %s", h.seed, broken)
			}
		}
	}
	h.checkGlances()
	sum.hardest = max(sum.hardest, time.Since(began))
}

func (sum *tally) log(t *testing.T) {
	t.Helper()
	t.Logf("%d histories of %d operations, %d of unknown outcome, %d with a draft refused alone; "+
		"the hardest took %v to explain", sum.histories, sum.operations, sum.unknown, sum.refused, sum.hardest)
}

// historySeed is TIDEMARK_SEED, which repeats the choices of one history as often as there would be
// others, or a number of its own for each.
func historySeed(w *world) uint64 {
	given := os.Getenv("TIDEMARK_SEED")
	if given == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(given, 10, 64)
	if err != nil {
		w.Fatalf("TIDEMARK_SEED is %q, want a number", given)
	}
	return seed
}

// newHistory makes two groups of three people; the fourth is a stranger to both.
func newHistory(w *world, others []storage.Store) *history {
	h := &history{
		world:  w,
		stores: append([]storage.Store{w.store}, others...),
		seed:   historySeed(w),
		people: w.users("alice", "bob", "carol", "dave"),
		first:  map[tidemark.ChatID]room{},
		top:    map[tidemark.ChatID]tidemark.Sequence{},
	}
	for _, mode := range []tidemark.HistoryMode{tidemark.HistoryFull, tidemark.HistorySinceJoin} {
		chat := w.create(storage.NewChat{
			ID:      w.chat(string(mode)),
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

// run lets the clients call all at once, and one more look at everything afterwards.
func (h *history) run() {
	h.ok(concurrently(historyClients, func(n int) error {
		c := h.client(n)
		for range historyCalls {
			if err := c.act(); err != nil {
				return fmt.Errorf("TIDEMARK_SEED=%d: %w", h.seed, err)
			}
		}
		return nil
	}))
	h.ok(h.client(historyClients).lookAtAll())
}

// client is one of those who call, one call after the other.
type client struct {
	*history
	n     int
	store storage.Store
	dice  *rand.Rand
}

func (h *history) client(n int) *client {
	return &client{
		history: h,
		n:       n,
		store:   h.stores[n%len(h.stores)],
		dice:    rand.New(rand.NewPCG(h.seed, uint64(n))),
	}
}

// now is a time that no other operation of the history has.
func (h *history) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	return at(h.tick)
}

// do makes a call of the store. A write may lose its context under way. A write that returns
// Unavailable may have happened or not: its context ended, or a lock or the disk kept it waiting
// for too long. A read waits for neither, so it has to succeed.
func (c *client) do(write bool, call func(ctx context.Context) error) (span, error) {
	ctx, hurried := c.ctx, write && c.dice.IntN(12) == 0 && c.mayHurry()
	if hurried {
		limited, cancel := context.WithTimeout(ctx,
			time.Duration(c.dice.IntN(1_500))*time.Microsecond)
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

// mayHurry bounds how many calls have an unknown outcome: each of them doubles what the search has to look at.
func (h *history) mayHurry() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost < historyLost
}

// saw notes an operation: what was asked, what was answered, whether that means that it changed something, and what the specification does.
func (c *client) saw(
	s span, chat tidemark.ChatID, what, got string, changed bool, apply func(room) (room, string),
) {
	c.note(operation{
		span: s, client: c.n, chat: chat, what: what, got: got,
		reads: !changed && !s.unknown, writes: true, apply: apply,
	})
}

// looked notes an operation that changes nothing.
func (c *client) looked(s span, chat tidemark.ChatID, what, got string, see func(room) string) {
	c.note(operation{
		span: s, client: c.n, chat: chat, what: what, got: got, reads: true,
		apply: func(r room) (room, string) { return r, see(r) },
	})
}

func (c *client) note(o operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = append(c.operations, &o)
}

// glance is a delivery state that a client was told. States may lag behind what other processes wrote, but not behind what their own one has seen.
type glance struct {
	span
	store storage.Store
	reads bool // told by States
	state tidemark.DeliveryState
}

func (c *client) glanced(s span, reads bool, state tidemark.DeliveryState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.glances = append(c.glances, glance{span: s, store: c.store, reads: reads, state: state})
}

// checkGlances holds States to its contract where it may be eventual.
func (h *history) checkGlances() {
	h.Helper()
	for _, g := range h.glances {
		for _, before := range h.glances {
			same := before.store == g.store && before.state.UserID == g.state.UserID &&
				before.state.ChatID == g.state.ChatID
			if g.reads && same && before.answer < g.call &&
				(before.state.Acked > g.state.Acked || before.state.Read > g.state.Read) {
				h.Fatalf("history with TIDEMARK_SEED=%d: States told %+v at %v, after %+v was "+
					"told at %v", h.seed, g.state, g.call, before.state, before.answer)
			}
		}
	}
}
