// Package call makes calls to DynamoDB: conditional writes, transactions, and complete reads.
package call

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark/internal/signal"
)

const (
	// attemptTime is the time limit of one attempt. DynamoDB usually answers within milliseconds.
	attemptTime = 1500 * time.Millisecond
	// firstPause and mostPause bound the pause before a call is repeated. Each pause is twice as
	// long, with a random half.
	firstPause = 10 * time.Millisecond
	mostPause  = 200 * time.Millisecond
	// mostCalls is the maximum number of concurrent calls of a store.
	mostCalls = 256
)

// A Caller makes the calls of one method of storage.Store. It repeats a call while that may help,
// until its ctx ends. The SDK itself repeats nothing, since it would repeat unsafe calls and wait
// for seconds.
type Caller struct {
	*Tables
	// Operation is the method's name in the reports of request units and writes.
	Operation string
}

// Tables are the tables of a store. They are safe for concurrent use.
type Tables struct {
	api api
	// Prefix begins the name of each table.
	Prefix string
	// Consumed is called with the request units of each answer.
	Consumed func(operation string, reads, writes float64)
	// Written is called after each write. err is nil if DynamoDB decided the write, even by a
	// failed condition. Otherwise it is the error as Public returns it.
	Written func(operation string, err error)
	// Attempt is attemptTime, except in tests that are not about time. Set it before the first
	// call.
	Attempt time.Duration
	// slots limits the concurrent calls.
	slots chan struct{}
}

// NewTables returns the tables with a prefix. consumed and written become fields of Tables; both
// are called concurrently.
func NewTables(
	client *dynamodb.Client, prefix string, consumed func(operation string, reads, writes float64),
	written func(operation string, err error),
) *Tables {
	return &Tables{
		api:      callsOf(client),
		Attempt:  attemptTime,
		Prefix:   prefix,
		Consumed: consumed,
		Written:  written,
		slots:    make(chan struct{}, mostCalls),
	}
}

// Table returns the full name of a table.
func (t *Tables) Table(name string) *string { return aws.String(t.Prefix + name) }

// try repeats a call until it is answered. doubtful reports that an earlier attempt with an unknown
// outcome may have been performed.
func try[I, O any](
	ctx context.Context, c Caller,
	call func(context.Context, I, ...func(*dynamodb.Options)) (O, error), in I,
) (out O, doubtful bool, err error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return out, false, ctx.Err()
	}
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, c.Attempt)
		out, err = call(attempt, in)
		cancel()
		meaning := judge(err)
		if meaning == answered {
			return out, doubtful, err
		}
		//rule:send_idempotent.unknown-outcome-is-doubtful
		doubtful = doubtful || meaning == unknown
		if e := Pause(ctx, n); e != nil {
			return out, doubtful, err
		}
	}
}

// Pause waits before repetition n, counted from 0. It returns an error if ctx ends before that.
func Pause(ctx context.Context, n int) error {
	most := mostPause
	if n < 5 {
		most = min(most, firstPause<<n)
	}
	signal.Pause(ctx, most/2+rand.N(most/2))
	return ctx.Err()
}

// Yield waits if a condition has failed several times in a row. Repetition n is counted from 0.
func Yield(ctx context.Context, n int) error {
	if n < 3 {
		return ctx.Err()
	}
	return Pause(ctx, n-3)
}

// spent reports the request units of an answer.
func (c Caller) spent(reads, writes float64) {
	if reads > 0 || writes > 0 {
		c.Consumed(c.Operation, reads, writes)
	}
}

// wrote reports the result of a write, and returns err.
func (c Caller) wrote(err error) error {
	c.Written(c.Operation, Public(err))
	return err
}

func units(capacity *types.ConsumedCapacity) float64 {
	if capacity == nil {
		return 0
	}
	return aws.ToFloat64(capacity.CapacityUnits)
}

func unitsOf(capacities []types.ConsumedCapacity) (sum float64) {
	for i := range capacities {
		sum += units(&capacities[i])
	}
	return sum
}

