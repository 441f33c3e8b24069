package ticks

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// acks is the raises of watermarks that wait: for each user and chat the highest. All of them are written together, at most once in
// Config.AckInterval, at once when nothing was written for so long.
type acks struct {
	signal chan struct{}
	// writing has room for one token, which is held while a batch is written, so that Flush returns only when all that was added before it is.
	writing chan struct{}

	mu      sync.Mutex
	pending map[storage.StateKey]*raises
	// flying is what is being written.
	flying  map[storage.StateKey]*raises
	retries []retry
	// ended says that nothing writes any more what would wait.
	ended bool
}

// raises is what waits to be written for one user and chat.
type raises struct {
	acked, read candidates
	runs        []authorRun
}

// candidates is the highest sequence that was given for a watermark, and the last few below it: if the highest turns out to be beyond the head, it must
// not take a good one with it.
type candidates struct {
	top   tidemark.Sequence
	lower []tidemark.Sequence
}

// maxLower bounds the candidates below the highest.
const maxLower = 4

func (c *candidates) add(n tidemark.Sequence) {
	//rule:multi_device_highest_wins.keep-highest
	if n > c.top {
		n, c.top = c.top, n
	}
	if n == 0 || n == c.top {
		return
	}
	if len(c.lower) == maxLower {
		c.lower = append(c.lower[:0], c.lower[1:]...)
	}
	c.lower = append(c.lower, n)
}

// within returns the highest candidate that is not above the head, 0 if there is none.
func (c *candidates) within(head tidemark.Sequence) tidemark.Sequence {
	best := tidemark.Sequence(0)
	//rule:ack_cumulative.try-lower-after-refusal
	for _, n := range append([]tidemark.Sequence{c.top}, c.lower...) {
		if n <= head {
			best = max(best, n)
		}
	}
	return best
}

// covers returns how far a watermark at top will rise by the user's own runs and acknowledgements.
func (r *raises) covers(top tidemark.Sequence) tidemark.Sequence {
	if r == nil {
		return top
	}
	top = max(top, r.acked.top)
	for _, run := range r.runs {
		if run.from <= top+1 {
			top = max(top, run.to)
		}
	}
	return top
}

// authorRun is consecutive messages that the user wrote himself (delivery.md §6, "does the author count").
type authorRun struct {
	from, to tidemark.Sequence
	seen     tidemark.Sequence
	// covered says that no row was marked for the author since the run was expected to raise his watermark.
	covered bool
	// again says that the run was tried before.
	again bool
}

// retry is a run that did not join the watermark and is tried once more.
type retry struct {
	due time.Time
	key storage.StateKey
	run authorRun
}

// maxAcks bounds the users and chats that wait. Acknowledgements beyond it are dropped, and sent again by their clients.
const maxAcks = 200_000

// ackBatch is how many raises one call to storage has.
const ackBatch = 2_000

// waitingLocked returns the entry of a user and chat, nil if there is no room for a new one.
func (a *acks) waitingLocked(key storage.StateKey) *raises {
	r := a.pending[key]
	//rule:pending_or_delivered.not-covered-after-end
	if r == nil && !a.ended && len(a.pending) < maxAcks {
		r = &raises{}
		a.pending[key] = r
	}
	return r
}

// Add takes an acknowledgement from a stream: it is written soon. Zero leaves a watermark.
func (t *Ticks) Add(user tidemark.UserID, chat tidemark.ChatID, acked, read tidemark.Sequence) {
	t.Count.Acks.Add(1)
	//rule:ack_fire_and_forget.ignore-empty-acknowledgement
	if !tidemark.ValidID(chat) || (acked == 0 && read == 0) {
		t.Count.Malformed.Add(1)
		return
	}
	t.acks.mu.Lock()
	defer t.acks.mu.Unlock()
	r := t.acks.waitingLocked(storage.StateKey{User: user, Chat: chat})
	if r == nil {
		t.Count.Dropped.Add(1)
		return
	}
	r.acked.add(acked)
	r.read.add(read)
	//rule:delivered_is_eventually_consistent.signal-writer
	signal(t.acks.signal)
}

