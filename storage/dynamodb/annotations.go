package dynamodb

import (
	"cmp"
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// Reactions implements storage.Annotations.
func (s *Store) Reactions(
	ctx context.Context, q storage.ReactionsQuery,
) (found []storage.ReactionCount, through tidemark.Sequence, err error) {
	if err := storage.CheckReactions(&q); err != nil {
		return nil, 0, err
	}
	c, ctx, leave, err := s.enter(ctx, "reactions", 0)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	reactions, through, err := c.reactions(ctx, &q)
	if err != nil {
		return nil, 0, call.Public(err)
	}
	return storage.CountReactions(reactions, q.User), through, nil
}

// reactions returns the reactions that stand to the messages of a range, and the head at which they
// do. A query is no snapshot. So it reads the counter before and after it, and begins anew if it
// may have missed a reaction or a redaction. Both are messages that count as unread for nobody, so
// the counter says which one was the last.
func (c caller) reactions(
	ctx context.Context, q *storage.ReactionsQuery,
) ([]storage.Reaction, tidemark.Sequence, error) {
	before, err := c.counterIf(ctx, q.Chat)
	for look := 0; err == nil && before != nil; look++ {
		from := max(q.From, before.Floor)
		// What stands to a message came after it.
		if from > q.To || before.LastUncounted <= from {
			return nil, before.Head, nil
		}
		found, err := c.Annotations(ctx, record.ReactionsKey(q.Chat),
			record.ReactionsTo(from, q.To))
		if err != nil {
			return nil, 0, err
		}
		after, err := c.Counter(ctx, q.Chat)
		if err != nil {
			return nil, 0, err
		}
		whole := false
		//rule:annotations_counted.nothing-between-two-counters-in-dynamodb
		if after.LastUncounted == before.LastUncounted {
			whole, err = c.shows(ctx, after, found, from, q.To)
		}
		if err != nil {
			return nil, 0, err
		}
		if whole {
			//rule:annotations_counted.leave-out-what-has-expired-in-dynamodb
			found = slices.DeleteFunc(found,
				func(r storage.Reaction) bool { return r.Target < after.Floor })
			return found, after.Head, nil
		}
		before = after
		if err := call.Pause(ctx, look); err != nil {
			return nil, 0, err
		}
	}
	return nil, 0, err
}

// shows reports whether the reactions that were found, to the messages from one to another, are
// those of the counter. They must have what the last message that counts for nobody has changed,
// and none that is above the head. DynamoDB may show parts of a transaction for a moment.
func (c caller) shows(
	ctx context.Context, counter *record.Counter, found []storage.Reaction,
	from, to tidemark.Sequence,
) (bool, error) {
	above := func(r storage.Reaction) bool { return r.Sequence > counter.Head }
	//rule:annotations_counted.nothing-above-the-head-in-dynamodb
	if slices.ContainsFunc(found, above) {
		return false, nil
	}
	stands := func(n tidemark.Sequence) bool {
		return slices.ContainsFunc(found,
			func(r storage.Reaction) bool { return r.Sequence == n })
	}
	if stands(counter.LastUncounted) {
		return true, nil
	}
	it, err := c.Get(ctx, record.Messages, call.Item{
		"chat_id": call.Text(counter.ID), "sequence": call.Number(counter.LastUncounted),
	})
	if err != nil || it == nil {
		return false, err
	}
	last, err := record.MessageOf(it)
	switch {
	case err != nil:
		return false, err
	//rule:annotations_counted.see-the-last-reaction-in-dynamodb
	case last.Kind == tidemark.KindReact:
		return last.Relation.Sequence < from || last.Relation.Sequence > to, nil
	//rule:annotations_counted.see-the-last-redaction-in-dynamodb
	case last.Kind == tidemark.KindRedact:
		return !slices.ContainsFunc(last.Relation.Named(), stands), nil
	}
	return true, nil
}

// counterIf returns the counter of a chat, or nil if there is no chat.
func (c caller) counterIf(
	ctx context.Context, chat tidemark.ChatID,
) (*record.Counter, error) {
	counter, err := c.Counter(ctx, chat)
	if tidemark.CodeOf(err) == tidemark.NotFound {
		return nil, nil
	}
	return counter, err
}

// Reactors implements storage.Annotations. It reads all reactions to the message for each page.
func (s *Store) Reactors(
	ctx context.Context, chat tidemark.ChatID, target, after tidemark.Sequence, limit int,
) (reactions []storage.Reaction, more bool, err error) {
	c, ctx, leave, err := s.enter(ctx, "reactors", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	counter, err := c.counterIf(ctx, chat)
	if err != nil || counter == nil || target < counter.Floor ||
		counter.LastUncounted <= target {
		return nil, false, call.Public(err)
	}
	found, err := c.Annotations(ctx, record.ReactionsKey(chat), record.ReactionsTo(target, target))
	if err != nil {
		return nil, false, call.Public(err)
	}
	found = slices.DeleteFunc(found,
		func(r storage.Reaction) bool { return r.Sequence <= after })
	slices.SortFunc(found,
		func(a, b storage.Reaction) int { return cmp.Compare(a.Sequence, b.Sequence) })
	if len(found) > limit {
		return found[:limit], true, nil
	}
	return found, false, nil
}

// Pins implements storage.Annotations.
func (s *Store) Pins(ctx context.Context, chat tidemark.ChatID) ([]storage.Pin, error) {
	c, ctx, leave, err := s.enter(ctx, "pins", 0)
	if err != nil {
		return nil, err
	}
	defer leave()
	counter, err := c.counterIf(ctx, chat)
	if err != nil || counter == nil || counter.LastUncounted <= counter.Floor {
		return nil, call.Public(err)
	}
	found, err := c.Annotations(ctx, record.PinsKey(chat),
		between(counter.Floor, tidemark.MaxSequence))
	if err != nil {
		return nil, call.Public(err)
	}
	slices.SortFunc(found,
		func(a, b storage.Reaction) int { return cmp.Compare(b.Sequence, a.Sequence) })
	pins := make([]storage.Pin, len(found))
	for i, one := range found {
		pins[i] = storage.Pin{
			Target: one.Target, Sequence: one.Sequence, By: one.User, At: one.At,
		}
	}
	return pins, nil
}

// removedAtOnce is how many reactions are removed before further ones are read. A message may have
// any number of them.
const removedAtOnce = 500

// removeAnnotations removes the reactions to what is below a floor, and the pins of it. A chat in
// which all messages count as unread has none.
func (c caller) removeAnnotations(
	ctx context.Context, counter *record.Counter, floor tidemark.Sequence,
) error {
	if counter.Uncounted == 0 || floor <= 1 {
		return nil
	}
	for _, part := range []struct {
		partition string
		within    [2]types.AttributeValue
	}{
		{record.ReactionsKey(counter.ID), record.ReactionsTo(1, floor-1)},
		{record.PinsKey(counter.ID), between(1, floor-1)},
	} {
		q := call.Query{
			Read: call.Read{
				Table: record.Messages, Only: []string{"chat_id", "sequence"},
			},
			Partition: "chat_id", Sort: "sequence", Of: call.Text(part.partition),
			Range: part.within,
		}
		var keys []call.Item
		err := c.Each(ctx, q, func(it call.Item) (bool, error) {
			if keys = append(keys, it); len(keys) < removedAtOnce {
				return true, nil
			}
			err := c.RemoveAll(ctx, record.Messages, keys)
			keys = nil
			return true, err
		})
		if err == nil {
			err = c.RemoveAll(ctx, record.Messages, keys)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
