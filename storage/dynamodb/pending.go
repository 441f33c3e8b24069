package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A row is a pending row as it was read.
type row struct {
	stands bool
	first  tidemark.Sequence
}

func rowOf(it item) (row, error) {
	r := reader{item: it}
	return row{stands: it != nil, first: r.sequence("first_undelivered_seq")}, r.err
}

// rows reads pending rows, strongly.
func (c caller) rows(ctx context.Context, wanted []item) (map[string]row, error) {
	items, err := c.getAll(ctx, read{table: pendings}, wanted)
	if err != nil {
		return nil, err
	}
	found := make(map[string]row, len(items))
	for _, it := range items {
		name := nameOf(item{"chat_id": it["chat_id"], "receiver_id": it["receiver_id"]})
		if found[name], err = rowOf(it); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// inTurn calls do for each item: those of one key one after the other, in their order, and others at once.
func inTurn(ctx context.Context, wanted []item, do func(ctx context.Context, name string, i int) error) error {
	places := map[string][]int{}
	var names []string
	for i, key := range wanted {
		name := nameOf(key)
		if places[name] == nil {
			names = append(names, name)
		}
		places[name] = append(places[name], i)
	}
	return together(ctx, len(names), func(ctx context.Context, n int) error {
		for _, i := range places[names[n]] {
			if err := do(ctx, names[n], i); err != nil {
				return err
			}
		}
		return nil
	})
}

// Mark implements storage.Pending. While a row stands, it costs a read and no write.
func (s *Store) Mark(ctx context.Context, marks []tidemark.PendingDelivery) ([]bool, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "mark", callTime, len(marks))
	if err != nil {
		return nil, err
	}
	defer leave()
	wanted := make([]item, len(marks))
	for i, m := range marks {
		wanted[i] = pendingKey(m.UserID, m.ChatID)
	}
	found, err := c.rows(ctx, wanted)
	if err != nil {
		return nil, public(err)
	}
	written := make([]bool, len(marks))
	err = inTurn(ctx, wanted, func(ctx context.Context, name string, i int) (err error) {
		written[i], err = c.mark(ctx, wanted[i], found[name], marks[i].FirstUndelivered)
		return err
	})
	if err != nil {
		return nil, public(err)
	}
	return written, nil
}

// mark writes a row, unless one at or below the sequence stands.
func (c caller) mark(ctx context.Context, key item, seen row, first tidemark.Sequence) (written bool, err error) {
	if seen.stands && seen.first <= first {
		return false, nil
	}
	_, done, doubtful, err := c.update(ctx, update{
		table: pendings, key: key, change: "SET first_undelivered_seq = :first",
		condition: "attribute_not_exists(first_undelivered_seq) OR first_undelivered_seq > :first", values: item{":first": number(first)},
	})
	return done || doubtful, err
}

// Clear implements storage.Pending.
func (s *Store) Clear(ctx context.Context, clears []storage.Clear) ([]bool, error) {
	c, ctx, leave, err := s.enterBatch(ctx, "clear", callTime, len(clears))
	if err != nil {
		return nil, err
	}
	defer leave()
	wanted := make([]item, len(clears))
	for i, one := range clears {
		wanted[i] = pendingKey(one.User, one.Chat)
	}
	found, err := c.rows(ctx, wanted)
	if err != nil {
		return nil, public(err)
	}
	cleared := make([]bool, len(clears))
	err = inTurn(ctx, wanted, func(ctx context.Context, name string, i int) (err error) {
		cleared[i], err = c.clear(ctx, wanted[i], found[name], clears[i])
		return err
	})
	if err != nil {
		return nil, public(err)
	}
	return cleared, nil
}

// clear removes a row if its user has the whole chat, in one step with the counter (delivery.md §4, R_CLEAR), else moves it. That the head is above Through needs no
// such step: it stays so.
func (c caller) clear(ctx context.Context, key item, seen row, one storage.Clear) (cleared bool, err error) {
	doubt := false // An attempt may have cleared the row.
	for again := 0; ; again++ {
		if !seen.stands || seen.first == 0 || seen.first > one.Through {
			return doubt, nil
		}
		var now item
		var done, doubtful bool
		if c.known.reaches(one.Chat, one.Through+1) {
			now, done, doubtful, err = c.update(ctx, update{
				table: pendings, key: key, change: "SET first_undelivered_seq = :next",
				condition: "first_undelivered_seq BETWEEN :one AND :through",
				values:    item{":next": number(one.Through + 1), ":one": number(1), ":through": number(one.Through)},
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
		if err := yield(ctx, again); err != nil {
			return false, err
		}
	}
}

// remove removes a row if the chat ends at Through; if not, it returns the row as it is, and the head is known.
func (c caller) remove(ctx context.Context, key item, one storage.Clear) (now item, done, doubtful bool, err error) {
	refused, doubtful, err := c.transact(ctx, []types.TransactWriteItem{
		{ConditionCheck: &types.ConditionCheck{
			TableName: c.table(counters), Key: chatKey(one.Chat), ConditionExpression: aws.String("attribute_not_exists(head) OR head <= :through"),
			ExpressionAttributeValues: item{":through": number(one.Through)}, ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
		{Delete: &types.Delete{
			TableName: c.table(pendings), Key: key, ConditionExpression: aws.String("first_undelivered_seq BETWEEN :one AND :through"),
			ExpressionAttributeValues:           item{":one": number(1), ":through": number(one.Through)},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
	})
	if err != nil || refused == nil {
		return nil, refused == nil, doubtful, err
	}
	if failed(refused[0]) {
		if _, err := c.learn(one.Chat, refused[0].Item); err != nil {
			return nil, false, doubtful, err
		}
	}
	if failed(refused[1]) {
		return refused[1].Item, false, doubtful, nil
	}
	now, err = c.get(ctx, pendings, key)
	return now, false, doubtful, err
}

// PendingOf implements storage.Pending: one query, and a read of the watermarks for each 100 rows.
func (s *Store) PendingOf(ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int) ([]storage.PendingRow, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "pending_of", callTime)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	var found []storage.PendingRow
	more := false
	q := query{read: read{table: pendings}, partition: "receiver_id", sort: "chat_id", of: text(user), page: limit + 1}
	if after != "" {
		q.after = text(after)
	}
	err = c.each(ctx, q, func(it item) (bool, error) {
		if more = len(found) == limit; more {
			return false, nil
		}
		r := reader{item: it}
		found = append(found, storage.PendingRow{PendingDelivery: tidemark.PendingDelivery{
			UserID: user, ChatID: tidemark.ChatID(r.text("chat_id")), FirstUndelivered: r.sequence("first_undelivered_seq"),
		}})
		return true, r.err
	})
	if err != nil {
		return nil, false, public(err)
	}
	names := make([]storage.StateKey, len(found))
	for i := range found {
		names[i] = storage.StateKey{User: user, Chat: found[i].ChatID}
	}
	watermarks, err := c.states(ctx, names, false)
	if err != nil {
		return nil, false, public(err)
	}
	for i := range found {
		found[i].Acked = watermarks[i].Acked
	}
	return found, more, nil
}

// mostCompared is how many chats a page of Behind looks at.
const mostCompared = 2_000

// Behind implements storage.Pending: one query, and a read of the heads for each 100 chats.
func (s *Store) Behind(ctx context.Context, user tidemark.UserID, q storage.BehindQuery) ([]storage.Lag, tidemark.ChatID, bool, error) {
	c, ctx, leave, err := s.enter(ctx, "behind", callTime)
	if err != nil {
		return nil, "", false, err
	}
	defer leave()
	var lags []storage.Lag
	var last tidemark.ChatID
	compared, more := 0, false
	err = c.chatsOf(ctx, chatsQuery{user: user, after: q.After}, func(entries []entry) (bool, error) {
		chats := make([]tidemark.ChatID, len(entries))
		for i, e := range entries {
			chats[i] = e.state.ChatID
		}
		found, err := c.counters(ctx, chats, false)
		if err != nil {
			return false, err
		}
		for _, e := range entries {
			counter := found[e.state.ChatID]
			if counter == nil || counter.Head <= e.state.Acked || q.LargeOnly && !counter.Large {
				continue
			}
			if more = len(lags) == q.Limit; more {
				return false, nil
			}
			lags = append(lags, storage.Lag{Chat: e.state.ChatID, Head: counter.Head, Acked: e.state.Acked})
			last = e.state.ChatID
		}
		if compared += len(entries); compared >= mostCompared {
			last, more = chats[len(chats)-1], true
		}
		return !more, nil
	})
	if err != nil {
		return nil, "", false, public(err)
	}
	if !more {
		last = ""
	}
	return lags, last, more, nil
}