// Authored queues the raise that a message of the user's own implies; seen is what he states he was shown, or 0. It reports whether the run joins his
// watermark, as far as is known, so that he needs no row.
func (t *Ticks) Authored(user tidemark.UserID, chat tidemark.ChatID, sequence, seen tidemark.Sequence) (covered bool) {
	key := storage.StateKey{User: user, Chat: chat}
	t.acks.mu.Lock()
	defer t.acks.mu.Unlock()
	// Under the lock: what is written is taken out of flying only after it is known.
	top, _ := t.cfg.Known.Acked(key)
	r := t.acks.waitingLocked(key)
	if r == nil {
		return false
	}
	//rule:pending_or_delivered.covered-without-hole
	covered = sequence <= r.covers(t.acks.flying[key].covers(top))+1
	last := slices.IndexFunc(r.runs, func(run authorRun) bool { return run.to+1 == sequence && !run.again })
	if last >= 0 && r.runs[last].covered == covered {
		r.runs[last].to, r.runs[last].seen = sequence, max(r.runs[last].seen, seen)
	} else {
		r.runs = append(r.runs, authorRun{from: sequence, to: sequence, seen: seen, covered: covered})
	}
	signal(t.acks.signal)
	return covered
}

// AckLoop writes what waits, until ctx ends.
func (t *Ticks) AckLoop(ctx context.Context) {
	for {
		next, any := t.requeue(time.Now())
		if !wait(ctx, t.acks.signal, next, any) {
			return
		}
		t.requeue(time.Now())
		t.Flush(ctx)
		//rule:delivered_is_eventually_consistent.collect-for-an-interval
		if !wait(ctx, nil, t.cfg.AckInterval, true) {
			return
		}
	}
}

// requeue puts the runs whose second try is due back among those that wait, and says when the next one is.
func (t *Ticks) requeue(now time.Time) (next time.Duration, any bool) {
	a := &t.acks
	a.mu.Lock()
	n := 0
	for n < len(a.retries) && !a.retries[n].due.After(now) {
		n++
	}
	due := append([]retry(nil), a.retries[:n]...)
	a.retries = append(a.retries[:0], a.retries[n:]...)
	if any = len(a.retries) > 0; any {
		next = a.retries[0].due.Sub(now)
	}
	a.mu.Unlock()
	for _, r := range due {
		t.waitAgain(r.key, []authorRun{r.run})
	}
	return next, any
}

// item is one raise of a batch: what was given for one user and chat, and the author's runs that it stands for.
type item struct {
	advance storage.Advance
	given   *raises
	runs    []authorRun
}

// fold makes one raise of everything that waits for a user and chat, under the bound of a head: the acknowledgement, and the runs that join it or follow each
// other from it. A run that joins nothing is a raise of its own, with a condition; what it leaves has to wait for the next batch.
func fold(r *raises, head tidemark.Sequence) (raise tidemark.Raise, runs, left []authorRun) {
	raise.Acked, raise.Read = r.acked.within(head), r.read.within(head)
	for _, run := range r.runs {
		switch {
		case raise.Acked == 0 && raise.Read == 0:
			raise = tidemark.ImplicitRead(run.to, run.seen)
			raise.Acked, raise.AckedFrom = run.to, run.from
		//rule:ack_cumulative.join-without-hole
		case raise.Acked > 0 && raise.Acked+1 >= run.from && (raise.AckedFrom == 0 || raise.ReadWithinAcked == (run.seen == 0)):
			// Whatever lets the raise so far take effect lets the run do so; and what is read is bounded in the same way.
			raise.Acked = max(raise.Acked, run.to)
			read := tidemark.ImplicitRead(run.to, run.seen).Read
			if raise.Read < read {
				raise.Read = read
			}
		default:
			left = append(left, run)
			continue
		}
		runs = append(runs, run)
	}
	return raise, runs, left
}

// Flush writes everything that waits. If ctx ends while another Flush is writing, what waits is left to the next one.
func (t *Ticks) Flush(ctx context.Context) {
	select {
	case t.acks.writing <- struct{}{}:
		defer func() { <-t.acks.writing }()
	case <-ctx.Done():
		return
	}
	t.acks.mu.Lock()
	pending := t.acks.pending
	t.acks.pending, t.acks.flying = make(map[storage.StateKey]*raises), pending
	t.acks.mu.Unlock()
	defer func() {
		t.acks.mu.Lock()
		t.acks.flying = nil
		t.acks.mu.Unlock()
	}()
	items := make([]item, 0, len(pending))
	for key, r := range pending {
		items = t.fold(items, key, r, tidemark.MaxSequence)
	}
	// In the order of their keys: nodes whose storage locks row by row do not wait for each other in a circle, and runs can be repeated.
	slices.SortFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.advance.User, b.advance.User), cmp.Compare(a.advance.Chat, b.advance.Chat))
	})
	for len(items) > 0 {
		n := min(len(items), ackBatch)
		t.write(ctx, t.ofMembers(ctx, items[:n]))
		//rule:delivered_is_eventually_consistent.write-all-batches
		items = items[n:]
	}
}

