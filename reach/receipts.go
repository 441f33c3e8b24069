package reach

import (
	"container/heap"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// receiptsAtOnce is how many chats' receipts are delivered to an outlet at once.
	receiptsAtOnce = deliveries / 2
	// pause and largePause are the least times between two reads of the states of a chat, and of
	// the least boundary of a chat with more members than tidemark.StatusFanoutLimit.
	pause, largePause = time.Second, 10 * time.Second
	// maxMarks is how many marked chats of an outlet are kept in memory. The others wait in the
	// store.
	maxMarks = 100_000
	// maxTold is how many delivered states of chats without a mark are kept in memory. They spare
	// the outlet repeated states of members who did not change.
	maxTold = 100_000
)

// toldKey names a watermark that an outlet has accepted. The user "" stands for all members.
type toldKey struct {
	user tidemark.UserID
	of   outlet.Type
}

// told has the watermarks that the outlet has accepted.
type told map[toldKey]tidemark.Watermark

// mark is a chat in which watermarks may have risen.
type mark struct {
	// row is the mark as it was read. seen is when this process first saw its stamp.
	row  storage.Backlog
	seen time.Time
	// sweep is the number of the last pass over all marks that found it.
	sweep int
	// work is the delivery of its states. next is when they may be read again.
	work activity
	next time.Time
	told told
	// chat is the chat as it was when its states were read first. Then it has an id.
	chat tidemark.Chat
	// place is its index in receipts.work, or -1.
	place int
}

// agenda is a heap (container/heap) of the marks whose states are to be read, by when they may be.
type agenda []*mark

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].next.Before(a[j].next) }

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].place, a[j].place = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(m any) {
	m.(*mark).place = len(*a)
	*a = append(*a, m.(*mark))
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	m := (*a)[last]
	m.place, (*a)[last], *a = -1, nil, (*a)[:last]
	return m
}

// receipts is what is known of the receipts for one outlet. It is safe for concurrent use.
type receipts struct {
	wake  signal.Flag
	slots chan struct{}
	// quiet is Times.Quiet.
	quiet time.Duration

	mu sync.Mutex
	// hinted has chats in which a watermark rose, according to hints.
	hinted map[tidemark.ChatID]struct{}
	// marks has the chats that are marked, and work those of them whose states are to be read.
	marks map[tidemark.ChatID]*mark
	work  agenda
	// sweep counts the passes through all marks.
	sweep int
	// told has the accepted watermarks of chats without a mark. states is their number.
	told   map[tidemark.ChatID]told
	states int
}

func newReceipts(quiet time.Duration) receipts {
	return receipts{
		quiet: quiet, wake: signal.New(), slots: make(chan struct{}, receiptsAtOnce),
		hinted: map[tidemark.ChatID]struct{}{}, marks: map[tidemark.ChatID]*mark{},
		told: map[tidemark.ChatID]told{},
	}
}

// hint notes that a watermark rose in a chat. A hint that is lost costs time only.
func (r *receipts) hint(chat tidemark.ChatID) {
	r.mu.Lock()
	if len(r.hinted) < maxHinted {
		r.hinted[chat] = struct{}{}
	}
	r.mu.Unlock()
	r.wake.Set()
}

// found records a mark that was just read. Its chat becomes work if the mark is new, and once more
// when nobody can raise by it any more.
func (r *receipts) found(row *storage.Backlog, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.marks[row.Chat]
	if m == nil {
		if len(r.marks) >= maxMarks {
			return
		}
		m = &mark{told: r.told[row.Chat], place: -1}
		if r.states -= len(m.told); m.told == nil {
			m.told = told{}
		}
		delete(r.told, row.Chat)
		r.marks[row.Chat] = m
	}
	m.sweep = r.sweep
	renewed := m.row.Stamp != row.Stamp
	if renewed {
		m.seen = now
	}
	m.row = *row
	if renewed || m.quiet(now, r.quiet) {
		r.read(m)
	}
}

// read notes that the states of a mark are to be read. The mutex is held.
func (r *receipts) read(m *mark) {
	if m.work != resting {
		m.work.news()
	} else if m.place < 0 {
		heap.Push(&r.work, m)
	}
}

// quiet reports whether nobody can raise by the mark any more (R_QUIET).
func (m *mark) quiet(now time.Time, after time.Duration) bool {
	//rule:receipts_converge.wait-until-nobody-may-raise
	return now.Sub(m.seen) >= after
}

// swept begins a new pass through the marks. Those that the last one has not found are forgotten:
// they are gone, or another process works on them.
func (r *receipts) swept() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for chat, m := range r.marks {
		if m.sweep < r.sweep && m.work == resting {
			r.forget(chat, m)
		}
	}
	r.sweep++
}

