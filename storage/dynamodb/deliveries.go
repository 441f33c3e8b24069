package dynamodb

import (
	"context"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// Advance implements storage.Deliveries. Each watermark row is one conditional update (ADR-008
// §3.2).
func (s *Store) Advance(
	ctx context.Context, advances []storage.Advance,
) ([]storage.Advanced, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "advance", len(advances))
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := storage.CheckDistinct(advances); err != nil {
		return nil, err
	}
	refused, err := c.bound(ctx, advances)
	if err != nil {
		return nil, call.Public(err)
	}
	began := time.Now()
	results := make([]storage.Advanced, len(advances))
	err = call.Together(ctx, len(advances), func(ctx context.Context, i int) (err error) {
		if refused[i] != nil {
			results[i].Err = refused[i]
			return nil
		}
		results[i], err = c.raise(ctx, &advances[i], false)
		return err
	})
	if err != nil {
		return nil, call.Public(err)
	}
	acks := 0
	for i := range results {
		if results[i].Moved {
			acks++
		}
	}
	if acks > 0 {
		s.committed(0, acks, time.Since(began))
	}
	return results, nil
}

// bound returns the errors of refused raises. A head that is known from earlier is enough to allow
// a raise. To refuse one, bound reads the head.
func (c caller) bound(ctx context.Context, advances []storage.Advance) ([]error, error) {
	var chats []tidemark.ChatID
	for i := range advances {
		if a := &advances[i]; !c.Reaches(a.Chat, max(a.Acked, a.Read)) {
			chats = append(chats, a.Chat)
		}
	}
	refused := make([]error, len(advances))
	if len(chats) == 0 {
		return refused, nil
	}
	found, err := c.Counters(ctx, chats, false)
	if err != nil {
		return nil, err
	}
	for i := range advances {
		a := &advances[i]
		if c.Reaches(a.Chat, max(a.Acked, a.Read)) {
			continue
		}
		switch counter := found[a.Chat]; {
		case counter == nil:
			refused[i] = record.NoChat(a.Chat)
		case counter.State == tidemark.ChatDeleted:
			refused[i] = storage.WasDeleted(a.Chat)
		default:
			//rule:watermark_bounded_by_counter.check-against-head
			refused[i] = a.Bounded(counter.Head)
		}
	}
	return refused, nil
}

// raise moves the watermarks of a user in a chat, within the head. It starts from the watermarks
// that this process remembers, even if they are old or empty. The condition compares with the
// stored watermarks, and a failed condition returns them. joins says that a user joins, which hides
// nothing.
func (c caller) raise(
	ctx context.Context, a *storage.Advance, joins bool,
) (storage.Advanced, error) {
	now := call.Stored(a.Now)
	image, known := c.Guess(a.User, a.Chat)
	state := image.DeliveryState
	// depends reports that the result depends on the acknowledged watermark before.
	depends := a.AckedFrom != 0 || a.ReadWithinAcked
	sure := false
	for again := 0; ; again++ {
		raise := a.Raise
		//rule:shown_within_real.decide-in-the-step-in-dynamodb
		raise.Hidden = image.Hidden() && !joins
		wanted, moves := raise.Apply(state, now)
		//rule:multi_device_highest_wins.ask-storage-when-unsure
		if !sure && (!moves || depends && !known) {
			// Only the stored row can prove that nothing moves.
			var err error
			if image, err = c.imageOf(ctx, a.User, a.Chat); err != nil {
				return storage.Advanced{}, err
			}
			state, sure = image.DeliveryState, true
			continue
		}
		if !moves {
			return storage.Advanced{State: state}, nil
		}
		u := raised(state, wanted, depends)
		if wanted.Read != state.Read {
			if err := c.countSent(ctx, &u, image, wanted.Read, sure); err != nil {
				return storage.Advanced{}, err
			}
			expectShown(&u, image, wanted)
		}
		it, done, doubtful, err := c.Update(ctx, u)
		if err != nil {
			return storage.Advanced{}, err
		}
		if image, err = c.stateOf(a.User, a.Chat, it); err != nil {
			return storage.Advanced{}, err
		}
		before, shown := state.Read, state.Exposed() != wanted.Exposed()
		if state = image.DeliveryState; done || doubtful && state == wanted {
			//rule:unread_exact.report-ended-mark
			unmarked := before != state.Read && image.MarkRead > 0 && image.MarkRead >= before
			return storage.Advanced{
				State: state, Moved: true, Shown: shown, Unmarked: unmarked,
			}, nil
		}
		sure = true
		if err := call.Yield(ctx, again); err != nil {
			return storage.Advanced{}, err
		}
	}
}