// fold appends the raise of a user and chat; runs that are left wait again.
func (t *Ticks) fold(items []item, key storage.StateKey, r *raises, head tidemark.Sequence) []item {
	raise, runs, left := fold(r, head)
	t.waitAgain(key, left)
	if raise == (tidemark.Raise{}) {
		return items
	}
	return append(items, item{given: r, runs: runs, advance: storage.Advance{User: key.User, Chat: key.Chat, Now: t.cfg.Now(), Raise: raise}})
}

// waitAgain puts runs back among those that wait. Without room for them, rows are owed for those that had none.
func (t *Ticks) waitAgain(key storage.StateKey, runs []authorRun) {
	if len(runs) == 0 {
		return
	}
	t.acks.mu.Lock()
	r := t.acks.waitingLocked(key)
	if r != nil {
		r.runs = append(r.runs, runs...)
		signal(t.acks.signal)
	}
	t.acks.mu.Unlock()
	if r == nil {
		t.giveUp(key, runs)
	}
}

// ofMembers leaves out the acknowledgements of those who are not members, by the rosters that are remembered (ADR-008 §3.1); a no is read again.
func (t *Ticks) ofMembers(ctx context.Context, items []item) []item {
	keys := make([]storage.StateKey, len(items))
	for i, it := range items {
		keys[i] = storage.StateKey{User: it.advance.User, Chat: it.advance.Chat}
	}
	verdicts, err := t.cfg.Feed.Members(ctx, keys)
	if err != nil {
		return items // the write will tell
	}
	kept := items[:0]
	for i, it := range items {
		//rule:nothing_outside_membership.acknowledgement-by-members
		if verdicts[i] == nil || len(it.runs) > 0 { // he was a member when he wrote them
			kept = append(kept, it)
		} else {
			t.Count.Strangers.Add(1)
		}
	}
	return kept
}

// again folds the refused items anew, under the heads of their chats.
func (t *Ticks) again(ctx context.Context, refused []item) []item {
	chats := make([]tidemark.ChatID, len(refused))
	for i := range refused {
		chats[i] = refused[i].advance.Chat
	}
	heads, err := t.cfg.Storage.Heads(ctx, chats)
	if err != nil {
		t.Count.StorageErrors.Add(1)
		for _, it := range refused {
			t.failed(it)
		}
		return nil
	}
	var items []item
	for i, it := range refused {
		again := *it.given
		again.runs = it.runs
		items = t.fold(items, storage.StateKey{User: it.advance.User, Chat: it.advance.Chat}, &again, heads[i])
	}
	for i := range items {
		items[i].given = nil
	}
	return items
}

// write writes one batch of raises and does what follows from them.
func (t *Ticks) write(ctx context.Context, items []item) {
	if len(items) == 0 {
		return
	}
	advances := make([]storage.Advance, len(items))
	for i := range items {
		advances[i] = items[i].advance
	}
	advanced, rows, err := t.advance(ctx, advances)
	if err != nil {
		// Explicit acknowledgements are lost, and sent again by their clients (ADR-008 §3.3). Runs have nobody to send them again.
		t.cfg.Log.Warn("acknowledgements were not written", "count", len(items), "error", err)
		for i := range items {
			t.failed(items[i])
		}
		return
	}
	var clears []storage.Clear
	var refused []item
	for i, done := range advanced {
		it := items[i]
		if done.Err != nil {
			t.Count.Beyond.Add(1)
			if it.given != nil {
				refused = append(refused, it)
			}
			continue
		}
		if n := len(it.runs); n > 0 && done.State.Acked < it.runs[n-1].to {
			t.failed(it)
		}
		//rule:pending_or_delivered.keep-row-of-author
		if it.given == nil || it.given.acked.top > 0 {
			//rule:R_CLEAR.clear-acknowledged-row
			if rows[i] {
				clears = append(clears, storage.Clear{User: done.State.UserID, Chat: done.State.ChatID, Through: done.State.Acked})
			}
		}
	}
	t.Clear(ctx, clears)
	if len(refused) > 0 {
		t.write(ctx, t.again(ctx, refused))
	}
}

