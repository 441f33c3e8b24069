package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/call"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/record"
)

// A row is the content of a pending row.
type row struct {
	stands bool
	first  tidemark.Sequence
}

func rowOf(it call.Item) (row, error) {
	r := call.Reader{Item: it}
	return row{stands: it != nil, first: r.Sequence("first_undelivered_seq")}, r.Err
}

// rows reads pending rows with strong consistency.
func (c caller) rows(ctx context.Context, wanted []call.Item) (map[string]row, error) {
	//rule:pending_or_delivered.consistent-rows
	items, err := c.GetAll(ctx, call.Read{Table: record.Pendings}, wanted)
	if err != nil {
		return nil, err
	}
	found := make(map[string]row, len(items))
	for _, it := range items {
		name := call.NameOf(call.Item{"chat_id": it["chat_id"], "receiver_id": it["receiver_id"]})
		if found[name], err = rowOf(it); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// inTurn calls do for each item. Items with equal keys run one after the other, in their order.
// Other items run at once.
func inTurn(
	ctx context.Context, wanted []call.Item, do func(ctx context.Context, name string, i int) error,
) error {
	places := map[string][]int{}
	var names []string
	for i, key := range wanted {
		name := call.NameOf(key)
		if places[name] == nil {
			names = append(names, name)
		}
		places[name] = append(places[name], i)
	}
	return call.Together(ctx, len(names), func(ctx context.Context, n int) error {
		for _, i := range places[names[n]] {
			if err := do(ctx, names[n], i); err != nil {
				return err
			}
			call.Progress(ctx)
		}
		return nil
	})
}

// Mark implements storage.Pending. If the row exists, a mark costs a read and no write.
func (s *Store) Mark(ctx context.Context, marks []tidemark.PendingDelivery) ([]bool, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "mark", len(marks))
	if err != nil {
		return nil, err
	}
	defer leave()
	wanted := make([]call.Item, len(marks))
	for i, m := range marks {
		wanted[i] = record.PendingKey(m.UserID, m.ChatID)
	}
	found, err := c.rows(ctx, wanted)
	if err != nil {
		return nil, call.Public(err)
	}
	written := make([]bool, len(marks))
	err = inTurn(ctx, wanted, func(ctx context.Context, name string, i int) (err error) {
		written[i], err = c.mark(ctx, wanted[i], found[name], marks[i].FirstUndelivered)
		return err
	})
	if err != nil {
		return nil, call.Public(err)
	}
	return written, nil
}

// mark writes a row, unless a row with the same or a lower sequence exists.
func (c caller) mark(
	ctx context.Context, key call.Item, seen row, first tidemark.Sequence,
) (written bool, err error) {
	if seen.stands && seen.first <= first {
		return false, nil
	}
	_, done, doubtful, err := c.Update(ctx, call.Update{
		Table: record.Pendings, Key: key, Change: "SET first_undelivered_seq = :first",
		//rule:pending_or_delivered.mark-lower-only
		Condition: "attribute_not_exists(first_undelivered_seq) OR first_undelivered_seq > :first",
		Values:    call.Item{":first": call.Number(first)},
	})
	return done || doubtful, err
}

// Clear implements storage.Pending.
func (s *Store) Clear(ctx context.Context, clears []storage.Clear) ([]bool, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "clear", len(clears))
	if err != nil {
		return nil, err
	}
	defer leave()
	wanted := make([]call.Item, len(clears))
	for i, one := range clears {
		wanted[i] = record.PendingKey(one.User, one.Chat)
	}
	found, err := c.rows(ctx, wanted)
	if err != nil {
		return nil, call.Public(err)
	}
	cleared := make([]bool, len(clears))
	err = inTurn(ctx, wanted, func(ctx context.Context, name string, i int) (err error) {
		cleared[i], err = c.clear(ctx, wanted[i], found[name], clears[i])
		return err
	})
	if err != nil {
		return nil, call.Public(err)
	}
	return cleared, nil
}

// clear removes a row if its user has acknowledged the whole chat, and moves it otherwise. Removing
// is one transaction with the counter (delivery.md §4, R_CLEAR). Moving is not: a head above
// Through stays above it.
func (c caller) clear(
	ctx context.Context, key call.Item, seen row, one storage.Clear,
) (cleared bool, err error) {
	doubt := false // An attempt may have cleared the row.
	for again := 0; ; again++ {
		if !seen.stands || seen.first == 0 || seen.first > one.Through {
			return doubt, nil
		}
		var now call.Item
		var done, doubtful bool
		if c.Reaches(one.Chat, one.Through+1) {
			now, done, doubtful, err = c.Update(ctx, call.Update{
				Table: record.Pendings, Key: key, Change: "SET first_undelivered_seq = :next",
				//rule:pending_or_delivered.move-row-forward
				Condition: "first_undelivered_seq BETWEEN :one AND :through",
				Values: call.Item{
					":next": call.Number(one.Through + 1),
					":one":  call.Number(1), ":through": call.Number(one.Through),
				},
			})
		} else {
			now, done, doubtful, err = c.remove(ctx, key, one)
		}
		if err != nil || done {
			return done, err
		}
		doubt = doubt || doubtful
		if seen, err = rowOf(now); err != nil {
			return false, err
		}
		if err := call.Yield(ctx, again); err != nil {
			return false, err
		}
	}
}

