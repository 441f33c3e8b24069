// Package receipts writes acknowledgements and tells the members of a chat what was acknowledged
// (delivery.md §6).
package receipts

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/server/internal/ackbuffer"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage is what receipts read and write.
type Storage interface {
	Advance(ctx context.Context, advances []storage.Advance) ([]storage.Advanced, error)
	Clear(ctx context.Context, items []storage.Clear) ([]bool, error)
	Summary(ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence) (storage.Summary,
		error)
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
}

// Config is what Receipts work with. All fields are required.
type Config struct {
	Storage    Storage
	Acks       *ackbuffer.Buffer
	Chats      *chat.Cache
	Watermarks *watermark.Cache
	Sessions   *session.Table
	Delivery   *delivery.Delivery
	// Retry takes rows that have to be marked.
	Retry *retry.Queue
	Log   *slog.Logger
	// Now is the time that is stored with what moved.
	Now func() time.Time
	// AckInterval is the least time between two writes of buffered acknowledgements, AuthorRetry the
	// time after which an author's run is tried once more, StatusInterval the least time between two
	// updates about one member of one chat.
	AckInterval, AuthorRetry, StatusInterval time.Duration
}

// Counters only grow.
type Counters struct {
	Acks, Dropped, Advances, Moved, Clears, Cleared, Updates, UpdatesDropped, StorageErrors atomic.Int64
	// Malformed acknowledgements name nothing, Strangers are no members, Beyond is above the head.
	Malformed, Strangers, Beyond atomic.Int64
}

// Receipts is safe for concurrent use. Use New, and run AckLoop and StatusLoop.
type Receipts struct {
	Config
	// Count is what the receipts count.
	Count Counters
	// writing has room for one token, which is held while a batch is written: Flush returns only when
	// everything that was added before it is written.
	writing  chan struct{}
	statuses statuses
}

// New returns Receipts without goroutines.
func New(cfg Config) *Receipts {
	return &Receipts{Config: cfg, writing: make(chan struct{}, 1), statuses: newStatuses()}
}

// Add takes an acknowledgement from a stream: it is written soon. Zero leaves a watermark.
func (r *Receipts) Add(user tidemark.UserID, chat tidemark.ChatID, acked, read tidemark.Sequence) {
	r.Count.Acks.Add(1)
	//rule:ack_fire_and_forget.ignore-empty-acknowledgement
	if !tidemark.ValidID(chat) || (acked == 0 && read == 0) {
		r.Count.Malformed.Add(1)
		return
	}
	if !r.Acks.Add(storage.StateKey{User: user, Chat: chat}, acked, read) {
		r.Count.Dropped.Add(1)
	}
}

// AckLoop writes what waits, until ctx ends.
func (r *Receipts) AckLoop(ctx context.Context) {
	for {
		if _, ok := r.Acks.Flag().WaitUntil(ctx, r.requeue()); !ok {
			return
		}
		r.requeue()
		r.Flush(ctx)
		//rule:delivered_is_eventually_consistent.collect-for-an-interval
		if !signal.Pause(ctx, r.AckInterval) {
			return
		}
	}
}

// requeue lets runs wait whose second try is due, and returns when the next one is.
func (r *Receipts) requeue() (next time.Time) {
	next, rows := r.Acks.Requeue(time.Now())
	r.Retry.Mark(rows)
	return next
}

// ackBatch is how many raises one call to storage has.
const ackBatch = 2_000

// Flush writes everything that waits. If ctx ends while another Flush is writing, what waits is left
// to the next one.
func (r *Receipts) Flush(ctx context.Context) {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return
	}
	items, rows := r.Acks.Take(r.Now())
	defer r.Acks.Landed()
	r.Retry.Mark(rows)
	for len(items) > 0 {
		n := min(len(items), ackBatch)
		r.write(ctx, r.ofMembers(ctx, items[:n]))
		//rule:delivered_is_eventually_consistent.write-all-batches
		items = items[n:]
	}
}

// Close gives up what waits, because the node is ending and nothing writes it any more.
func (r *Receipts) Close() { r.Retry.Mark(r.Acks.Close()) }

// ofMembers leaves out the acknowledgements of users who are no members (ADR-008 §3.1).
func (r *Receipts) ofMembers(ctx context.Context, items []ackbuffer.Item) []ackbuffer.Item {
	keys := make([]storage.StateKey, len(items))
	for i, it := range items {
		keys[i] = storage.StateKey{User: it.Advance.User, Chat: it.Advance.Chat}
	}
	verdicts, err := r.Chats.Memberships(ctx, keys)
	if err != nil {
		return items // the write tells
	}
	kept := items[:0]
	for i, it := range items {
		//rule:nothing_outside_membership.acknowledgement-by-members
		if verdicts[i] == nil || it.ByAuthor() { // authors were members when they wrote
			kept = append(kept, it)
		} else {
			r.Count.Strangers.Add(1)
		}
	}
	return kept
}