// forget removes a mark, and remembers what was told of the chat. The mutex is held.
func (r *receipts) forget(chat tidemark.ChatID, m *mark) {
	delete(r.marks, chat)
	if m.place >= 0 {
		heap.Remove(&r.work, m.place)
	}
	if r.states += len(m.told); r.states > maxTold {
		clear(r.told)
		r.states = len(m.told)
	}
	r.told[chat] = m.told
}

// take returns the chats that were hinted and are not known to be marked. The known ones are noted
// as work.
func (r *receipts) take() (unknown []tidemark.ChatID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for chat := range r.hinted {
		if m := r.marks[chat]; m != nil {
			r.read(m)
		} else {
			unknown = append(unknown, chat)
		}
	}
	clear(r.hinted)
	return unknown
}

// begin takes a chat whose states may be read now. quiet reports whether the mark may be settled
// after that. It takes no longer if many other chats wait for their time. One that is not ready is
// asked for again after a pause.
func (r *receipts) begin(
	now time.Time, ready func(line) bool,
) (m *mark, row storage.Backlog, quiet bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.work) > 0 && !now.Before(r.work[0].next) {
		m := r.work[0]
		if !ready(line{m.row.Chat, feedReceipts}) {
			m.next = now.Add(pause)
			heap.Fix(&r.work, 0)
			continue
		}
		heap.Pop(&r.work)
		m.work.begin()
		return m, m.row, m.quiet(now, r.quiet)
	}
	return nil, storage.Backlog{}, false
}

// end ends the work on a chat. next is when it may be read again.
func (r *receipts) end(chat tidemark.ChatID, m *mark, again, settled bool, next time.Time) {
	r.mu.Lock()
	m.next = next
	if m.work.end() || again {
		r.read(m)
	}
	if settled {
		r.forget(chat, m)
	}
	r.mu.Unlock()
	r.wake.Set()
}

// receipts delivers the receipts for an outlet until ctx ends.
func (e *Engine) receipts(ctx context.Context, r *receiver) {
	if !r.spec.wantsReceipts() {
		return
	}
	var after storage.Backlog
	next := time.Now()
	for ctx.Err() == nil {
		var err error
		if !time.Now().Before(next) {
			next = time.Now().Add(e.times.Poll)
			err = e.findMarks(ctx, r, &after)
		}
		if err == nil {
			err = e.findHinted(ctx, r)
		}
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.Warn("the receipts for an outlet cannot be read now; trying again",
				"outlet", r.spec.ID, "error", err)
		}
		e.beginReceipts(ctx, r)
		r.receipts.wake.WaitUntil(ctx, next)
	}
}

// findMarks reads a page of the marks after a place, which it moves.
func (e *Engine) findMarks(ctx context.Context, r *receiver, after *storage.Backlog) error {
	e.mu.Lock()
	own := e.own
	e.mu.Unlock()
	if len(own) == 0 {
		return nil
	}
	if after.Chat == "" {
		r.receipts.swept()
	}
	found, more, err := e.cfg.Store.Backlogs(ctx, storage.BacklogQuery{
		Outlet: receiptsOf(r.spec.ID), Shards: own, After: *after, Limit: listed,
	})
	if err != nil {
		return err
	}
	now := time.Now()
	for i := range found {
		*after = found[i]
		r.receipts.found(&found[i], now)
	}
	if !more {
		*after = storage.Backlog{}
	}
	return nil
}

// findHinted reads the marks of chats that hints announced.
func (e *Engine) findHinted(ctx context.Context, r *receiver) error {
	for some := range slices.Chunk(r.receipts.take(), listed) {
		found, _, err := e.cfg.Store.Backlogs(ctx, storage.BacklogQuery{
			Outlet: receiptsOf(r.spec.ID), Chats: some,
		})
		if err != nil {
			return err
		}
		now := time.Now()
		for i := range found {
			r.receipts.found(&found[i], now)
		}
	}
	return nil
}

// beginReceipts begins to work on the chats that are due, while there are slots.
func (e *Engine) beginReceipts(ctx context.Context, r *receiver) {
	for ctx.Err() == nil {
		select {
		case r.receipts.slots <- struct{}{}:
		default:
			return
		}
		m, row, quiet := r.receipts.begin(time.Now(), r.readyFor)
		ok := m != nil
		if ok {
			if ok = r.health.begin(); !ok {
				r.receipts.end(row.Chat, m, true, false, time.Now().Add(pause))
			}
		}
		if !ok {
			<-r.receipts.slots
			return
		}
		e.running.Go(func() {
			defer func() { <-r.receipts.slots }()
			next := time.Now().Add(pause)
			whole, large, err := e.deliverReceipts(ctx, r, m, row.Chat)
			if large {
				next = time.Now().Add(largePause)
			}
			settled := false
			//rule:receipts_converge.settle-what-was-quiet
			if whole && err == nil && quiet {
				settled, err = e.settleOwn(ctx, row, beyond)
			}
			if err != nil && ctx.Err() == nil {
				e.cfg.Log.Warn("the receipts of a chat cannot be delivered now; trying again",
					"outlet", r.spec.ID, "chat", row.Chat, "error", err)
			}
			r.receipts.end(row.Chat, m, !whole || err != nil, settled, next)
		})
	}
}

