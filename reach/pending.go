package reach

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/storage"
)

// A pending row of a member begins with the first message that they miss. The event of that,
// outlet.PendingCreated, follows from the messages and the watermarks. So sending and acknowledging
// write nothing for it.
//
// An outlet that names the type has backlogs of its own for it, under pendingOf. A round opens one
// instead of delivering messages. A worker looks at the messages of this backlog once it can be
// known who has missed them:
//
//	the member has acknowledged   no event
//	the member has no session     an event after missedAfter
//	the member has a session      an event after Config.Grace, if that is longer
//
// A Large chat has no pending rows of messages, and no events.

const (
	// missedAfter is the age at which a message is looked at. The members without a session have
	// missed it by then.
	missedAfter = 3 * time.Second
	// defaultGrace is the default of Config.Grace.
	defaultGrace = 10 * time.Second
	// clockSkew is how much the clock of the node that adds a member may differ from that of the
	// node that sends the next message.
	clockSkew = 250 * time.Millisecond
	// lookPause is the least time between two looks at a chat.
	lookPause = time.Second
)

// pendingOf names the backlogs of messages that are looked at for an outlet. It is not the id of
// any outlet.
func pendingOf(id storage.OutletID) storage.OutletID { return id + "/pending" }

// hasMessage reports whether a step is a message.
func hasMessage(steps []step) bool {
	return slices.ContainsFunc(steps, func(s step) bool {
		return s.Type == outlet.MessagePersisted
	})
}

// missed is the first message that a member has missed.
type missed struct {
	user    tidemark.UserID
	message *tidemark.Message
}

// look is what was found out about some messages of a chat.
type look struct {
	// due are those to tell of now, in the order of messages.
	due []missed
	// through is the message up to which nothing else is to be told. wait is when to look at the
	// next ones. It is 0 if that can be done at once, or if there are none.
	through tidemark.Sequence
	wait    time.Duration
}

// drainPending looks at the messages of a backlog, and tells an outlet who has missed them.
func (e *Engine) drainPending(ctx context.Context, r *receiver, b storage.Backlog) error {
	defer r.health.abandoned() // If nothing was delivered.
	of := line{b.Chat, feedPending}
	chat, err := e.cfg.Store.Chat(ctx, b.Chat)
	if err != nil {
		return err
	}
	// Changes of the chat and its members are no news of this feed.
	to := storage.PositionOf(&chat)
	if to.Sequence = b.From.Sequence; chat.Large {
		to.Sequence = chat.Head
	}
	began, wait := to.Sequence, time.Duration(0)
	//rule:pending_told.nothing-of-what-has-expired
	to.Sequence = max(to.Sequence, chat.Floor-1)
	for saved := time.Now(); to.Sequence < chat.Head && wait == 0; {
		found, err := e.findMissed(ctx, &chat, to.Sequence)
		if err != nil {
			return err
		}
		whole, err := e.tellMissed(ctx, r, of, found.due)
		//rule:pending_told.settle-what-was-told
		if !whole || err != nil {
			return err
		}
		to.Sequence, wait = found.through, found.wait
		if time.Since(saved) >= e.times.Save && wait == 0 {
			if settled, err := e.settleOwn(ctx, b, to); err != nil || !settled {
				return err
			}
			b.From, began, saved = to, to.Sequence, time.Now()
		}
	}
	if wait > 0 {
		r.later(of, &outlet.Refusal{After: wait})
	}
	if to.Sequence == began && wait > 0 {
		return nil
	}
	_, err = e.settleOwn(ctx, b, to)
	r.forgetTold(b.Chat, to.Sequence)
	return err
}

// findMissed finds out who has missed the messages of a chat after a sequence: a page of those that
// are old enough.
func (e *Engine) findMissed(
	ctx context.Context, chat *tidemark.Chat, after tidemark.Sequence,
) (look, error) {
	before, page, err := e.pageAfter(ctx, chat, after)
	if err != nil {
		return look{}, err
	}
	now := time.Now()
	found := look{through: after}
	old := 0
	for ; old < len(page); old++ {
		if age := now.Sub(page[old].CreatedAt); age < missedAfter {
			found.wait = max(missedAfter-age, lookPause)
			break
		}
		found.through = page[old].Sequence
	}
	if old == 0 {
		return found, nil
	}
	all, err := e.missedBy(ctx, chat, before, page[:old])
	if err != nil {
		return look{}, err
	}
	maybe := e.withSession(ctx, all, now)
	for _, m := range all {
		age := now.Sub(m.message.CreatedAt)
		//rule:pending_told.after-the-grace-period
		if maybe[m.user] && age < e.cfg.Grace {
			//rule:pending_told.hold-the-place
			found.through = min(found.through, m.message.Sequence-1)
			wait := max(e.cfg.Grace-age, lookPause)
			if found.wait == 0 || wait < found.wait {
				found.wait = wait
			}
			continue
		}
		found.due = append(found.due, m)
	}
	slices.SortFunc(found.due, func(a, b missed) int {
		return cmp.Or(cmp.Compare(a.message.Sequence, b.message.Sequence),
			cmp.Compare(a.user, b.user))
	})
	return found, nil
}

// pageAfter returns a page of a chat after a sequence, and the message before it, if there is one.
func (e *Engine) pageAfter(
	ctx context.Context, chat *tidemark.Chat, after tidemark.Sequence,
) (before *tidemark.Message, page []tidemark.Message, err error) {
	from := after
	if from > 0 {
		from--
	}
	pages, err := e.cfg.Store.Ranges(ctx, []storage.Range{{
		Chat: chat.ID, After: from, Limit: pageMessages + 1, MaxBytes: pageBytes, Bare: true,
	}})
	if err != nil {
		return nil, nil, err
	}
	page = pages[0]
	if len(page) > 0 && page[0].Sequence == after {
		before, page = &page[0], page[1:]
	}
	if len(page) == 0 {
		return nil, nil, tidemark.Errorf(tidemark.Unavailable,
			"message %d of the chat %s cannot be read", after+1, chat.ID)
	}
	return before, page, nil
}

