// Package receipts writes acknowledgements, and publishes the boundaries that they raise to the
// members of the chat (delivery.md §6).
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
	"github.com/tidemark-im/tidemark/server/internal/least"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/server/internal/watermark"
	"github.com/tidemark-im/tidemark/storage"
)

// Storage reads and writes what receipts need.
type Storage interface {
	Advance(ctx context.Context, advances []storage.Advance) ([]storage.Advanced, error)
	Clear(ctx context.Context, items []storage.Clear) ([]bool, error)
	Heads(ctx context.Context, chats []tidemark.ChatID) ([]tidemark.Sequence, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
}

// Config has what Receipts need. All fields are required.
type Config struct {
	Storage    Storage
	Acks       *ackbuffer.Buffer
	Chats      *chat.Cache
	Watermarks *watermark.Cache
	Least      *least.Cache
	Sessions   *session.Table
	Delivery   *delivery.Delivery
	// Retry takes rows that have to be marked.
	Retry *retry.Queue
	Log   *slog.Logger
	// Now returns the time that is stored with a raised watermark.
	Now func() time.Time
	// AckInterval is the least time between two writes of buffered acknowledgements. AuthorRetry is
	// the time after which a failed author run is tried again. StatusInterval is the least time
	// between two updates about one member of a small chat.
	AckInterval, AuthorRetry, StatusInterval time.Duration
	// AckBatch is the most raises in one call to storage. StatusFanout is the most members of a
	// chat with an update for each member. A larger chat has one update for all.
	AckBatch, StatusFanout int
}

// Counters count events of Receipts. They only grow.
type Counters struct {
	Acks, Dropped, Advances, Moved, Clears, Cleared, StorageErrors atomic.Int64
	// Updates counts status updates that were published, UpdatesDropped those beyond a limit. Own
	// counts changes of own states that were published.
	Updates, UpdatesDropped, Own atomic.Int64
	// Malformed counts acknowledgements without a chat or sequence, Strangers those by users who
	// are not members, and Beyond those above the head.
	Malformed, Strangers, Beyond atomic.Int64
}

// Receipts writes acknowledgements and publishes status updates. Call New, and run AckLoop and
// StatusLoop. It is safe for concurrent use.
type Receipts struct {
	Config
	Count Counters
	// writing has room for one token, which Flush holds while it writes. So Flush returns only when
	// everything that was added before it is written.
	writing  chan struct{}
	statuses statuses
	// told has the aggregates that the members have. It belongs to the goroutine of StatusLoop.
	told map[tidemark.ChatID]aggregate
}

// New returns Receipts. It starts no goroutines.
func New(cfg Config) *Receipts {
	return &Receipts{
		Config: cfg, writing: make(chan struct{}, 1), statuses: newStatuses(),
		told: make(map[tidemark.ChatID]aggregate),
	}
}

// Add buffers an acknowledgement from the stream of a user's session, which AckLoop writes soon. A
// sequence of 0 leaves that watermark as it is.
func (r *Receipts) Add(
	by *session.Session, chat tidemark.ChatID, acked, read tidemark.Sequence,
) {
	r.Count.Acks.Add(1)
	//rule:ack_fire_and_forget.ignore-empty-acknowledgement
	if !tidemark.ValidID(chat) || (acked == 0 && read == 0) {
		r.Count.Malformed.Add(1)
		return
	}
	key := storage.StateKey{User: by.User(), Chat: chat}
	if !r.Acks.Add(key, by.ID(), acked, read) {
		r.Count.Dropped.Add(1)
	}
}

// AckLoop writes buffered acknowledgements until ctx ends.
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

// requeue buffers the author runs whose retry is due, and returns when the next one is.
func (r *Receipts) requeue() (next time.Time) {
	next, rows := r.Acks.Requeue(time.Now())
	r.Retry.Mark(rows)
	return next
}

// Flush writes everything that is buffered. If ctx ends while another Flush is writing, it writes
// nothing.
func (r *Receipts) Flush(ctx context.Context) {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return
	}
	items, rows := r.Acks.Take(r.Now())
	defer r.Acks.Written()
	r.Retry.Mark(rows)
	for len(items) > 0 {
		n := min(len(items), r.AckBatch)
		r.write(ctx, r.ofMembers(ctx, items[:n]))
		//rule:delivered_is_eventually_consistent.write-all-batches
		items = items[n:]
	}
}

// Close gives up what is buffered, because the node is stopping. Author runs become rows to mark.
func (r *Receipts) Close() { r.Retry.Mark(r.Acks.Close()) }

// ofMembers drops the acknowledgements of users who are not members (ADR-008 §3.1). If it cannot
// know the members, it keeps only author runs.
func (r *Receipts) ofMembers(ctx context.Context, items []ackbuffer.Item) []ackbuffer.Item {
	keys := make([]storage.StateKey, len(items))
	for i, it := range items {
		keys[i] = storage.StateKey{User: it.Advance.User, Chat: it.Advance.Chat}
	}
	verdicts, err := r.Chats.Memberships(ctx, keys)
	if err != nil {
		r.Log.Warn("acknowledgements were not written, because rosters could not be read; "+
			"clients repeat them", "count", len(items), "error", err)
	}
	kept := items[:0]
	for i, it := range items {
		switch {
		// Authors were members when they sent.
		//rule:nothing_outside_membership.acknowledgement-by-members
		case it.ByAuthor(), err == nil && verdicts[i] == nil:
			kept = append(kept, it)
		case err != nil:
			r.Count.StorageErrors.Add(1)
		default:
			r.Count.Strangers.Add(1)
		}
	}
	return kept
}

