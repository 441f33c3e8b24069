package dynamodb

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

const (
	// callTime bounds a method of the contract, and longTime one that writes an item for each of up to a thousand members.
	callTime = 5 * time.Second
	longTime = 20 * time.Second
	// itemTime is added for each item of a call.
	itemTime = 2 * time.Millisecond
	// attemptTime is how long an answer is waited for. DynamoDB's take milliseconds.
	attemptTime = 1500 * time.Millisecond
	// firstPause and mostPause bound what is waited before a call is repeated: twice as long each time, and half of that by chance.
	firstPause = 10 * time.Millisecond
	mostPause  = 200 * time.Millisecond
	// mostCalls is how many calls of a store are under way at most.
	mostCalls = 256
)

// A caller makes the calls to DynamoDB that a method of the contract needs, again while that may help and its time is not over. The SDK itself repeats
// nothing: it would repeat what may not be done twice, and wait for seconds.
type caller struct {
	*Store
	// operation names the method in what is told of request units.
	operation string
}

// try makes a call until it is answered. doubtful reports that an attempt before the last one may have been performed, although nobody said so.
func try[I, O any](ctx context.Context, c caller, call func(context.Context, I, ...func(*dynamodb.Options)) (O, error), in I) (out O, doubtful bool, err error) {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return out, false, ctx.Err()
	}
	for n := 0; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		out, err = call(attempt, in)
		cancel()
		meaning := judge(err)
		if meaning == answered {
			return out, doubtful, err
		}
		doubtful = doubtful || meaning == unknown
		if e := pause(ctx, n); e != nil {
			return out, doubtful, err
		}
	}
}

