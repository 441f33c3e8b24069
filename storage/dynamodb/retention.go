package dynamodb

import (
	"context"
	"errors"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
	"github.com/tidemark-im/tidemark/storage/internal/unread"
)

// Expire implements storage.Retention. First the floor rises, then the senders' counts of what has
// expired, and then the items are removed. A later call goes on where an earlier one ended: what is
// below the floor and still there is the rest of its work.
func (s *Store) Expire(
	ctx context.Context, id tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	if err := storage.CheckExpire(before, limit); err != nil {
		return storage.Expired{}, err
	}
	c, ctx, leave, err := s.enterBatch(ctx, "expire", limit)
	if err != nil {
		return storage.Expired{}, err
	}
	defer leave()
	done, err := c.expire(ctx, id, call.Stored(before), limit)
	if err != nil {
		return storage.Expired{}, call.Public(err)
	}
	return done, nil
}

func (c caller) expire(
	ctx context.Context, id tidemark.ChatID, before time.Time, limit int,
) (storage.Expired, error) {
	counter, old, err := c.aged(ctx, id, before, limit)
	if err == nil {
		err = storage.OnHold(id, counter.Policy)
	}
	if err != nil || len(old.messages) == 0 {
		return storage.Expired{Floor: old.floor}, err
	}
	//rule:floor_recorded.floor-before-removal-in-dynamodb
	if old.floor > counter.Floor {
		if err := c.raiseFloor(ctx, id, old.floor); err != nil {
			return storage.Expired{}, err
		}
	}
	//rule:unread_exact.count-own-before-removal-in-dynamodb
	if err := c.countExpired(ctx, id, old); err != nil {
		return storage.Expired{}, err
	}
	if err := c.removeNotes(ctx, id, old); err != nil {
		return storage.Expired{}, err
	}
	//rule:annotations_counted.annotations-expire-in-dynamodb
	if err := c.removeAnnotations(ctx, counter, old.floor); err != nil {
		return storage.Expired{}, err
	}
	keys := make([]call.Item, len(old.messages))
	for i, m := range old.messages {
		keys[i] = call.Item{"chat_id": call.Text(id), "sequence": call.Number(m.Sequence)}
	}
	err = c.RemoveAll(ctx, record.Messages, keys)
	return storage.Expired{Floor: old.floor, Removed: len(keys)}, err
}

// aged are the first messages of a chat, as far as they are old, and those that are below its floor
// already. floor is above all of them.
type aged struct {
	messages []tidemark.Message
	floor    tidemark.Sequence
}

// end returns the sequence after the last message, up to which these are counted. It is below the
// floor if an earlier call has left more than this one can remove.
func (a *aged) end() tidemark.Sequence { return a.messages[len(a.messages)-1].Sequence + 1 }

// aged reads the counter of a chat, and at most limit of its first messages, as far as they were
// created before a time. If another process raises the floor between the two reads, it begins anew.
func (c caller) aged(
	ctx context.Context, id tidemark.ChatID, before time.Time, limit int,
) (counter *record.Counter, old aged, err error) {
	for floor := tidemark.Sequence(0); ; {
		if counter, err = c.Counter(ctx, id); err != nil {
			return nil, old, err
		}
		if counter.State == tidemark.ChatDeleted { // PurgeChat removes its messages.
			return counter, aged{floor: counter.Floor}, nil
		}
		old, err = c.agedAt(ctx, counter, before, limit)
		var hole *call.Hole
		if !errors.As(err, &hole) || counter.Floor == floor {
			return counter, old, err
		}
		floor = counter.Floor
	}
}

// agedAt is aged with a counter. The error is a Hole if a message is missing at its floor or above.
func (c caller) agedAt(
	ctx context.Context, counter *record.Counter, before time.Time, limit int,
) (aged, error) {
	old := aged{floor: counter.Floor}
	q := call.Query{
		Read: call.Read{
			Table: record.Messages, Only: []string{
				"chat_id", "sequence", "created_at", "sender_id", "kind", "mentions",
			},
		},
		Partition: "chat_id", Sort: "sequence", Of: call.Text(counter.ID), Page: limit,
	}
	err := c.Each(ctx, q, func(it call.Item) (bool, error) {
		m, err := record.MessageOf(it)
		switch {
		case err != nil:
			return false, err
		case m.Sequence < counter.Floor:
		//rule:floor_recorded.stop-at-the-first-younger-message-in-dynamodb
		case !m.CreatedAt.Before(before):
			return false, nil
		case m.Sequence != old.floor:
			return false, &call.Hole{Chat: counter.ID, Sequence: old.floor}
		default:
			old.floor++
		}
		old.messages = append(old.messages, m)
		return len(old.messages) < limit, nil
	})
	return old, err
}