// missedBy returns the members whose first missed message is on a page. before is the message
// before the page, or nil.
func (e *Engine) missedBy(
	ctx context.Context, chat *tidemark.Chat, before *tidemark.Message, page []tidemark.Message,
) ([]missed, error) {
	roster, err := e.joined.rosters.one(ctx, chat.ID)
	if err != nil || roster == nil || len(roster.Members) == 0 {
		return nil, err
	}
	members := roster.Members
	keys := make([]storage.StateKey, len(members))
	for i := range members {
		keys[i] = storage.StateKey{User: members[i].UserID, Chat: chat.ID}
	}
	states, err := e.cfg.Store.States(ctx, keys)
	if err != nil {
		return nil, err
	}
	var all []missed
	for i := range members {
		m := firstMissed(&members[i], states[i].Exposed().Acked, before, page)
		if m != nil {
			all = append(all, missed{members[i].UserID, m})
		}
	}
	return all, nil
}

// firstMissed returns the message of a page with which a member began to miss messages, or nil. It
// is nil if the member has acknowledged the page, or has missed the message before it, too: another
// event has told that.
//
// Messages from before the member last joined do not count. Their intervals show those, unless they
// may see the whole history. Then the times decide. A message from up to clockSkew before counts,
// too, and does not hide a later one: two events are better than none.
func firstMissed(
	m *tidemark.Member, acked tidemark.Watermark, before *tidemark.Message, page []tidemark.Message,
) *tidemark.Message {
	since := m.Intervals[len(m.Intervals)-1].From
	//rule:pending_told.once-for-a-row
	if before != nil && before.Sequence > acked && before.Sequence >= since &&
		!before.CreatedAt.Before(m.JoinedAt) {
		return nil
	}
	for i := range page {
		of := &page[i]
		//rule:pending_told.what-they-miss
		if of.Sequence > acked && of.Sequence >= since &&
			!of.CreatedAt.Before(m.JoinedAt.Add(-clockSkew)) {
			return of
		}
	}
	return nil
}

// withSession returns who may have a session, of those who missed a message lately.
func (e *Engine) withSession(
	ctx context.Context, all []missed, now time.Time,
) map[tidemark.UserID]bool {
	maybe := map[tidemark.UserID]bool{}
	var users []tidemark.UserID
	for _, m := range all {
		if now.Sub(m.message.CreatedAt) < e.cfg.Grace {
			maybe[m.user] = true
			users = append(users, m.user)
		}
	}
	if len(users) == 0 || e.cfg.Online == nil {
		return maybe
	}
	devices, err := e.cfg.Online(ctx, users)
	if err != nil {
		return maybe // They are told later.
	}
	for i, user := range users {
		maybe[user] = len(devices[i]) > 0
	}
	return maybe
}

// tellMissed tells an outlet who has missed messages of a chat. whole reports whether it has now
// accepted all of them.
func (e *Engine) tellMissed(
	ctx context.Context, r *receiver, of line, all []missed,
) (whole bool, err error) {
	all = r.untold(of.chat, all)
	steps := make([]step, len(all))
	for i, m := range all {
		steps[i].Event = pendingCreated(m)
	}
	done, whole, err := e.drainSteps(ctx, r, of, steps)
	r.noteTold(of.chat, all[:done])
	return whole, err
}

// pendingCreated returns the event of a member's first missed message.
func pendingCreated(m missed) outlet.Event {
	sequence := strconv.FormatUint(uint64(m.message.Sequence), 10)
	data, err := json.Marshal(struct {
		Chat  tidemark.ChatID   `json:"chat_id"`
		User  tidemark.UserID   `json:"user_id"`
		First tidemark.Sequence `json:"first_undelivered_sequence"`
	}{m.message.ChatID, m.user, m.message.Sequence})
	if err != nil {
		data = []byte("{}") // Ids and numbers can be encoded.
	}
	return outlet.Event{
		ID: outlet.EventID(outlet.PendingCreated, string(m.message.ChatID), string(m.user),
			sequence),
		Type: outlet.PendingCreated, Chat: m.message.ChatID, User: m.user,
		Sequence: uint64(m.message.Sequence), Time: m.message.CreatedAt, Data: data,
	}
}

// untold returns those of some missed messages that the outlet has not accepted yet.
func (r *receiver) untold(chat tidemark.ChatID, all []missed) []missed {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told[chat]
	return slices.DeleteFunc(all, func(m missed) bool {
		return told[m.user] == m.message.Sequence
	})
}

// noteTold notes missed messages that the outlet has accepted. If it is asked for them again, that
// spares it a repetition.
func (r *receiver) noteTold(chat tidemark.ChatID, all []missed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(all) == 0 {
		return
	}
	if len(r.told) >= maxOpen {
		clear(r.told) // Of chats on which another process works now, mostly.
	}
	if r.told[chat] == nil {
		r.told[chat] = map[tidemark.UserID]tidemark.Sequence{}
	}
	for _, m := range all {
		r.told[chat][m.user] = m.message.Sequence
	}
}

// forgetTold forgets what was told of a chat up to a sequence.
func (r *receiver) forgetTold(chat tidemark.ChatID, through tidemark.Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told[chat]
	for user, sequence := range told {
		if sequence <= through {
			delete(told, user)
		}
	}
	if len(told) == 0 {
		delete(r.told, chat)
	}
}
