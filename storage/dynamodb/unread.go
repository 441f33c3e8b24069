package dynamodb

import (
	"context"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// imageOf reads the item of a delivery state with strong consistency.
func (c caller) imageOf(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID,
) (record.State, error) {
	it, err := c.Get(ctx, record.States, record.StateKey(user, chat))
	if err != nil {
		return record.State{}, err
	}
	return c.stateOf(user, chat, it)
}

// countSent adds to an update that raises the read watermark, how many messages the user has sent
// up to there. It takes them from senders of the chat that are not older than this message. If the
// user is not among them, the numbers are in the item that the update changes. Then the update has
// the condition that they are as in the image.
//
// image is what is known of the item. sure reports that it was read.
func (c caller) countSent(
	ctx context.Context, u *call.Update, image record.State, read tidemark.Sequence, sure bool,
) error {
	from, listed, known := c.Sender(image.ChatID, image.UserID, read)
	if !known {
		if _, err := c.Counter(ctx, image.ChatID); err != nil {
			return err
		}
		from, listed, _ = c.Sender(image.ChatID, image.UserID, read)
	}
	if !listed {
		from = image.Sender
	}
	sent := from.Sent
	//rule:unread_exact.count-own-around-the-mark
	if from.Last > read {
		if !sure {
			// The numbers before the scan must be those of one item.
			var err error
			if image, err = c.imageOf(ctx, image.UserID, image.ChatID); err != nil {
				return err
			}
		}
		var err error
		if sent, err = c.sentUpTo(ctx, image, read); err != nil {
			return err
		}
	}
	//rule:unread_exact.expect-senders-as-known
	if !listed {
		c.expectSender(u, from)
	}
	if sent > 0 {
		u.Change = strings.Replace(u.Change, "SET ", "SET read_sent = :read_sent, ", 1)
		u.Values[":read_sent"] = call.Number(sent)
	}
	return nil
}

// expectSender adds the condition that no other numbers are in the item.
func (c caller) expectSender(u *call.Update, from record.Sender) {
	condition := "attribute_not_exists(last_sent)"
	if from.Last > 0 {
		condition = "last_sent = :last_sent"
		u.Values[":last_sent"] = call.Number(from.Last)
	}
	if u.Condition != "" {
		condition = u.Condition + " AND " + condition
	}
	u.Condition = condition
}

// sentUpTo counts the user's messages up to a sequence from those up to the nearest mark of theirs.
// If some of the messages between have expired, it counts from the floor, again as long as that
// rises.
func (c caller) sentUpTo(
	ctx context.Context, image record.State, sequence tidemark.Sequence,
) (int64, error) {
	mark := unread.Mark{At: image.Read, Sent: image.ReadSent}
	for {
		sent, whole, err := c.sentFrom(ctx, image, mark, sequence)
		if err != nil || whole {
			return sent, err
		}
		counter, err := c.Counter(ctx, image.ChatID)
		if err != nil {
			return 0, err
		}
		expired, floor, err := c.expired(ctx, image.UserID, counter)
		if err != nil {
			return 0, err
		}
		next := mark.NotBelow(floor, expired)
		if next == mark {
			return sent, nil
		}
		mark = next
	}
}

// sentFrom counts the user's messages up to a sequence from those up to a mark. whole reports that
// all messages between were there.
func (c caller) sentFrom(
	ctx context.Context, image record.State, mark unread.Mark, sequence tidemark.Sequence,
) (sent int64, whole bool, err error) {
	if sequence >= mark.At {
		n, whole, err := c.written(ctx, image.UserID, image.ChatID, mark.At+1, sequence)
		return mark.Sent + n, whole, err
	}
	n, whole, err := c.written(ctx, image.UserID, image.ChatID, sequence+1, mark.At)
	return mark.Sent - n, whole, err
}

// expired returns how many messages of a user that count as unread have expired, and the floor
// below which that is so. It is not below that of the counter. Messages from State.ExpiredAt up to
// the floor are not counted in the state yet: those of the user, if there are any, have not been
// removed. If they are counted meanwhile, expired begins anew.
func (c caller) expired(
	ctx context.Context, user tidemark.UserID, counter *record.Counter,
) (n int64, floor tidemark.Sequence, err error) {
	s, err := c.imageOf(ctx, user, counter.ID)
	for err == nil {
		floor = max(counter.Floor, s.ExpiredAt)
		n, _, err = c.written(ctx, user, counter.ID, max(1, s.ExpiredAt), floor-1)
		if err != nil {
			break
		}
		before := s
		s, err = c.imageOf(ctx, user, counter.ID)
		if s.ExpiredAt == before.ExpiredAt {
			return before.Expired + n, floor, err
		}
	}
	return 0, 0, err
}

// written counts the messages of a user that count as unread, in a part of a chat. whole reports
// that all messages of the part were there.
func (c caller) written(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from, to tidemark.Sequence,
) (own int64, whole bool, err error) {
	if from > to {
		return 0, true, nil
	}
	q := call.Query{
		Read: call.Read{
			Table: record.Messages, Only: []string{"sequence", "sender_id", "kind"},
		},
		Partition: "chat_id", Sort: "sequence", Of: call.Text(chat), Range: between(from, to),
	}
	next := from
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		if tidemark.UserID(r.Text("sender_id")) == user && !r.Has("kind") {
			own++
		}
		if r.Sequence("sequence") == next {
			next++
		}
		return true, r.Err
	})
	return own, next > to, err
}