// raised returns the update of a row from one state to another. Each watermark that moves has the
// condition of ADR-008 §3.2. If exact, the stored acknowledged watermark must be that of the first
// state.
func raised(state, wanted tidemark.DeliveryState, exact bool) call.Update {
	u := call.Update{
		Table:  record.States,
		Key:    record.StateKey(state.UserID, state.ChatID),
		Values: call.Item{":now": call.Text(wanted.UpdatedAt().Format(call.ISOTime))},
		Change: "SET updated_at = :now",
	}
	var conditions []string
	if wanted.Acked != state.Acked {
		u.Values[":acked"] = call.Number(wanted.Acked)
		u.Values[":acked_at"] = call.Number(wanted.AckedAt.UnixMilli())
		u.Change += ", last_acked_sequence = :acked, acked_at = :acked_at"
		if !exact {
			//rule:watermark_monotonic.acknowledged-only-rises
			conditions = append(conditions,
				"(attribute_not_exists(last_acked_sequence) OR last_acked_sequence < :acked)")
		}
	}
	if wanted.Read != state.Read {
		u.Values[":read"] = call.Number(wanted.Read)
		u.Values[":read_at"] = call.Number(wanted.ReadAt.UnixMilli())
		u.Change += ", last_read_sequence = :read, read_at = :read_at"
		//rule:watermark_monotonic.read-only-rises
		conditions = append(conditions,
			"(attribute_not_exists(last_read_sequence) OR last_read_sequence < :read)")
	}
	switch {
	case exact && state.Acked == 0:
		conditions = append(conditions, "attribute_not_exists(last_acked_sequence)")
	case exact:
		conditions = append(conditions, "last_acked_sequence = :from")
		u.Values[":from"] = call.Number(state.Acked)
	}
	u.Condition = strings.Join(conditions, " AND ")
	return u
}

// stateOf returns the delivery state of an item, which may be missing, and remembers it.
func (c caller) stateOf(
	user tidemark.UserID, chat tidemark.ChatID, it call.Item,
) (record.State, error) {
	r := call.Reader{Item: it}
	s := record.State{
		DeliveryState: tidemark.DeliveryState{
			UserID: user,
			ChatID: chat,
			Acked:  r.Sequence("last_acked_sequence"),
			Read:   r.Sequence("last_read_sequence"),
		},
		ReadSent: int64(r.Number("read_sent")),
		MarkSent: int64(r.Number("mark_sent")),
		MarkRead: r.Sequence("mark_read"),
		Expired:  int64(r.Number("expired")), ExpiredAt: r.Sequence("expired_at"),
		Sender: record.Sender{
			User: user, Sent: int64(r.Number("sent")), Last: r.Sequence("last_sent"),
		},
	}
	// A mark ends when Read moves, so that a raise need not know of it.
	//rule:unread_exact.mark-of-this-read
	if r.Has("unread_from") && s.MarkRead == s.Read {
		s.UnreadFrom = r.Sequence("unread_from")
	}
	s.HiddenFrom = r.Sequence("hidden_from")
	if r.Has("shown_at") {
		s.ShownAt = r.Time("shown_at")
	}
	s.Receipts = tidemark.ReceiptsSetting(r.Text("read_receipts"))
	s.HidesAll = int64(r.Number("hides_read"))
	s.PolicyNumber = int64(r.Number("receipts_policy"))
	if r.Has("acked_at") {
		s.AckedAt = r.Time("acked_at")
	}
	if r.Has("read_at") {
		s.ReadAt = r.Time("read_at")
	}
	if r.Err == nil {
		c.SawState(s)
	}
	return s, r.Err
}