// failed tries the runs of an item once more, after Config.AuthorRetry. Runs that fail again leave their messages to be acknowledged by the author's devices; if no
// row was marked since one was expected to succeed, one is now.
func (t *Ticks) failed(it item) {
	key := storage.StateKey{User: it.advance.User, Chat: it.advance.Chat}
	due := time.Now().Add(t.cfg.AuthorRetry)
	t.acks.mu.Lock()
	var over []authorRun
	for _, run := range it.runs {
		//rule:ack_cumulative.retry-failed-run-once
		if run.again || len(t.acks.retries) >= maxAcks {
			over = append(over, run)
			continue
		}
		run.again = true
		t.acks.retries = append(t.acks.retries, retry{due: due, key: key, run: run})
	}
	t.acks.mu.Unlock()
	signal(t.acks.signal)
	//rule:pending_or_delivered.give-up-to-row
	t.giveUp(key, over)
}

// giveUp owes rows for the runs that had none.
func (t *Ticks) giveUp(key storage.StateKey, runs []authorRun) {
	for _, run := range runs {
		//rule:pending_or_delivered.row-for-covered-message
		if run.covered {
			t.cfg.Owe([]tidemark.PendingDelivery{{UserID: key.User, ChatID: key.Chat, FirstUndelivered: run.from}})
		}
	}
}

// Abandon gives up the runs that wait, because the node is ending and nothing writes them any more. No later run covers its author.
func (t *Ticks) Abandon() {
	t.acks.mu.Lock()
	retries, pending := t.acks.retries, t.acks.pending
	t.acks.retries, t.acks.pending, t.acks.ended = nil, make(map[storage.StateKey]*raises), true
	t.acks.mu.Unlock()
	for _, r := range retries {
		t.giveUp(r.key, []authorRun{r.run})
	}
	for key, r := range pending {
		t.giveUp(key, r.runs)
	}
}

// Advance writes raises at once and lets everyone know: remembered watermarks, the users' sessions, and the members' ticks.
func (t *Ticks) Advance(ctx context.Context, advances []storage.Advance) ([]storage.Advanced, error) {
	advanced, _, err := t.advance(ctx, advances)
	return advanced, err
}

// advance also says for each raise whether a session of the user here knows that a pending row may stand.
func (t *Ticks) advance(ctx context.Context, advances []storage.Advance) (advanced []storage.Advanced, rows []bool, err error) {
	if len(advances) == 0 {
		return nil, nil, nil
	}
	advanced, err = t.cfg.Storage.Advance(ctx, advances)
	if err != nil {
		t.Count.StorageErrors.Add(1)
		return nil, nil, err
	}
	t.Count.Advances.Add(int64(len(advances)))
	rows = make([]bool, len(advanced))
	for i, done := range advanced {
		if done.Err != nil {
			continue
		}
		st := done.State
		for _, s := range t.cfg.Sessions(st.UserID) {
			rows[i] = s.Acknowledged(st.ChatID, st.Acked) || rows[i]
		}
		if done.Moved {
			t.Count.Moved.Add(1)
			t.moved(st)
		} else {
			t.cfg.Known.Raise(st)
		}
	}
	return advanced, rows, nil
}

// Clear ends or trims pending rows. A row that is left because of an error stands at or below the watermark, which is harmless.
func (t *Ticks) Clear(ctx context.Context, clears []storage.Clear) {
	if len(clears) == 0 {
		return
	}
	cleared, err := t.cfg.Storage.Clear(ctx, clears)
	if err != nil {
		t.Count.StorageErrors.Add(1)
		t.cfg.Log.Warn("pending rows were not cleared", "count", len(clears), "error", err)
		return
	}
	t.Count.Clears.Add(int64(len(clears)))
	for i, touched := range cleared {
		if touched {
			t.Count.Cleared.Add(1)
		}
		for _, s := range t.cfg.Sessions(clears[i].User) {
			s.Cleared(clears[i].Chat)
		}
	}
}