// deliverReceipts reads the states of a chat, and delivers those that the outlet has not accepted
// yet. whole reports whether it has now accepted all of them. large reports whether the chat is
// large (boundaries).
func (e *Engine) deliverReceipts(
	ctx context.Context, r *receiver, m *mark, id tidemark.ChatID,
) (whole, large bool, err error) {
	defer r.health.abandoned() // If nothing was delivered.
	if m.chat.ID == "" {
		if m.chat, err = e.cfg.Store.Chat(ctx, id); err != nil {
			return false, false, err
		}
	}
	states, large, err := e.boundaries(ctx, &m.chat)
	if err != nil {
		return false, large, err
	}
	var steps []step
	var keys []toldKey
	for _, user := range slices.Sorted(maps.Keys(states)) {
		for _, t := range []outlet.Type{outlet.DeliveryUpdated, outlet.ReadUpdated} {
			event := receipt(t, &m.chat, user, states[user])
			key := toldKey{user, t}
			//rule:receipts_converge.tell-what-differs
			if r.spec.wants(t) && m.told[key] != tidemark.Watermark(event.Sequence) {
				steps, keys = append(steps, step{Event: event}), append(keys, key)
			}
		}
	}
	done, whole, err := e.drainSteps(ctx, r, line{id, feedReceipts}, steps)
	for i, key := range keys[:done] {
		m.told[key] = tidemark.Watermark(steps[i].Sequence)
	}
	return whole, large, err
}

// boundaries returns how far the members of a chat have received and read it, by user. In a chat of
// more than tidemark.StatusFanoutLimit members, it is the least boundary of all, for the user "".
func (e *Engine) boundaries(
	ctx context.Context, chat *tidemark.Chat,
) (states map[tidemark.UserID]tidemark.Boundary, large bool, err error) {
	states = map[tidemark.UserID]tidemark.Boundary{}
	large = chat.Large
	var keys []storage.StateKey
	if !large {
		roster, err := e.joined.rosters.one(ctx, chat.ID)
		if err != nil || roster == nil {
			return states, false, err
		}
		for _, m := range roster.Members {
			keys = append(keys, storage.StateKey{User: m.UserID, Chat: chat.ID})
		}
		large = len(keys) > tidemark.StatusFanoutLimit
	}
	if large {
		sum, err := e.cfg.Store.Summary(ctx, chat.ID, 0, "")
		//rule:deleted_is_gone.no-receipts-of-nobody
		if sum.Members > 0 {
			states[""] = sum.Least
		}
		return states, true, err
	}
	found, err := e.cfg.Store.States(ctx, keys)
	for i := range found {
		//rule:shown_within_real.receipts-of-what-is-shown
		states[found[i].UserID] = found[i].Exposed()
	}
	return states, false, err
}

// receipt returns the event of a boundary. Repetitions are equal. The time of a least boundary is
// not known; the event then has that of the chat's creation.
func receipt(
	t outlet.Type, chat *tidemark.Chat, user tidemark.UserID, b tidemark.Boundary,
) outlet.Event {
	at, watermark := b.AckedAt, b.Acked
	if t == outlet.ReadUpdated {
		at, watermark = b.ReadAt, b.Read
	}
	of := &user
	if user == "" {
		of = nil
	}
	data, err := json.Marshal(struct {
		Chat  tidemark.ChatID    `json:"chat_id"`
		User  *tidemark.UserID   `json:"user_id"`
		Acked tidemark.Watermark `json:"last_acked_sequence"`
		Read  tidemark.Watermark `json:"last_read_sequence"`
	}{chat.ID, of, b.Acked, b.Read})
	e := stateEvent(t, chat, data, err)
	if at != 0 {
		e.Time = time.UnixMilli(int64(at)).UTC()
	}
	e.ID = outlet.EventID(t, string(data), e.Time.String())
	e.User, e.Sequence = user, uint64(watermark)
	return e
}

// hintReceipts says that a watermark rose in a chat. It never blocks: Run passes the hint on.
func (e *Engine) hintReceipts(chat tidemark.ChatID) { e.hint(line{chat, feedReceipts}) }

// passReceipts tells those who want receipts in which of some lines a watermark rose. It tells them
// of all: their list does not show a raise by a mark that they know.
func (e *Engine) passReceipts(lines map[line]struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.receivers {
		if !r.spec.wantsReceipts() {
			continue
		}
		for of := range lines {
			if of.feed == feedReceipts {
				r.receipts.hint(of.chat)
			}
		}
	}
}