// write writes a batch of raises, and clears the pending rows that they cover.
func (r *Receipts) write(ctx context.Context, items []ackbuffer.Item) {
	if len(items) == 0 {
		return
	}
	advances := make([]storage.Advance, len(items))
	readers := make([]tidemark.SessionID, len(items))
	for i := range items {
		advances[i], readers[i] = items[i].Advance, items[i].Reader
	}
	advanced, mayBePending, err := r.advance(ctx, advances, readers)
	if err != nil {
		// Clients repeat lost acknowledgements (ADR-008 §3.3). Author runs have no client that
		// repeats them.
		r.Log.Warn("acknowledgements were not written; clients repeat them", "count", len(items),
			"error", err)
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
				clears = append(clears, clearOf(done.State))
			}
		}
	}
	r.Clear(ctx, clears)
	if len(refused) > 0 {
		r.write(ctx, r.refold(ctx, refused))
	}
}

// failed schedules a retry of the author runs in items, after AuthorRetry.
func (r *Receipts) failed(items ...ackbuffer.Item) {
	again := time.Now().Add(r.AuthorRetry)
	for _, it := range items {
		r.Retry.Mark(r.Acks.Failed(it, again))
	}
}

// refold builds refused items again, limited by the heads of their chats.
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

// Advance writes raises at once, and clears the pending rows that acknowledgements cover. It
// updates the users' sessions, and publishes what rose to the members.
func (r *Receipts) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	advanced, _, err := r.advance(ctx, advances, make([]tidemark.SessionID, len(advances)))
	if err != nil {
		return nil, err
	}
	var clears []storage.Clear
	for i, done := range advanced {
		//rule:pending_or_delivered.clear-acknowledged-rows
		if done.Err == nil && advances[i].Acked > 0 {
			clears = append(clears, clearOf(done.State))
		}
	}
	//rule:R_CLEAR.clear-with-raise
	r.Clear(ctx, clears)
	return advanced, nil
}

// clearOf returns the Clear for the pending row that a state's watermark covers.
func clearOf(st tidemark.DeliveryState) storage.Clear {
	return storage.Clear{User: st.UserID, Chat: st.ChatID, Through: st.Acked}
}

// advance also reports, for each raise, whether a pending row may exist as far as the user's
// sessions on this node know. readers has the session that read, for each raise, or "".
func (r *Receipts) advance(
	ctx context.Context, advances []storage.Advance, readers []tidemark.SessionID,
) (advanced []storage.Advanced, mayBePending []bool, err error) {
	if len(advances) == 0 {
		return nil, nil, nil
	}
	// Once the raise is stored, neither a pending row nor a comparison names the chat.
	//rule:delivered_is_eventually_consistent.add-acknowledged-chat
	for i := range advances {
		r.Delivery.Latest.Add(advances[i].User, advances[i].Chat)
	}
	//rule:published_if_a_tick_changes.known-before-the-write
	before := r.known(advances)
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
		//rule:read_implies_delivered.push-exposed-boundary
		_, boundary := r.Watermarks.Raise(st)
		mayBePending[i] = r.acknowledged(st)
		//rule:ack_fire_and_forget.tell-what-was-written
		if done.Moved || advances[i].AckedFrom == 0 {
			r.tellWritten(st)
		}
		if done.Moved {
			r.Count.Moved.Add(1)
			r.moved(&advances[i], done, before[i], boundary, readers[i])
		}
	}
	return advanced, mayBePending, nil
}

// known returns what this node knows of the watermarks that are raised, before it writes. What it
// learns during the write may already be the result of it.
func (r *Receipts) known(advances []storage.Advance) []known {
	all := make([]known, len(advances))
	for i, a := range advances {
		all[i].own, all[i].shown = r.Watermarks.Marks(
			storage.StateKey{User: a.User, Chat: a.Chat})
	}
	return all
}

// tellWritten makes the user's sessions on this node tell their clients what is written. In a
// large chat it does nothing.
func (r *Receipts) tellWritten(st tidemark.DeliveryState) {
	if r.Chats.Known(st.ChatID) > r.StatusFanout {
		return
	}
	for _, s := range r.Sessions.Of(st.UserID) {
		s.Written(st.ChatID)
	}
}

// acknowledged updates the user's sessions on this node. It reports whether one of them knows of a
// possible pending row.
func (r *Receipts) acknowledged(st tidemark.DeliveryState) (mayBePending bool) {
	r.Delivery.Traces.Acknowledged(st.UserID, st.ChatID, st.Acked)
	for _, s := range r.Sessions.Of(st.UserID) {
		mayBePending = s.Acknowledged(st.ChatID, st.Acked) || mayBePending
	}
	return mayBePending
}

// Refresh reads what users have acknowledged through other nodes, and updates their sessions.
// Without it, rows would be marked that are not needed.
func (r *Receipts) Refresh(ctx context.Context, keys []storage.StateKey) {
	states, err := r.Storage.States(ctx, keys)
	if err != nil {
		r.Count.StorageErrors.Add(1)
	}
	for _, st := range states {
		r.acknowledged(st)
	}
}

// Clear removes or raises pending rows. If it fails, the rows stay at or below the watermark, which
// is harmless.
func (r *Receipts) Clear(ctx context.Context, clears []storage.Clear) {
	if len(clears) == 0 {
		return
	}
	cleared, err := r.Storage.Clear(ctx, clears)
	if err != nil {
		r.Count.StorageErrors.Add(1)
		r.Log.Warn("pending rows were not cleared, which costs a later session a read", "count",
			len(clears), "error", err)
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