// raiseFloor raises the floor of a chat, unless it is there already. Conflict: the chat is on hold.
func (c caller) raiseFloor(
	ctx context.Context, id tidemark.ChatID, floor tidemark.Sequence,
) error {
	u := call.Update{
		Table:  record.Counters,
		Key:    record.ChatKey(id),
		Change: "SET floor = :floor",
		//rule:floor_recorded.floors-only-rise
		Condition: "attribute_exists(head) AND (attribute_not_exists(floor) OR floor < :floor)",
		Values:    call.Item{":floor": call.Number(floor)},
	}
	//rule:held_is_kept.nothing-expires-in-dynamodb
	u.Condition += " AND attribute_not_exists(on_hold)"
	it, raised, _, err := c.Update(ctx, u)
	if err != nil || raised {
		return err
	}
	r := call.Reader{Item: it}
	return storage.OnHold(id, tidemark.Policy{Hold: r.Flag("on_hold")})
}

// Policies implements storage.Retention.
func (s *Store) Policies(
	ctx context.Context, chats []tidemark.ChatID,
) ([]tidemark.Policy, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "policies", len(chats))
	if err != nil {
		return nil, err
	}
	defer leave()
	found, err := c.Counters(ctx, chats, true)
	if err != nil {
		return nil, call.Public(err)
	}
	policies := make([]tidemark.Policy, len(chats))
	for i, id := range chats {
		if counter := found[id]; counter != nil {
			policies[i] = counter.Policy
		}
	}
	return policies, nil
}

// countExpired adds what has expired to the counts of its senders.
func (c caller) countExpired(ctx context.Context, id tidemark.ChatID, old aged) error {
	own := make(map[tidemark.UserID][]tidemark.Sequence)
	var senders []tidemark.UserID
	for _, m := range old.messages {
		if !m.Kind.Counts() {
			continue
		}
		if own[m.SenderID] == nil {
			senders = append(senders, m.SenderID)
		}
		own[m.SenderID] = append(own[m.SenderID], m.Sequence)
	}
	return call.Together(ctx, len(senders), func(ctx context.Context, i int) error {
		for again := 0; ; again++ {
			done, err := c.addExpired(ctx, senders[i], id, own[senders[i]], old.end())
			if err != nil || done {
				return err
			}
			if err := call.Yield(ctx, again); err != nil {
				return err
			}
		}
	})
}

// addExpired adds some messages of a user to those that have expired below a sequence, unless they
// are counted already. It returns false if the count changed meanwhile. The messages were read
// before the count. So what another process has removed since is in the count.
func (c caller) addExpired(
	ctx context.Context, user tidemark.UserID, id tidemark.ChatID, own []tidemark.Sequence,
	end tidemark.Sequence,
) (done bool, err error) {
	s, err := c.imageOf(ctx, user, id)
	if err != nil || s.ExpiredAt >= end {
		return true, err
	}
	sum := s.Expired
	for _, n := range own {
		if n >= s.ExpiredAt {
			sum++
		}
	}
	u := call.Update{
		Table:     record.States,
		Key:       record.StateKey(user, id),
		Change:    "SET expired = :sum, expired_at = :end",
		Condition: "attribute_not_exists(expired_at)",
		Values:    call.Item{":sum": call.Number(sum), ":end": call.Number(end)},
	}
	if s.ExpiredAt > 0 {
		u.Condition = "expired_at = :seen"
		u.Values[":seen"] = call.Number(s.ExpiredAt)
	}
	_, done, _, err = c.Update(ctx, u)
	return done, err
}

// removeNotes removes the ordinals and mentions below the floor. The last ordinal stays: it says
// how many there are below the floor. A message that was changed does not say any more whom it
// named first, so those mentions stay: nothing reads them.
func (c caller) removeNotes(ctx context.Context, id tidemark.ChatID, old aged) error {
	partitions := make(map[string]bool)
	for _, m := range old.messages {
		if !m.Kind.Counts() {
			partitions[record.UncountedKey(id)] = true
			continue
		}
		for _, name := range m.Mentions.Users {
			partitions[record.MentionKey(id, name)] = true
		}
		if m.Mentions.All {
			partitions[record.MentionKey(id, unread.Everyone)] = true
		}
	}
	var keys []call.Item
	for partition := range partitions {
		last := partition == record.UncountedKey(id)
		q := call.Query{
			Read: call.Read{
				Table: record.Messages, Only: []string{"chat_id", "sequence"},
			},
			Partition: "chat_id", Sort: "sequence", Of: call.Text(partition),
			Range: between(1, old.floor-1), Backwards: true,
		}
		err := c.Each(ctx, q, func(it call.Item) (bool, error) {
			if !last {
				keys = append(keys, it)
			}
			last = false
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	return c.RemoveAll(ctx, record.Messages, keys)
}