// Get reads an item by its key with strong consistency. It returns nil if there is none.
func (c Caller) Get(ctx context.Context, table string, key Item) (Item, error) {
	out, _, err := try(ctx, c, c.api.getItem, &dynamodb.GetItemInput{
		TableName:              c.Table(table),
		Key:                    key,
		ConsistentRead:         aws.Bool(true),
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	if err != nil {
		return nil, err
	}
	c.spent(units(out.ConsumedCapacity), 0)
	return out.Item, nil
}

// A Read says how the items of a call are read.
type Read struct {
	Table    string
	Eventual bool
	// Only are the attributes to read, all if it is empty. It does not change the cost of the read.
	Only []string
}

// mostGets is how many items one BatchGetItem may read.
const mostGets = 100

// GetAll reads those items that exist, by their keys, in no order. Keys may be named twice. Each
// item is read by itself, so the items need not be of one moment.
func (c Caller) GetAll(ctx context.Context, r Read, keys []Item) ([]Item, error) {
	distinct, seen := make([]Item, 0, len(keys)), make(map[string]struct{}, len(keys))
	for _, key := range keys {
		name := NameOf(key)
		if _, twice := seen[name]; !twice {
			seen[name] = struct{}{}
			distinct = append(distinct, key)
		}
	}
	batches := (len(distinct) + mostGets - 1) / mostGets
	found := make([][]Item, batches)
	err := Together(ctx, batches, func(ctx context.Context, i int) (err error) {
		found[i], err = c.getBatch(ctx, r, distinct[i*mostGets:min(len(distinct), (i+1)*mostGets)])
		return err
	})
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, part := range found {
		items = append(items, part...)
	}
	return items, nil
}

// getBatch makes one BatchGetItem, and repeats it for the items that DynamoDB left out.
func (c Caller) getBatch(ctx context.Context, r Read, keys []Item) (items []Item, err error) {
	wanted := types.KeysAndAttributes{Keys: keys, ConsistentRead: aws.Bool(!r.Eventual)}
	if len(r.Only) > 0 {
		wanted.ProjectionExpression, wanted.ExpressionAttributeNames = projected(r.Only)
	}
	table := *c.Table(r.Table)
	left := map[string]types.KeysAndAttributes{table: wanted}
	for n := 0; ; n++ {
		out, _, err := try(ctx, c, c.api.batchGetItem, &dynamodb.BatchGetItemInput{
			RequestItems:           left,
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		if err != nil {
			return nil, err
		}
		c.spent(unitsOf(out.ConsumedCapacity), 0)
		items = append(items, out.Responses[table]...)
		//rule:watermark_monotonic.read-whole-batch
		if left = out.UnprocessedKeys; len(left) == 0 {
			return items, nil
		}
		if err := Pause(ctx, n); err != nil {
			return nil, &throttled{}
		}
	}
}

// A Query selects the items with one partition key, in the order of the sort key. It selects all of
// them, those above After, or those in Range.
type Query struct {
	Read
	Partition, Sort string // the names of the keys
	Of              types.AttributeValue
	After           types.AttributeValue    // exclusive; nil: from the beginning
	Range           [2]types.AttributeValue // inclusive; nil: all
	Backwards       bool
	// Index, if it is not "", is read instead of the table. Then Read.Eventual must be true.
	Index string
	// Filter, if it is not "", is an expression over Values. Items that it leaves out are paid for,
	// and count for Page.
	Filter string
	Values Item
	// Page is the maximum number of items of one call. 0 means as many as fit into 1 MB.
	Page int
}

// Each calls do for each item until do returns false, or there are no more.
func (c Caller) Each(ctx context.Context, q Query, do func(Item) (more bool, err error)) error {
	in := &dynamodb.QueryInput{
		TableName:                 c.Table(q.Table),
		ConsistentRead:            aws.Bool(!q.Eventual),
		ScanIndexForward:          aws.Bool(!q.Backwards),
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
		ExpressionAttributeNames:  map[string]string{},
		ExpressionAttributeValues: Item{":p": q.Of},
		IndexName:                 some(q.Index),
		FilterExpression:          some(q.Filter),
	}
	maps.Copy(in.ExpressionAttributeValues, q.Values)
	if len(q.Only) > 0 {
		in.ProjectionExpression, in.ExpressionAttributeNames = projected(q.Only)
	}
	in.ExpressionAttributeNames["#p"] = q.Partition
	condition := "#p = :p"
	switch {
	case q.After != nil:
		condition += " AND #s > :after"
		in.ExpressionAttributeNames["#s"] = q.Sort
		in.ExpressionAttributeValues[":after"] = q.After
	case q.Range[0] != nil:
		condition += " AND #s BETWEEN :from AND :to"
		in.ExpressionAttributeNames["#s"] = q.Sort
		in.ExpressionAttributeValues[":from"] = q.Range[0]
		in.ExpressionAttributeValues[":to"] = q.Range[1]
	}
	in.KeyConditionExpression = aws.String(condition)
	if q.Page > 0 {
		in.Limit = aws.Int32(int32(q.Page))
	}
	for {
		out, _, err := try(ctx, c, c.api.query, in)
		if err != nil {
			return err
		}
		c.spent(units(out.ConsumedCapacity), 0)
		for _, found := range out.Items {
			if more, err := do(found); err != nil || !more {
				return err
			}
		}
		//rule:confirmed_is_durable.read-all-pages
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// Scan returns a page of a table's items, in an order of DynamoDB, with these attributes only. It
// begins behind a key, or at the beginning if the key is nil. next is the key of the next page, and
// nil at the end. A page may be shorter than the limit.
//
// It reads a whole table in the end. Only Store.EachChat and Store.UsersNamed may do that.
func (c Caller) Scan(
	ctx context.Context, r Read, after Item, limit int,
) (items []Item, next Item, err error) {
	in := &dynamodb.ScanInput{
		TableName:              c.Table(r.Table),
		ConsistentRead:         aws.Bool(!r.Eventual),
		Limit:                  aws.Int32(int32(limit)),
		ExclusiveStartKey:      after,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
	in.ProjectionExpression, in.ExpressionAttributeNames = projected(r.Only)
	out, _, err := try(ctx, c, c.api.scan, in)
	if err != nil {
		return nil, nil, err
	}
	c.spent(units(out.ConsumedCapacity), 0)
	if len(out.LastEvaluatedKey) > 0 {
		next = out.LastEvaluatedKey
	}
	return out.Items, next, nil
}

// An Update is a conditional change of one item.
type Update struct {
	Table             string
	Key               Item
	Change, Condition string
	Values            Item
	// Names maps each #name to its attribute, where the attribute's name is a reserved word.
	Names map[string]string
}

// Update changes an item, and returns its new content. If the condition does not hold, done is
// false, and now is the present content.
//
// Here and below, doubtful reports that an earlier attempt with an unknown outcome may have been
// performed. That attempt may be the reason why the condition does not hold.
func (c Caller) Update(ctx context.Context, u Update) (now Item, done, doubtful bool, err error) {
	out, doubtful, err := try(ctx, c, c.api.updateItem, &dynamodb.UpdateItemInput{
		TableName:                           c.Table(u.Table),
		Key:                                 u.Key,
		UpdateExpression:                    aws.String(u.Change),
		ConditionExpression:                 some(u.Condition),
		ExpressionAttributeValues:           u.Values,
		ExpressionAttributeNames:            u.Names,
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ReturnConsumedCapacity:              types.ReturnConsumedCapacityTotal,
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		c.spent(0, 1)
		return failed.Item, false, doubtful, c.wrote(nil)
	}
	if c.wrote(err) != nil {
		return nil, false, doubtful, err
	}
	c.spent(0, units(out.ConsumedCapacity))
	return out.Attributes, true, doubtful, nil
}

// Put writes a whole item if a condition holds, and reports whether it did.
func (c Caller) Put(
	ctx context.Context, table string, it Item, condition string, values Item,
) (done, doubtful bool, err error) {
	out, doubtful, err := try(ctx, c, c.api.putItem, &dynamodb.PutItemInput{
		TableName:                 c.Table(table),
		Item:                      it,
		ConditionExpression:       aws.String(condition),
		ExpressionAttributeValues: values,
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		c.spent(0, 1)
		return false, doubtful, c.wrote(nil)
	}
	if c.wrote(err) != nil {
		return false, doubtful, err
	}
	c.spent(0, units(out.ConsumedCapacity))
	return true, doubtful, nil
}

// Action returns an update as a part of a transaction.
func (c Caller) Action(u Update) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                           c.Table(u.Table),
		Key:                                 u.Key,
		UpdateExpression:                    aws.String(u.Change),
		ConditionExpression:                 some(u.Condition),
		ExpressionAttributeValues:           u.Values,
		ExpressionAttributeNames:            u.Names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// PutAll writes items without a condition.
func (c Caller) PutAll(ctx context.Context, table string, items []Item) error {
	requests := make([]types.WriteRequest, len(items))
	for i, it := range items {
		requests[i].PutRequest = &types.PutRequest{Item: it}
	}
	return c.writeAll(ctx, table, requests)
}

// RemoveAll removes the items with these keys without a condition.
func (c Caller) RemoveAll(ctx context.Context, table string, keys []Item) error {
	requests := make([]types.WriteRequest, len(keys))
	for i, key := range keys {
		requests[i].DeleteRequest = &types.DeleteRequest{Key: key}
	}
	return c.writeAll(ctx, table, requests)
}

// writeAll makes requests for different items of a table.
func (c Caller) writeAll(ctx context.Context, table string, all []types.WriteRequest) error {
	const most = 25
	batches := (len(all) + most - 1) / most
	return Together(ctx, batches, func(ctx context.Context, i int) error {
		requests := all[i*most : min(len(all), (i+1)*most)]
		left := map[string][]types.WriteRequest{*c.Table(table): requests}
		for n := 0; ; n++ {
			out, _, err := try(ctx, c, c.api.batchWriteItem, &dynamodb.BatchWriteItemInput{
				RequestItems:           left,
				ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
			})
			if err != nil {
				return c.wrote(err)
			}
			c.spent(0, unitsOf(out.ConsumedCapacity))
			//rule:pending_or_delivered.write-whole-batch
			if left = out.UnprocessedItems; len(left) == 0 {
				return c.wrote(nil)
			}
			if err := Pause(ctx, n); err != nil {
				return c.wrote(&throttled{})
			}
		}
	})
}

// MostActions is how many items a transaction may change.
const MostActions = 100

// Transact performs all actions, or none. If conditions do not hold, or another transaction was in
// the way, refused has a reason for each action.
func (c Caller) Transact(
	ctx context.Context, actions []types.TransactWriteItem,
) (refused []types.CancellationReason, doubtful bool, err error) {
	out, doubtful, err := try(ctx, c, c.api.transactWriteItems, &dynamodb.TransactWriteItemsInput{
		TransactItems: actions, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	var canceled *types.TransactionCanceledException
	if errors.As(err, &canceled) && len(canceled.CancellationReasons) == len(actions) &&
		!invalid(canceled.CancellationReasons) {
		// A refused transaction costs units, but DynamoDB does not say how many.
		c.spent(0, price(actions))
		return canceled.CancellationReasons, doubtful, c.wrote(nil)
	}
	if c.wrote(err) != nil {
		return nil, doubtful, err
	}
	c.spent(0, unitsOf(out.ConsumedCapacity))
	return nil, doubtful, nil
}

// price returns the cost of a transaction: two units for each KB that an action writes.
func price(actions []types.TransactWriteItem) (units float64) {
	for _, a := range actions {
		size := 1
		switch {
		case a.Put != nil:
			size = SizeOf(a.Put.Item)
		case a.Update != nil:
			size = max(1, SizeOf(a.Update.ExpressionAttributeValues))
		}
		units += float64(2 * ((size + 1023) / 1024))
	}
	return units
}
