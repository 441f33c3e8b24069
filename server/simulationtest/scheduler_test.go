package simulationtest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
	registrymemory "github.com/tidemark-im/tidemark/server/registry/memory"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// The nodes' durations. They are short, so that a run covers many of them. They have no common
// multiple, so that two timers of a node rarely end at the same moment. Otherwise the runtime would
// choose which is served first.
const (
	resumeWindow   = 15*time.Second + 11*time.Nanosecond
	grace          = 3*time.Second + 17*time.Nanosecond
	leaseTTL       = 20*time.Second + 23*time.Nanosecond
	ackInterval    = 50*time.Millisecond + 29*time.Nanosecond
	statusInterval = 100*time.Millisecond + 31*time.Nanosecond
	authorRetry    = time.Second + 37*time.Nanosecond

	aggregateInterval = time.Second + 41*time.Nanosecond
	writtenInterval   = 4*time.Second + 43*time.Nanosecond
)

// simulation is one run, with its scheduler. Its methods belong to the scheduler's goroutine,
// unless they say otherwise.
type simulation struct {
	dice  *rand.Rand
	gate  gate
	raw   *memory.Store
	reg   *registrymemory.Registry
	log   *slog.Logger
	truth *truth
	// quiet says that nothing has gone wrong for long enough: no node has anything outdated.
	quiet bool
	// trace is nil unless the run is a straight one (trace_test.go).
	trace *trace
	life  life
	crowd crowd

	enabled map[fault]bool
	crash   crashPoint
	calm    bool
	small   bool
	now     int
	chats   []tidemark.ChatID
	users   []tidemark.UserID
	devices []*device
	outbox  []*outgoing
	// most is how many messages are written. hurry is about how long sessions last and devices stay
	// offline.
	most  int
	hurry int
	// above is 0 if a row was put above the head, else 1.
	above   tidemark.Sequence
	spawned int

	// unanswered counts the calls that the registry did not answer.
	unanswered atomic.Int64
	running    sync.WaitGroup
	acts       int

	// mu guards what the nodes' goroutines use too.
	mu       sync.Mutex
	nodes    []*node
	inFlight []*publication
	finished []finish
	counts   map[string]int
	lines    []byte
	failure  string
}

// finish is an act that has ended.
type finish struct {
	number int
	done   func()
}

func (w *simulation) roll(n int) int { return w.dice.IntN(n) }

// chance returns true once in n times, if the run has the fault and faults are still on.
func (w *simulation) chance(f fault, n int) bool {
	return !w.calm && w.enabled[f] &&
		w.roll(n) == 0
}

func pick[T any](w *simulation, of []T) T { return of[w.roll(len(of))] }

// count counts a fault that occurred. Any goroutine may call it.
func (w *simulation) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// failf records the first violation. Any goroutine may call it.
func (w *simulation) failf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == "" {
		w.failure = fmt.Sprintf("step %d: ", w.now) + fmt.Sprintf(format, args...)
		w.lines = append(w.lines, "FAILURE "+w.failure+"\n"...)
	}
}

func (w *simulation) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure != ""
}

// transcribe adds a line to the transcript.
func (w *simulation) transcribe(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = fmt.Appendf(w.lines, "%d ", w.now)
	w.lines = fmt.Appendf(w.lines, format, args...)
	w.lines = append(w.lines, '\n')
}