// An account is what is stored about a user in a chat, except their membership.
type account struct {
	counter *record.Counter
	state   record.State
}

// membersOf returns the present or past membership of each user in the chat of the same index. If
// the counter of a chat is nil, it reads nothing, and the membership is zero.
func (c caller) membersOf(
	ctx context.Context, users []tidemark.UserID, counters []*record.Counter, eventual bool,
) ([]tidemark.Member, error) {
	var keys []call.Item
	var of []int
	for i, counter := range counters {
		if counter != nil {
			keys, of = append(keys, record.MemberKey(counter.ID, users[i])), append(of, i)
		}
	}
	rows, err := c.MembershipsOf(ctx, keys, eventual)
	if err != nil {
		return nil, err
	}
	members := make([]tidemark.Member, len(counters))
	for n, i := range of {
		counter := counters[i]
		if rows[n].Next != nil { // Then the counter decides whether the change took effect.
			if counter, err = c.Counter(ctx, counter.ID); err != nil {
				return nil, err
			}
		}
		members[i] = rows[n].At(counter)
	}
	return members, nil
}

// unread counts one chat. The counter and the state may be of different moments; if they are at
// rest, the counts are exact.
func (c caller) unread(
	ctx context.Context, user tidemark.UserID, one account, intervals tidemark.Intervals,
	eventual bool,
) (storage.Unread, error) {
	from, listed := one.counter.Senders.Of(user)
	if !listed {
		from = one.state.Sender
	}
	a := unread.Account{
		User: user, Head: one.counter.Head, Visible: intervals, After: one.state.UnreadAfter(),
		Sent: from.Sent, SentBefore: one.state.SentBefore(), Floor: one.counter.Floor,
		Uncounted: one.counter.Uncounted, LastUncounted: one.counter.LastUncounted,
	}
	//rule:unread_exact.count-own-that-expired-in-dynamodb
	if a.After+1 < a.Floor && a.Sent > 0 {
		var err error
		if a.Expired, a.Floor, err = c.expired(ctx, user, one.counter); err != nil {
			return storage.Unread{}, err
		}
	}
	ordinals := map[tidemark.Sequence]int64{}
	for _, sequence := range a.Asks() {
		n, err := c.ordinal(ctx, one.counter.ID, sequence, eventual)
		if err != nil {
			return storage.Unread{}, err
		}
		ordinals[sequence] = n
	}
	count := storage.Unread{
		// The counter may be older than the state.
		Messages: max(0, a.Count(func(s tidemark.Sequence) int64 { return ordinals[s] })),
	}
	if count.Messages == 0 || one.counter.LastMention <= a.After {
		return count, nil
	}
	for _, piece := range a.Pieces() {
		for _, name := range []tidemark.UserID{user, unread.Everyone} {
			n, err := c.mentions(ctx, one.counter.ID, name, user, piece, eventual)
			if err != nil {
				return storage.Unread{}, err
			}
			count.Mentions += n
		}
	}
	return count, nil
}

// ordinal returns how many messages up to a sequence do not count.
func (c caller) ordinal(
	ctx context.Context, chat tidemark.ChatID, sequence tidemark.Sequence, eventual bool,
) (n int64, err error) {
	q := call.Query{
		Read:      call.Read{Table: record.Messages, Eventual: eventual},
		Partition: "chat_id", Sort: "sequence", Of: call.Text(record.UncountedKey(chat)),
		Range: between(1, sequence), Backwards: true, Page: 1,
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		n = int64(r.Number("ordinal"))
		return false, r.Err
	})
	return n, err
}

// mentions counts the messages of others in a piece that name a user, or all.
func (c caller) mentions(
	ctx context.Context, chat tidemark.ChatID, name, user tidemark.UserID, piece tidemark.Interval,
	eventual bool,
) (n int64, err error) {
	q := call.Query{
		Read:      call.Read{Table: record.Messages, Eventual: eventual},
		Partition: "chat_id", Sort: "sequence", Of: call.Text(record.MentionKey(chat, name)),
		Range: between(piece.From, piece.To),
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		r := call.Reader{Item: it}
		if tidemark.UserID(r.Text("sender_id")) != user {
			n++
		}
		return true, r.Err
	})
	return n, err
}