// States implements storage.Deliveries. Its reads are strongly consistent, so that a state is no
// older than this process's own writes.
func (s *Store) States(
	ctx context.Context, names []storage.StateKey,
) ([]tidemark.DeliveryState, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "states", len(names))
	if err != nil {
		return nil, err
	}
	defer leave()
	images, err := c.images(ctx, names, false)
	if err != nil {
		return nil, call.Public(err)
	}
	found := make([]tidemark.DeliveryState, len(images))
	for i := range images {
		found[i] = images[i].DeliveryState
		found[i].Hides = images[i].Hidden()
	}
	return found, nil
}

// states reads delivery states, in the order of their names.
func (c caller) states(
	ctx context.Context, names []storage.StateKey, eventual bool,
) ([]tidemark.DeliveryState, error) {
	images, err := c.images(ctx, names, eventual)
	if err != nil {
		return nil, err
	}
	found := make([]tidemark.DeliveryState, len(images))
	for i := range images {
		found[i] = images[i].DeliveryState
	}
	return found, nil
}

// images reads the items of delivery states, in the order of their names.
func (c caller) images(
	ctx context.Context, names []storage.StateKey, eventual bool,
) ([]record.State, error) {
	wanted := make([]call.Item, len(names))
	for i, name := range names {
		wanted[i] = record.StateKey(name.User, name.Chat)
	}
	items, err := c.GetAll(ctx, call.Read{Table: record.States, Eventual: eventual}, wanted)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]call.Item, len(items))
	for _, it := range items {
		byName[call.NameOf(call.Item{"chat_id": it["chat_id"], "user_id": it["user_id"]})] = it
	}
	found := make([]record.State, len(names))
	for i, name := range names {
		found[i], err = c.stateOf(name.User, name.Chat, byName[call.NameOf(wanted[i])])
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// StatesOf implements storage.Deliveries.
func (s *Store) StatesOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "states_of", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	var found []tidemark.DeliveryState
	err = c.chatsOf(ctx,
		chatsQuery{user: user, after: after, eventual: true, most: limit +
			1, wanted: func(e entry) bool { return !e.state.UpdatedAt().IsZero() }},
		func(entries []entry) (bool, error) {
			for _, e := range entries {
				found = append(found, e.state.DeliveryState)
			}
			return len(found) <= limit, nil
		})
	if err != nil {
		return nil, false, call.Public(err)
	}
	return found[:min(len(found), limit)], len(found) > limit, nil
}

// StatesIn implements storage.Deliveries.
func (s *Store) StatesIn(
	ctx context.Context, chat tidemark.ChatID, after tidemark.UserID, limit int,
) ([]tidemark.DeliveryState, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "states_in", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	roster, err := c.roster(ctx, chat)
	if err != nil {
		return nil, false, call.Public(err)
	}
	if roster == nil {
		return nil, false, nil
	}
	var names []storage.StateKey
	for _, m := range roster.Members {
		if m.UserID > after && len(names) <= limit {
			names = append(names, storage.StateKey{User: m.UserID, Chat: chat})
		}
	}
	more := len(names) > limit
	found, err := c.states(ctx, names[:min(len(names), limit)], true)
	return found, more, call.Public(err)
}

// Summary implements storage.Deliveries.
func (s *Store) Summary(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence, author tidemark.UserID,
) (storage.Summary, error) {
	c, ctx, leave, err := s.enter(ctx, "summary", 0)
	if err != nil {
		return storage.Summary{}, err
	}
	defer leave()
	roster, err := c.roster(ctx, chat)
	if err == nil && roster == nil {
		err = record.NoChat(chat)
	}
	if err != nil {
		return storage.Summary{}, call.Public(err)
	}
	names := make([]storage.StateKey, len(roster.Members))
	for i, m := range roster.Members {
		names[i] = storage.StateKey{User: m.UserID, Chat: chat}
	}
	found, err := c.states(ctx, names, true)
	if err != nil {
		return storage.Summary{}, call.Public(err)
	}
	var summary storage.Summary
	for _, state := range found {
		summary.Count(state, sequence, author)
	}
	return summary, nil
}
