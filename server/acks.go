package server

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// acks coalesces raises of watermarks: for each user and chat the highest is kept, and all of them are written together, at most once in
// Config.AckInterval, at once when nothing was written for so long. It is safe for concurrent use.
type acks struct {
	server *Server
	signal chan struct{}
	// writing is held while a batch is written, so that flush returns only when all that was added before it is.
	writing sync.Mutex

	mu      sync.Mutex
	pending map[storage.StateKey]*raises
	retries []retry
}

// raises is what waits to be written for one user and chat.
type raises struct {
	acked, read tidemark.Sequence
	runs        []authorRun
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

func newAcks(s *Server) *acks {
	return &acks{server: s, signal: make(chan struct{}, 1), pending: make(map[storage.StateKey]*raises)}
}

// waitingLocked returns the entry of a user and chat, nil if there is no room for a new one.
func (a *acks) waitingLocked(key storage.StateKey) *raises {
	r := a.pending[key]
	if r == nil && len(a.pending) < maxAcks {
		r = &raises{}
		a.pending[key] = r
	}
	return r
}

// add takes an acknowledgement from a stream.
func (a *acks) add(user tidemark.UserID, ack Ack) {
	a.server.count.acks.Add(1)
	if !tidemark.ValidID(ack.Chat) || (ack.Acked == 0 && ack.Read == 0) {
		a.server.count.acksRefused.Add(1)
		return
	}
	a.mu.Lock()
	r := a.waitingLocked(stateKey(user, ack.Chat))
	if r == nil {
		a.server.count.acksDropped.Add(1)
	} else {
		r.acked, r.read = max(r.acked, ack.Acked), max(r.read, ack.Read)
	}
	a.mu.Unlock()
	signal(a.signal)
}

// authored queues the raise that a message of the user's own implies. It reports whether the run joins his watermark, as far as is known, so
// that he needs no row.
func (a *acks) authored(user tidemark.UserID, chat tidemark.ChatID, sequence, seen tidemark.Sequence) (covered bool) {
	key := stateKey(user, chat)
	top, _ := a.server.known.acked(key)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.waitingLocked(key)
	if r == nil {
		return false
	}
	top = max(top, r.acked)
	last := -1
	for i, run := range r.runs {
		if run.from <= top+1 {
			top = max(top, run.to)
		}
		if run.to+1 == sequence && !run.again {
			last = i
		}
	}
	covered = sequence <= top+1
	if last >= 0 && r.runs[last].covered == covered {
		r.runs[last].to, r.runs[last].seen = sequence, max(r.runs[last].seen, seen)
	} else {
		r.runs = append(r.runs, authorRun{from: sequence, to: sequence, seen: seen, covered: covered})
	}
	signal(a.signal)
	return covered
}

// loop writes what waits, until ctx ends.
func (a *acks) loop(ctx context.Context) {
	for {
		next, any := a.requeue(time.Now())
		if !wait(ctx, a.signal, next, any) {
			return
		}
		a.requeue(time.Now())
		a.flush(ctx)
		if !pause(ctx, a.server.cfg.AckInterval) {
			return
		}
	}
}

// requeue puts the runs whose second try is due back among those that wait, and says when the next one is.
func (a *acks) requeue(now time.Time) (next time.Duration, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.retries) && !a.retries[n].due.After(now) {
		if r := a.waitingLocked(a.retries[n].key); r != nil {
			r.runs = append(r.runs, a.retries[n].run)
		}
		n++
	}
	a.retries = append(a.retries[:0], a.retries[n:]...)
	if n > 0 {
		signal(a.signal)
	}
	if len(a.retries) > 0 {
		return a.retries[0].due.Sub(now), true
	}
	return 0, false
}

// item is one raise of a batch, with what is to be done when it is written.
type item struct {
	advance storage.Advance
	run     *authorRun
}