// Unread implements storage.Unreads.
func (s *Store) Unread(
	ctx context.Context, keys []storage.StateKey,
) ([]storage.Unread, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "unread", len(keys))
	if err != nil {
		return nil, err
	}
	defer leave()
	chats := make([]tidemark.ChatID, len(keys))
	for i, key := range keys {
		chats[i] = key.Chat
	}
	// The states come first: a counter that is read later has all that they count.
	states, err := c.images(ctx, keys, false)
	if err != nil {
		return nil, call.Public(err)
	}
	counters, err := c.Living(ctx, chats, false)
	if err != nil {
		return nil, call.Public(err)
	}
	users, accounts := make([]tidemark.UserID, len(keys)), make([]account, len(keys))
	for i, key := range keys {
		users[i], accounts[i] = key.User, account{counters[key.Chat], states[i]}
	}
	counts, err := c.unreadIn(ctx, users, accounts, false)
	if err != nil {
		return nil, call.Public(err)
	}
	return counts, nil
}

// unreadIn returns the unread count of each user in the account of the same index. A counter may be
// nil: then the count is zero. It reads memberships only where something may be unread.
func (c caller) unreadIn(
	ctx context.Context, users []tidemark.UserID, accounts []account, eventual bool,
) ([]storage.Unread, error) {
	counters := make([]*record.Counter, len(accounts))
	for i, one := range accounts {
		if one.counter != nil && one.counter.Head > one.state.UnreadAfter() {
			counters[i] = one.counter
		}
	}
	members, err := c.membersOf(ctx, users, counters, eventual)
	if err != nil {
		return nil, err
	}
	counts := make([]storage.Unread, len(accounts))
	return counts, call.Together(ctx, len(accounts), func(ctx context.Context, i int) (err error) {
		if intervals := members[i].Intervals; len(intervals) > 0 {
			counts[i], err = c.unread(ctx, users[i], accounts[i], intervals, eventual)
		}
		return err
	})
}

// UnreadOf implements storage.Unreads.
func (s *Store) UnreadOf(
	ctx context.Context, user tidemark.UserID,
) (storage.UnreadTotal, error) {
	c, ctx, leave, err := s.enter(ctx, "unread_of", 0)
	if err != nil {
		return storage.UnreadTotal{}, err
	}
	defer leave()
	var total storage.UnreadTotal
	err = c.chatsOf(ctx, chatsQuery{user: user, eventual: true},
		func(entries []entry) (bool, error) {
			chats := make([]tidemark.ChatID, len(entries))
			for i, e := range entries {
				chats[i] = e.state.ChatID
			}
			counters, err := c.Living(ctx, chats, true)
			if err != nil {
				return false, err
			}
			accounts := make([]account, len(entries))
			for i, e := range entries {
				accounts[i] = account{counters[chats[i]], e.state}
			}
			users := slices.Repeat([]tidemark.UserID{user}, len(entries))
			counts, err := c.unreadIn(ctx, users, accounts, true)
			for _, one := range counts {
				total.Add(one)
			}
			return true, err
		})
	if err != nil {
		return storage.UnreadTotal{}, call.Public(err)
	}
	return total, nil
}

// MarkUnread implements storage.Unreads.
func (s *Store) MarkUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (tidemark.DeliveryState, error) {
	c, ctx, leave, err := s.enter(ctx, "mark_unread", 0)
	if err != nil {
		return tidemark.DeliveryState{}, err
	}
	defer leave()
	if !c.Reaches(chat, max(1, from)) {
		counter, err := c.Alive(ctx, chat)
		if err == nil {
			err = storage.CheckMark(from, counter.Head)
		}
		if err != nil {
			return tidemark.DeliveryState{}, call.Public(err)
		}
	}
	for again := 0; ; again++ {
		state, done, err := c.markUnread(ctx, user, chat, from)
		if err != nil || done {
			return state, call.Public(err)
		}
		if err := call.Yield(ctx, again); err != nil {
			return tidemark.DeliveryState{}, call.Public(err)
		}
	}
}

// markUnread sets or ends a mark, if the read watermark does not move meanwhile.
func (c caller) markUnread(
	ctx context.Context, user tidemark.UserID, chat tidemark.ChatID, from tidemark.Sequence,
) (state tidemark.DeliveryState, done bool, err error) {
	image, err := c.imageOf(ctx, user, chat)
	if err != nil {
		return state, false, err
	}
	state = image.MarkUnread(from)
	if state == image.DeliveryState {
		return state, true, nil
	}
	u := call.Update{
		Table:     record.States,
		Key:       record.StateKey(user, chat),
		Change:    "REMOVE unread_from, mark_read, mark_sent",
		Condition: "last_read_sequence = :read",
		Values:    call.Item{":read": call.Number(image.Read)},
	}
	if state.UnreadFrom > 0 {
		sent, err := c.sentUpTo(ctx, image, state.UnreadAfter())
		if err != nil {
			return state, false, err
		}
		u.Change = "SET unread_from = :from, mark_read = :read, mark_sent = :sent"
		u.Values[":from"], u.Values[":sent"] = call.Number(state.UnreadFrom), call.Number(sent)
	}
	it, done, _, err := c.Update(ctx, u)
	if err != nil || !done {
		return state, false, err
	}
	image, err = c.stateOf(user, chat, it)
	return image.DeliveryState, true, err
}