// act runs what a client or an operator does. Its calls wait at the gate, and the scheduler handles
// its result.
func (w *simulation) act(n *node, what string, f func(ctx context.Context) func()) {
	w.acts++
	number := w.acts
	w.transcribe("#%d %s", number, what)
	ctx := context.WithValue(context.Background(), opKey{}, fmt.Sprintf("#%d", number))
	w.running.Go(func() {
		done := f(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !n.dead.Load() {
			w.finished = append(w.finished, finish{number, done})
		}
	})
}

// wait waits until nothing runs, and handles acts that have ended. A moment passes, so that no two
// deadlines are equal.
func (w *simulation) wait() {
	time.Sleep(time.Duration(1 + w.roll(1000)))
	for {
		synctest.Wait()
		w.mu.Lock()
		finished := w.finished
		w.finished = nil
		w.mu.Unlock()
		if len(finished) == 0 {
			return
		}
		slices.SortFunc(finished, func(a, b finish) int { return cmp.Compare(a.number, b.number) })
		for _, f := range finished {
			f.done()
		}
	}
}

// settle releases calls until nothing is left to do without time passing.
func (w *simulation) settle() {
	for range 20_000 {
		w.now++
		w.wait()
		if w.failed() {
			return
		}
		if all, _ := w.gate.waiting(); len(all) > 0 {
			w.letGo(all[0])
		} else if !w.deliverOne(0) {
			return
		}
	}
	w.failf("the nodes do not come to rest")
}

// doze lets time pass without releasing calls.
func (w *simulation) doze(d time.Duration) { time.Sleep(d) }

// pass lets time pass and releases all calls.
func (w *simulation) pass(d time.Duration) {
	for d > 0 && !w.failed() {
		slice := min(d, 500*time.Millisecond+time.Duration(w.roll(1000)))
		time.Sleep(slice)
		d -= slice
		w.settle()
	}
}

func (w *simulation) up() []*node {
	var up []*node
	for _, n := range w.nodes {
		if n.up {
			up = append(up, n)
		}
	}
	return up
}

func (w *simulation) epoch() registry.Epoch {
	epoch, err := w.reg.Epoch(context.Background())
	if err != nil {
		w.failf("Epoch: %v", err)
	}
	return epoch
}

// deliverOne delivers a publication.
func (w *simulation) deliverOne(i int) bool {
	w.mu.Lock()
	if len(w.inFlight) == 0 {
		w.mu.Unlock()
		return false
	}
	p := w.inFlight[i%len(w.inFlight)]
	w.inFlight = slices.DeleteFunc(w.inFlight, func(other *publication) bool { return other == p })
	w.mu.Unlock()
	w.transcribe("arrives %s", p.what)
	w.deliver(p)
	return true
}

// found creates the chats. A large chat has members who never connect.
func (w *simulation) found() {
	w.users = []tidemark.UserID{"alice", "bob", "carol", "dave"}
	all := []storage.NewChat{
		{
			ID:      "ab",
			Type:    tidemark.Direct,
			History: tidemark.HistoryFull,
			Members: []tidemark.UserID{"alice", "bob"},
		},
		{
			ID:      "full",
			Type:    tidemark.Group,
			History: tidemark.HistoryFull,
			Members: []tidemark.UserID{"alice", "bob", "carol"},
		},
		{
			ID:      "join",
			Type:    tidemark.Group,
			History: tidemark.HistorySinceJoin,
			Members: []tidemark.UserID{"alice", "bob", "dave"},
		},
	}
	w.dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:1+w.roll(3)]
	if w.small {
		all = all[:1]
	}
	if w.roll(6) == 0 {
		large := storage.NewChat{
			ID:      "large",
			Type:    tidemark.Group,
			History: tidemark.HistoryFull,
			Members: []tidemark.UserID{"alice", "bob", "carol"},
		}
		for i := range tidemark.PendingFanoutLimit {
			large.Members = append(large.Members, tidemark.UserID(fmt.Sprintf("crowd-%03d", i)))
		}
		all = append(all[:1], large)
	}
	for _, new := range all {
		new.Creator, new.CreatedAt = "alice", time.Now()
		if _, _, err := w.raw.CreateChat(context.Background(), new); err != nil {
			w.failf("CreateChat: %v", err)
		}
		w.truth.created(new)
		w.trace.asks("alice", frame{
			"type": "create", "chat": new.ID, "kind": new.Type, "history": new.History,
			"members": new.Members,
		})
		w.chats = append(w.chats, new.ID)
	}
	slices.Sort(w.chats)
	w.most, w.hurry, w.above = 2+w.roll(10), pick(w, []int{4, 15, 15, 30}), 1
	if w.small {
		w.most, w.hurry = 2+w.roll(4), 4
	}
	if w.life.expiries {
		w.ancient()
	}
	if w.roll(4) == 0 && w.trace == nil {
		w.past()
	}
	for _, user := range w.users {
		if w.small && !w.enabled[comings] && !w.truth.member(user, w.chats[0]) {
			continue
		}
		for i := range 1 + w.roll(2) {
			w.devices = append(w.devices,
				w.device(user, tidemark.DeviceID(fmt.Sprintf("d%d", i+1))))
		}
	}
}

// past prepares earlier state: messages of a node that died before it handed them over, and a row
// above the head.
func (w *simulation) past() {
	for i := range 1 + w.roll(3) {
		chat := pick(w, w.chats)
		id := fmt.Sprintf("past-%d", i)
		drafts := []tidemark.Draft{{
			ChatID:          chat,
			SenderID:        "alice",
			ClientMessageID: id,
			Content:         id,
			ContentType:     tidemark.DefaultContentType,
			MessageID:       tidemark.MessageID(id),
			CreatedAt:       time.Now().UTC(),
		}}
		appended, err := w.raw.Append(context.Background(), drafts)
		if err != nil {
			w.failf("Append: %v", err)
			return
		}
		w.truth.appended(drafts, appended)
	}
	chat, user := pick(w, w.chats), pick(w, w.users)
	if w.roll(2) == 0 || chat == "large" || !w.truth.member(user, chat) {
		return
	}
	w.above = 0
	above := tidemark.PendingDelivery{
		UserID: user, ChatID: chat, FirstUndelivered: w.head(chat) + 1,
	}
	_, err := w.raw.Mark(context.Background(), []tidemark.PendingDelivery{above})
	if err != nil {
		w.failf("Mark: %v", err)
	}
}

func (w *simulation) device(user tidemark.UserID, id tidemark.DeviceID) *device {
	return &device{
		w:       w,
		user:    user,
		id:      id,
		cursors: w.roll(3) == 0,
		lazy:    pick(w, []int{0, 0, 50, 95}),
		until:   w.roll(200),
		has:     map[tidemark.ChatID]map[tidemark.Sequence]bool{},
		ticks:   map[storage.StateKey]tidemark.Boundary{},
	}
}