// remove removes a row if the chat ends at Through. If not, it returns the present row, and the
// head is known.
func (c caller) remove(
	ctx context.Context, key call.Item, one storage.Clear,
) (now call.Item, done, doubtful bool, err error) {
	refused, doubtful, err := c.Transact(ctx, []types.TransactWriteItem{
		//rule:R_CLEAR.clear-when-head-is-acknowledged
		{ConditionCheck: &types.ConditionCheck{
			TableName: c.Table(record.Counters),
			Key:       record.ChatKey(one.Chat),
			ConditionExpression: aws.String(
				"attribute_not_exists(head) OR head <= :through"),
			ExpressionAttributeValues:           call.Item{":through": call.Number(one.Through)},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
		//rule:pending_or_delivered.clear-row-within-acknowledged
		{Delete: &types.Delete{
			TableName:           c.Table(record.Pendings),
			Key:                 key,
			ConditionExpression: aws.String("first_undelivered_seq BETWEEN :one AND :through"),
			ExpressionAttributeValues: call.Item{
				":one": call.Number(1), ":through": call.Number(one.Through),
			},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
	})
	if err != nil || refused == nil {
		return nil, refused == nil, doubtful, err
	}
	if call.Failed(refused[0]) {
		if _, err := c.Learn(one.Chat, refused[0].Item); err != nil {
			return nil, false, doubtful, err
		}
	}
	if call.Failed(refused[1]) {
		return refused[1].Item, false, doubtful, nil
	}
	now, err = c.Get(ctx, record.Pendings, key)
	return now, false, doubtful, err
}

// PendingOf implements storage.Pending with one query, and a read of the watermarks for each 100
// rows.
func (s *Store) PendingOf(
	ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int,
) ([]storage.PendingRow, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "pending_of", 0)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	var found []storage.PendingRow
	more := false
	q := call.Query{
		Read:      call.Read{Table: record.Pendings},
		Partition: "receiver_id",
		Sort:      "chat_id",
		Of:        call.Text(user),
		Page:      limit + 1,
	}
	if after != "" {
		q.After = call.Text(after)
	}
	err = c.Each(ctx, q, func(it call.Item) (bool, error) {
		if more = len(found) == limit; more {
			return false, nil
		}
		r := call.Reader{Item: it}
		found = append(found, storage.PendingRow{PendingDelivery: tidemark.PendingDelivery{
			UserID:           user,
			ChatID:           tidemark.ChatID(r.Text("chat_id")),
			FirstUndelivered: r.Sequence("first_undelivered_seq"),
		}})
		return true, r.Err
	})
	if err != nil {
		return nil, false, call.Public(err)
	}
	names := make([]storage.StateKey, len(found))
	for i := range found {
		names[i] = storage.StateKey{User: user, Chat: found[i].ChatID}
	}
	watermarks, err := c.states(ctx, names, false)
	if err != nil {
		return nil, false, call.Public(err)
	}
	for i := range found {
		found[i].Acked = watermarks[i].Acked
	}
	return found, more, nil
}

// mostCompared is how many chats a page of Behind compares.
const mostCompared = 2_000

// Behind implements storage.Pending with one query, and a read of the heads for each 100 chats.
func (s *Store) Behind(
	ctx context.Context, user tidemark.UserID, q storage.BehindQuery,
) ([]storage.Lag, tidemark.ChatID, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "behind", 0)
	if err != nil {
		return nil, "", false, err
	}
	defer leave()
	var lags []storage.Lag
	var last tidemark.ChatID
	compared, more := 0, false
	err = c.chatsOf(ctx, chatsQuery{user: user, after: q.After},
		func(entries []entry) (bool, error) {
			chats := make([]tidemark.ChatID, len(entries))
			for i, e := range entries {
				chats[i] = e.state.ChatID
			}
			//rule:pending_or_delivered.consistent-heads-for-comparison
			found, err := c.Living(ctx, chats, false)
			if err != nil {
				return false, err
			}
			for _, e := range entries {
				counter := found[e.state.ChatID]
				if counter == nil {
					continue
				}
				//rule:R_EPOCH.active-chats-in-dynamodb
				active := q.ActiveSince(counter.Activity)
				//rule:pending_or_delivered.compare-chats-with-standing-rows
				if !active && counter.Head <= e.state.Acked ||
					q.LargeOnly && !counter.Large && !counter.Standing {
					continue
				}
				if more = len(lags) == q.Limit; more {
					return false, nil
				}
				lags = append(lags, storage.Lag{
					Chat:   e.state.ChatID,
					Head:   counter.Head,
					Acked:  e.state.Acked,
					Active: active,
				})
				last = e.state.ChatID
			}
			if compared += len(entries); compared >= mostCompared {
				last, more = chats[len(chats)-1], true
			}
			return !more, nil
		})
	if err != nil {
		return nil, "", false, call.Public(err)
	}
	if !more {
		last = ""
	}
	return lags, last, more, nil
}
