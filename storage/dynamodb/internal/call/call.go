// Package call makes calls to DynamoDB: conditional writes, transactions, and reads that are whole.
package call

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark/internal/signal"
)

const (
	// attemptTime is how long an answer is waited for. DynamoDB's take milliseconds.
	attemptTime = 1500 * time.Millisecond
	// firstPause and mostPause bound what is waited before a call is repeated: twice as long each time, and half of that by chance.
	firstPause = 10 * time.Millisecond
	mostPause  = 200 * time.Millisecond
	// mostCalls is how many calls of a store are under way at most.
	mostCalls = 256
)

// A Caller makes the calls to DynamoDB that a method of the contract needs, again while that may help and the time of their ctx is not over. The SDK
// itself repeats nothing: it would repeat what may not be done twice, and wait for seconds.
type Caller struct {
	*Tables
	// Operation names the method in what is told of request units and writes.
	Operation string
}

// Tables are where the calls go. They are safe for concurrent use.
type Tables struct {
	api api
	// Prefix begins the name of each table.
	Prefix string
	// Consumed is told of the request units of each answer.
	Consumed func(operation string, reads, writes float64)
	// Written is told how each write went: nil if DynamoDB decided it, be it that a condition does not hold, else why it did not, as Public says it.
	Written func(operation string, err error)
	// Attempt is attemptTime, but for tests that are not about time. It is set before the first call.
	Attempt time.Duration
	// slots bound the calls that are under way.
	slots chan struct{}
}

// NewTables returns the tables with a prefix. For consumed and written see Tables; both are called concurrently.
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

// try makes a call until it is answered. doubtful reports that an attempt before the last one may have been performed, although nobody said so.
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

// Pause waits before repetition n, counted from 0. It returns an error if the time of ctx is over before that.
func Pause(ctx context.Context, n int) error {
	most := mostPause
	if n < 5 {
		most = min(most, firstPause<<n)
	}
	signal.Pause(ctx, most/2+rand.N(most/2))
	return ctx.Err()
}

// Yield waits if a condition has failed several times in a row: repetition n is counted from 0.
func Yield(ctx context.Context, n int) error {
	if n < 3 {
		return ctx.Err()
	}
	return Pause(ctx, n-3)
}

// spent tells of the request units of an answer.
func (c Caller) spent(reads, writes float64) {
	if reads > 0 || writes > 0 {
		c.Consumed(c.Operation, reads, writes)
	}
}

// wrote tells how a write went, and returns err.
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

// Get reads an item by its key, strongly. It is nil if there is none.
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

// A Read is how the items of a call are read.
type Read struct {
	Table    string
	Eventual bool
	// Only are the attributes that are wanted, all if it is empty. It does not change what the read costs.
	Only []string
}

// mostGets is how many items one BatchGetItem may read.
const mostGets = 100

// GetAll reads items by their keys, those that are there, in no order. Keys may be named twice. Each item is read by itself: those of one call need not be
// of one time.
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

// getBatch is one BatchGetItem, and others for what DynamoDB left out of it.
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

// A Query selects the items with one partition key, in the order of the sort key: all of them, those behind After, or those in a Range.
type Query struct {
	Read
	Partition, Sort string // the names of the keys
	Of              types.AttributeValue
	After           types.AttributeValue    // excluded; nil: from the beginning
	Range           [2]types.AttributeValue // both included; nil: all
	Backwards       bool
	// Page is how many items one call reads at most; 0: as many as fit in 1 MB.
	Page int
}

// Each calls do for each item until it returns false, or there are no more.
func (c Caller) Each(ctx context.Context, q Query, do func(Item) (more bool, err error)) error {
	in := &dynamodb.QueryInput{
		TableName:                 c.Table(q.Table),
		ConsistentRead:            aws.Bool(!q.Eventual),
		ScanIndexForward:          aws.Bool(!q.Backwards),
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
		ExpressionAttributeNames:  map[string]string{},
		ExpressionAttributeValues: Item{":p": q.Of},
	}
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
		in.ExpressionAttributeValues[":from"], in.ExpressionAttributeValues[":to"] = q.Range[0], q.Range[1]
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

// An Update is a conditional change of one item.
type Update struct {
	Table             string
	Key               Item
	Change, Condition string
	Values            Item
	Names             map[string]string // what a #name stands for, where the attribute's own is a reserved word
}

// Update changes an item, and returns it as it is afterwards; or, if the condition does not hold, done is false, and it is the item as it is. doubtful, here and
// below, reports that an attempt before the last one may have been performed although nobody said so: it may be why the condition does not hold.
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

// Action is an update as a part of a transaction.
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

// PutAll writes items, whatever is there.
func (c Caller) PutAll(ctx context.Context, table string, items []Item) error {
	const most = 25
	batches := (len(items) + most - 1) / most
	return Together(ctx, batches, func(ctx context.Context, i int) error {
		var requests []types.WriteRequest
		for _, it := range items[i*most : min(len(items), (i+1)*most)] {
			requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
		}
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

// Transact performs all actions, or none. If conditions do not hold, or another transaction was in the way, refused has a reason for each action.
func (c Caller) Transact(
	ctx context.Context, actions []types.TransactWriteItem,
) (refused []types.CancellationReason, doubtful bool, err error) {
	out, doubtful, err := try(ctx, c, c.api.transactWriteItems, &dynamodb.TransactWriteItemsInput{
		TransactItems: actions, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	var canceled *types.TransactionCanceledException
	if errors.As(err, &canceled) && len(canceled.CancellationReasons) == len(actions) &&
		!invalid(canceled.CancellationReasons) {
		c.spent(0, price(actions)) // What was refused is paid for, but DynamoDB does not say how much.
		return canceled.CancellationReasons, doubtful, c.wrote(nil)
	}
	if c.wrote(err) != nil {
		return nil, doubtful, err
	}
	c.spent(0, unitsOf(out.ConsumedCapacity))
	return nil, doubtful, nil
}

// price is what a transaction costs: two units for each KB that an action writes.
func price(actions []types.TransactWriteItem) (units float64) {
	for _, a := range actions {
		size := 1
		if a.Put != nil {
			size = SizeOf(a.Put.Item)
		}
		units += float64(2 * ((size + 1023) / 1024))
	}
	return units
}
