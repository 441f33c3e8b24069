package call

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tidemark-im/tidemark"
)

func newCaller(api api) Caller {
	t := &Tables{
		api:      api,
		Attempt:  attemptTime,
		Consumed: func(string, float64, float64) {},
		slots:    make(chan struct{}, 8),
		Written:  func(string, error) {},
	}
	return Caller{Tables: t}
}

func numbered(from, to int) (items []Item) {
	for n := from; n < to; n++ {
		items = append(items, Item{"id": Text(fmt.Sprint("k", n))})
	}
	return items
}

// A batch repeats the items that DynamoDB left out, until none is left.
func TestBatches_are_whole(t *testing.T) {
	var written, asked []string
	c := newCaller(api{
		batchGetItem: func(_ context.Context, in *dynamodb.BatchGetItemInput,
			_ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
			of := in.RequestItems["t"]
			n := (len(of.Keys) + 1) / 2
			for _, key := range of.Keys {
				asked = append(asked, NameOf(key))
			}
			if !aws.ToBool(of.ConsistentRead) {
				t.Error("what was left out is read eventually")
			}
			out := &dynamodb.BatchGetItemOutput{
				Responses: map[string][]map[string]types.AttributeValue{"t": of.Keys[:n]},
			}
			if n < len(of.Keys) {
				of.Keys = of.Keys[n:]
				out.UnprocessedKeys = map[string]types.KeysAndAttributes{"t": of}
			}
			return out, nil
		},
		batchWriteItem: func(_ context.Context, in *dynamodb.BatchWriteItemInput,
			_ ...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error) {
			of := in.RequestItems["t"]
			n := (len(of) + 1) / 2
			for _, one := range of[:n] {
				written = append(written, NameOf(one.PutRequest.Item))
			}
			out := &dynamodb.BatchWriteItemOutput{}
			if n < len(of) {
				out.UnprocessedItems = map[string][]types.WriteRequest{"t": of[n:]}
			}
			return out, nil
		},
	})
	found, err := c.GetAll(t.Context(), Read{Table: "t"}, numbered(0, 12))
	if err != nil || len(found) != 12 {
		t.Errorf("%d items read, error %v; want 12", len(found), err)
	}
	if len(asked) != 12+6+3+1 {
		t.Errorf("asked for %d keys, want only the left-out ones again", len(asked))
	}
	if err := c.PutAll(t.Context(), "t", numbered(0, 12)); err != nil || len(written) != 12 {
		t.Errorf("%d items written, error %v; want 12", len(written), err)
	}
}

// A batch of which DynamoDB performs nothing ends in time.
func TestBatches_end_with_their_time(t *testing.T) {
	c := newCaller(api{batchGetItem: func(_ context.Context, in *dynamodb.BatchGetItemInput,
		_ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
		return &dynamodb.BatchGetItemOutput{UnprocessedKeys: in.RequestItems}, nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	_, err := c.GetAll(ctx, Read{Table: "t"}, numbered(0, 1))
	if tidemark.CodeOf(Public(err)) != tidemark.Unavailable {
		t.Errorf("%v, want Unavailable", err)
	}
}

// A query continues after each page, even an empty one, and stops when its caller wants no more.
func TestEach_reads_every_page(t *testing.T) {
	pages := [][]Item{numbered(0, 3), {}, numbered(3, 5)}
	c := newCaller(api{query: func(_ context.Context, in *dynamodb.QueryInput,
		_ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
		r := Reader{Item: in.ExclusiveStartKey}
		n := int(r.Number("page"))
		out := &dynamodb.QueryOutput{Items: pages[n]}
		if n+1 < len(pages) {
			out.LastEvaluatedKey = Item{"page": Number(n + 1)}
		}
		return out, nil
	}})
	q := Query{Read: Read{Table: "t"}, Partition: "id", Of: Text("x")}
	var found []string
	err := c.Each(t.Context(), q,
		func(it Item) (bool, error) { found = append(found, NameOf(it)); return true, nil })
	if err != nil || len(found) != 5 {
		t.Errorf("found %v, error %v; want 5 items", found, err)
	}
	found = nil
	err = c.Each(t.Context(), q,
		func(it Item) (bool, error) {
			found = append(found, NameOf(it))
			return len(found) < 2, nil
		})
	if err != nil || len(found) != 2 {
		t.Errorf("found %v, error %v; want it to end after 2", found, err)
	}
}

// A write is repeated until it is answered. doubtful reports that an earlier attempt may have been
// performed.
func TestUpdate_doubtful(t *testing.T) {
	throttled, broken := error(&types.ProvisionedThroughputExceededException{}), io.ErrUnexpectedEOF
	held := &types.ConditionalCheckFailedException{Item: Item{"id": Text("there")}}
	for _, tc := range []struct {
		name           string
		answers        []error
		done, doubtful bool
		failed         bool
	}{
		{"at once", []error{nil}, true, false, false},
		{"throttled", []error{throttled, throttled, nil}, true, false, false},
		{"broken", []error{broken, nil}, true, true, false},
		{"broken, then throttled", []error{broken, throttled, held}, false, true, false},
		{"refused", []error{held}, false, false, false},
		{"throttled, then refused", []error{throttled, held}, false, false, false},
		{
			"a bug",
			[]error{&smithy.GenericAPIError{Code: "ValidationException"}}, false, false, true,
		},
	} {
		left := slices.Clone(tc.answers)
		c := newCaller(api{updateItem: func(_ context.Context, in *dynamodb.UpdateItemInput,
			_ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
			const wanted = types.ReturnValuesOnConditionCheckFailureAllOld
			if in.ReturnValuesOnConditionCheckFailure != wanted {
				t.Error("the call does not ask for the stored item")
			}
			err := left[0]
			left = left[1:]
			return &dynamodb.UpdateItemOutput{}, err
		}})
		now, done, doubtful, err := c.Update(t.Context(), Update{Table: "t", Change: "SET x = :x"})
		if done != tc.done || doubtful != tc.doubtful || tc.failed != (err != nil) ||
			len(left) != 0 {
			t.Errorf("%s: done %v, doubtful %v, error %v, %d answers left",
				tc.name, done, doubtful, err, len(left))
		}
		if !done && !tc.failed && len(now) != 1 {
			t.Errorf("%s: the stored item is %v", tc.name, now)
		}
	}
}