// flush writes everything that waits.
func (a *acks) flush(ctx context.Context) {
	a.writing.Lock()
	defer a.writing.Unlock()
	a.mu.Lock()
	pending := a.pending
	a.pending = make(map[storage.StateKey]*raises)
	a.mu.Unlock()
	if len(pending) == 0 {
		return
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	items := make([]item, 0, len(pending))
	for key, r := range pending {
		if r.acked > 0 || r.read > 0 {
			items = append(items, item{advance: storage.Advance{
				User: key.User, Chat: key.Chat, Now: now, Raise: tidemark.Raise{Acked: r.acked, Read: r.read},
			}})
		}
		for i := range r.runs {
			run := &r.runs[i]
			raise := tidemark.ImplicitRead(run.to, run.seen)
			raise.Acked, raise.AckedFrom = run.to, run.from
			items = append(items, item{run: run, advance: storage.Advance{User: key.User, Chat: key.Chat, Now: now, Raise: raise}})
		}
	}
	for len(items) > 0 {
		n := min(len(items), ackBatch)
		a.write(ctx, items[:n])
		items = items[n:]
	}
}

// write writes one batch of raises and does what follows from them.
func (a *acks) write(ctx context.Context, items []item) {
	s := a.server
	advances := make([]storage.Advance, len(items))
	for i := range items {
		advances[i] = items[i].advance
	}
	advanced, err := s.advance(ctx, advances)
	if err != nil {
		// Explicit acknowledgements are lost, and sent again by their clients (ADR-008 §3.3). Runs have nobody to send them again.
		s.log.Warn("acknowledgements were not written", "count", len(items), "error", err)
		for i := range items {
			a.failed(items[i])
		}
		return
	}
	var clears []storage.Clear
	for i, done := range advanced {
		it := items[i]
		switch {
		case done.Err != nil:
			s.count.acksRefused.Add(1)
		case it.run != nil && done.State.Acked < it.run.to:
			a.failed(it)
		case it.run == nil && it.advance.Acked > 0 && s.mayStand(done.State):
			clears = append(clears, storage.Clear{User: done.State.UserID, Chat: done.State.ChatID, Through: done.State.Acked})
		}
	}
	s.clear(ctx, clears)
}

// failed tries a run once more, after Config.AuthorRetry. A run that fails again leaves its messages to be acknowledged by the author's devices; if no
// row was marked since it was expected to succeed, one is now.
func (a *acks) failed(it item) {
	if it.run == nil {
		return
	}
	run, key := *it.run, stateKey(it.advance.User, it.advance.Chat)
	if !run.again {
		run.again = true
		a.mu.Lock()
		a.retries = append(a.retries, retry{due: time.Now().Add(a.server.cfg.AuthorRetry), key: key, run: run})
		a.mu.Unlock()
		return
	}
	if run.covered {
		a.server.owe(debt{rows: []tidemark.PendingDelivery{{UserID: key.User, ChatID: key.Chat, FirstUndelivered: run.from}}})
	}
}

// advance writes raises and lets the node know: remembered watermarks, the users' sessions, and everyone's ticks.
func (s *Server) advance(ctx context.Context, advances []storage.Advance) ([]storage.Advanced, error) {
	advanced, err := s.storage.Advance(ctx, advances)
	if err != nil {
		s.count.storageErrors.Add(1)
		return nil, err
	}
	s.count.advances.Add(int64(len(advances)))
	for _, done := range advanced {
		if done.Err != nil {
			continue
		}
		st := done.State
		for _, sess := range s.sessions.of(st.UserID) {
			sess.acknowledged(st.ChatID, st.Acked)
		}
		if done.Moved {
			s.count.advancesMoved.Add(1)
			s.statuses.moved(st)
		} else {
			s.known.raise(st)
		}
	}
	return advanced, nil
}

// mayStand reports whether a session of the user here knows that a pending row may stand.
func (s *Server) mayStand(st tidemark.DeliveryState) bool {
	for _, sess := range s.sessions.of(st.UserID) {
		if sess.acknowledged(st.ChatID, st.Acked) {
			return true
		}
	}
	return false
}

// clear ends or trims pending rows. A row that is left because of an error stands at or below the watermark, which is harmless.
func (s *Server) clear(ctx context.Context, clears []storage.Clear) {
	if len(clears) == 0 {
		return
	}
	cleared, err := s.storage.Clear(ctx, clears)
	if err != nil {
		s.count.storageErrors.Add(1)
		s.log.Warn("pending rows were not cleared", "count", len(clears), "error", err)
		return
	}
	s.count.clears.Add(int64(len(clears)))
	for i, touched := range cleared {
		if touched {
			s.count.clearsTouched.Add(1)
		}
		for _, sess := range s.sessions.of(clears[i].User) {
			sess.cleared(clears[i].Chat)
		}
	}
}