// write writes one batch of raises and does what follows from them.
func (r *Receipts) write(ctx context.Context, items []ackbuffer.Item) {
	if len(items) == 0 {
		return
	}
	advances := make([]storage.Advance, len(items))
	for i := range items {
		advances[i] = items[i].Advance
	}
	advanced, mayBePending, err := r.advance(ctx, advances)
	if err != nil {
		// Acknowledgements are lost, and their clients send them again (ADR-008 §3.3). Nobody sends
		// the runs of authors again.
		r.Log.Warn("acknowledgements were not written", "count", len(items), "error", err)
		r.failed(items...)
		return
	}
	var clears []storage.Clear
	var refused []ackbuffer.Item
	for i, done := range advanced {
		it := items[i]
		if done.Err != nil {
			r.Count.Beyond.Add(1)
			if it.Refoldable() {
				refused = append(refused, it)
			}
			continue
		}
		if !it.Joined(done.State.Acked) {
			r.failed(it)
		}
		if it.Explicit() {
			//rule:R_CLEAR.clear-acknowledged-row
			if mayBePending[i] {
				clears = append(clears, storage.Clear{
					User: done.State.UserID, Chat: done.State.ChatID, Through: done.State.Acked,
				})
			}
		}
	}
	r.Clear(ctx, clears)
	if len(refused) > 0 {
		r.write(ctx, r.refold(ctx, refused))
	}
}

// failed tries the runs of items once more, after AuthorRetry.
func (r *Receipts) failed(items ...ackbuffer.Item) {
	again := time.Now().Add(r.AuthorRetry)
	for _, it := range items {
		r.Retry.Mark(r.Acks.Failed(it, again))
	}
}

// refold folds the refused items anew, each bounded by the head of its chat.
func (r *Receipts) refold(ctx context.Context, refused []ackbuffer.Item) []ackbuffer.Item {
	chats := make([]tidemark.ChatID, len(refused))
	for i := range refused {
		chats[i] = refused[i].Advance.Chat
	}
	heads, err := r.Storage.Heads(ctx, chats)
	if err != nil {
		r.Count.StorageErrors.Add(1)
		r.failed(refused...)
		return nil
	}
	items, rows := r.Acks.Refold(refused, heads, r.Now())
	r.Retry.Mark(rows)
	return items
}

// Advance writes raises at once, and lets the users' sessions and the members know.
func (r *Receipts) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	advanced, _, err := r.advance(ctx, advances)
	return advanced, err
}

// advance also says for each raise whether a session of the user on this node knows that a pending
// row may stand.
func (r *Receipts) advance(
	ctx context.Context, advances []storage.Advance,
) (advanced []storage.Advanced, mayBePending []bool, err error) {
	if len(advances) == 0 {
		return nil, nil, nil
	}
	advanced, err = r.Storage.Advance(ctx, advances)
	if err != nil {
		r.Count.StorageErrors.Add(1)
		return nil, nil, err
	}
	r.Count.Advances.Add(int64(len(advances)))
	mayBePending = make([]bool, len(advanced))
	for i, done := range advanced {
		if done.Err != nil {
			continue
		}
		st := done.State
		mayBePending[i] = r.acknowledged(st)
		if done.Moved {
			r.Count.Moved.Add(1)
			r.moved(st)
		} else {
			r.Watermarks.Raise(st)
		}
	}
	return advanced, mayBePending, nil
}

// acknowledged tells the sessions of a user how far the user has acknowledged. It reports whether one
// of them knows that a pending row may stand.
func (r *Receipts) acknowledged(st tidemark.DeliveryState) (mayBePending bool) {
	for _, s := range r.Sessions.Of(st.UserID) {
		mayBePending = s.Acknowledged(st.ChatID, st.Acked) || mayBePending
	}
	return mayBePending
}

// Refresh reads how far users have acknowledged over other nodes, and tells their sessions. Without
// it rows are marked that are not needed.
func (r *Receipts) Refresh(ctx context.Context, keys []storage.StateKey) {
	states, err := r.Storage.States(ctx, keys)
	if err != nil {
		r.Count.StorageErrors.Add(1)
	}
	for _, st := range states {
		r.acknowledged(st)
	}
}

// Clear ends or trims pending rows. A row that is left because of an error stands at or below the
// watermark, which is harmless.
func (r *Receipts) Clear(ctx context.Context, clears []storage.Clear) {
	if len(clears) == 0 {
		return
	}
	cleared, err := r.Storage.Clear(ctx, clears)
	if err != nil {
		r.Count.StorageErrors.Add(1)
		r.Log.Warn("pending rows were not cleared", "count", len(clears), "error", err)
		return
	}
	r.Count.Clears.Add(int64(len(clears)))
	for i, touched := range cleared {
		if touched {
			r.Count.Cleared.Add(1)
		}
		for _, s := range r.Sessions.Of(clears[i].User) {
			s.Cleared(clears[i].Chat)
		}
	}
}