// pause waits before repetition n, counted from 0. It returns an error if the time of ctx is over before that.
func pause(ctx context.Context, n int) error {
	most := mostPause
	if n < 5 {
		most = min(most, firstPause<<n)
	}
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spent tells of the request units of an answer.
func (c caller) spent(reads, writes float64) {
	if reads > 0 || writes > 0 {
		c.consumed(c.operation, reads, writes)
	}
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

// get reads an item by its key, strongly. It is nil if there is none.
func (c caller) get(ctx context.Context, table string, key item) (item, error) {
	out, _, err := try(ctx, c, c.api.GetItem, &dynamodb.GetItemInput{
		TableName: c.table(table), Key: key, ConsistentRead: aws.Bool(true), ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	if err != nil {
		return nil, err
	}
	c.spent(units(out.ConsumedCapacity), 0)
	return out.Item, nil
}

// A read is how the items of a call are read.
type read struct {
	table    string
	eventual bool
	// only are the attributes that are wanted, all if it is empty. It does not change what the read costs.
	only []string
}

// mostGets is how many items one BatchGetItem may read.
const mostGets = 100

// getAll reads items by their keys, those that are there, in no order. Keys may be named twice.
func (c caller) getAll(ctx context.Context, r read, keys []item) ([]item, error) {
	distinct, seen := make([]item, 0, len(keys)), make(map[string]struct{}, len(keys))
	for _, key := range keys {
		name := nameOf(key)
		if _, twice := seen[name]; !twice {
			seen[name] = struct{}{}
			distinct = append(distinct, key)
		}
	}
	batches := (len(distinct) + mostGets - 1) / mostGets
	found := make([][]item, batches)
	err := together(ctx, batches, func(ctx context.Context, i int) (err error) {
		found[i], err = c.getBatch(ctx, r, distinct[i*mostGets:min(len(distinct), (i+1)*mostGets)])
		return err
	})
	if err != nil {
		return nil, err
	}
	var items []item
	for _, part := range found {
		items = append(items, part...)
	}
	return items, nil
}

// getBatch is one BatchGetItem, and others for what DynamoDB left out of it.
func (c caller) getBatch(ctx context.Context, r read, keys []item) (items []item, err error) {
	wanted := types.KeysAndAttributes{Keys: keys, ConsistentRead: aws.Bool(!r.eventual)}
	if len(r.only) > 0 {
		wanted.ProjectionExpression, wanted.ExpressionAttributeNames = projected(r.only)
	}
	table := *c.table(r.table)
	left := map[string]types.KeysAndAttributes{table: wanted}
	for n := 0; ; n++ {
		out, _, err := try(ctx, c, c.api.BatchGetItem, &dynamodb.BatchGetItemInput{RequestItems: left, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
		if err != nil {
			return nil, err
		}
		c.spent(unitsOf(out.ConsumedCapacity), 0)
		items = append(items, out.Responses[table]...)
		if left = out.UnprocessedKeys; len(left) == 0 {
			return items, nil
		}
		if err := pause(ctx, n); err != nil {
			return nil, &throttled{}
		}
	}
}

// A query selects the items with one partition key, in the order of the sort key, behind a position.
type query struct {
	read
	partition, sort string // the names of the keys
	of              types.AttributeValue
	after           types.AttributeValue // nil: from the beginning
	before          types.AttributeValue // nil: to the end
	backwards       bool
	// page is how many items one call reads at most; 0: as many as fit in 1 MB.
	page int
}

// each calls do for each item until it returns false, or there are no more.
func (c caller) each(ctx context.Context, q query, do func(item) (more bool, err error)) error {
	in := &dynamodb.QueryInput{
		TableName: c.table(q.table), ConsistentRead: aws.Bool(!q.eventual), ScanIndexForward: aws.Bool(!q.backwards),
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
		KeyConditionExpression:    aws.String("#p = :p"),
		ExpressionAttributeValues: item{":p": q.of},
	}
	in.ExpressionAttributeNames = map[string]string{}
	if len(q.only) > 0 {
		in.ProjectionExpression, in.ExpressionAttributeNames = projected(q.only)
	}
	in.ExpressionAttributeNames["#p"] = q.partition
	condition := ""
	switch {
	case q.after != nil && q.before != nil:
		// BETWEEN includes both ends; the caller of such a query gives them so.
		condition = " AND #s BETWEEN :a AND :b"
	case q.after != nil:
		condition = " AND #s > :a"
	case q.before != nil:
		condition = " AND #s <= :b"
	}
	if condition != "" {
		in.KeyConditionExpression = aws.String("#p = :p" + condition)
		in.ExpressionAttributeNames["#s"] = q.sort
		if q.after != nil {
			in.ExpressionAttributeValues[":a"] = q.after
		}
		if q.before != nil {
			in.ExpressionAttributeValues[":b"] = q.before
		}
	}
	if q.page > 0 {
		in.Limit = aws.Int32(int32(q.page))
	}
	for {
		out, _, err := try(ctx, c, c.api.Query, in)
		if err != nil {
			return err
		}
		c.spent(units(out.ConsumedCapacity), 0)
		for _, found := range out.Items {
			if more, err := do(found); err != nil || !more {
				return err
			}
		}
		if len(out.LastEvaluatedKey) == 0 {
			return nil
		}
		in.ExclusiveStartKey = out.LastEvaluatedKey
	}
}

// An update is a conditional change of one item.
type update struct {
	table             string
	key               item
	change, condition string
	values            item
	names             map[string]string // of attributes that are words of DynamoDB's
}

// update changes an item, and returns it as it is afterwards; or, if the condition does not hold, done is false, and it is the item as it is.
func (c caller) update(ctx context.Context, u update) (now item, done, doubtful bool, err error) {
	out, doubtful, err := try(ctx, c, c.api.UpdateItem, &dynamodb.UpdateItemInput{
		TableName: c.table(u.table), Key: u.key, UpdateExpression: aws.String(u.change), ConditionExpression: some(u.condition),
		ExpressionAttributeValues: u.values, ExpressionAttributeNames: u.names, ReturnValues: types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		c.spent(0, 1)
		return failed.Item, false, doubtful, nil
	}
	if err != nil {
		return nil, false, doubtful, err
	}
	c.spent(0, units(out.ConsumedCapacity))
	return out.Attributes, true, doubtful, nil
}

// put is a conditional write of a whole item.
func (c caller) put(table string, it item, condition string, values item) *dynamodb.PutItemInput {
	return &dynamodb.PutItemInput{
		TableName: c.table(table), Item: it, ConditionExpression: aws.String(condition), ExpressionAttributeValues: values,
		ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	}
}

// putAll writes items, whatever is there.
func (c caller) putAll(ctx context.Context, table string, items []item) error {
	const most = 25
	batches := (len(items) + most - 1) / most
	return together(ctx, batches, func(ctx context.Context, i int) error {
		var requests []types.WriteRequest
		for _, it := range items[i*most : min(len(items), (i+1)*most)] {
			requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
		}
		left := map[string][]types.WriteRequest{*c.table(table): requests}
		for n := 0; ; n++ {
			out, _, err := try(ctx, c, c.api.BatchWriteItem, &dynamodb.BatchWriteItemInput{RequestItems: left, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
			if err != nil {
				return err
			}
			c.spent(0, unitsOf(out.ConsumedCapacity))
			if left = out.UnprocessedItems; len(left) == 0 {
				return nil
			}
			if err := pause(ctx, n); err != nil {
				return &throttled{}
			}
		}
	})
}

// mostActions is how many items a transaction may change.
const mostActions = 100

// transact performs all actions, or none. If conditions do not hold, or another transaction was in the way, refused has a reason for each action.
func (c caller) transact(ctx context.Context, actions []types.TransactWriteItem) (refused []types.CancellationReason, doubtful bool, err error) {
	out, doubtful, err := try(ctx, c, c.api.TransactWriteItems, &dynamodb.TransactWriteItemsInput{
		TransactItems: actions, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
	})
	var canceled *types.TransactionCanceledException
	if errors.As(err, &canceled) && len(canceled.CancellationReasons) == len(actions) && !invalid(canceled.CancellationReasons) {
		c.spent(0, price(actions)) // What was refused is paid for, but DynamoDB does not say how much.
		return canceled.CancellationReasons, doubtful, nil
	}
	if err != nil {
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
			size = sizeOf(a.Put.Item)
		}
		units += float64(2 * ((size + 1023) / 1024))
	}
	return units
}

// invalid reports whether an action could never be performed: that is a bug of ours.
func invalid(reasons []types.CancellationReason) bool {
	return slices.ContainsFunc(reasons, func(r types.CancellationReason) bool { return aws.ToString(r.Code) == "ValidationError" })
}

// failed reports whether the condition of an action did not hold.
func failed(reason types.CancellationReason) bool {
	return aws.ToString(reason.Code) == "ConditionalCheckFailed"
}
