package call

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
)

// An Item is what DynamoDB stores under a key: its attributes by their names.
type Item = map[string]types.AttributeValue

// Text returns a string attribute.
func Text[T ~string](s T) types.AttributeValue {
	return &types.AttributeValueMemberS{Value: string(s)}
}

// Number returns a number attribute.
func Number[T ~int | ~int64 | ~uint64](n T) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

// Flag returns a Boolean attribute.
func Flag(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

// A Reader reads the attributes of an item. Err is the first error, Internal. Check it after
// reading all attributes.
type Reader struct {
	Item Item
	Err  error
}

// Text returns an attribute, "" if it is missing.
func (r *Reader) Text(name string) string {
	switch v := r.Item[name].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case nil:
	default:
		r.Err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is not a string",
			name)
	}
	return ""
}

// Number returns an attribute, 0 if it is missing.
func (r *Reader) Number(name string) uint64 {
	switch v := r.Item[name].(type) {
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseUint(v.Value, 10, 64)
		if err == nil {
			return n
		}
	case nil:
		return 0
	}
	r.Err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is not a number", name)
	return 0
}

// Sequence returns an attribute, 0 if it is missing.
func (r *Reader) Sequence(name string) tidemark.Sequence {
	return tidemark.Sequence(r.Number(name))
}

// Has reports whether an attribute exists.
func (r *Reader) Has(name string) bool { return r.Item[name] != nil }

// Flag returns an attribute, false if it is missing.
func (r *Reader) Flag(name string) bool {
	v, _ := r.Item[name].(*types.AttributeValueMemberBOOL)
	return v != nil && v.Value
}

// Time returns an attribute in milliseconds, the zero time if it is missing.
func (r *Reader) Time(name string) time.Time {
	switch v := r.Item[name].(type) {
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err == nil {
			return time.UnixMilli(n).UTC()
		}
	case nil:
		return time.Time{}
	}
	r.Err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is not a time", name)
	return time.Time{}
}

// Intervals returns an attribute, nil if it is missing.
func (r *Reader) Intervals(name string) tidemark.Intervals {
	intervals, err := tidemark.ParseIntervals(r.Text(name))
	if err != nil {
		r.Err = err
	}
	return intervals
}

// Stored returns a time as it is stored: in UTC with millisecond precision.
func Stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// ISOTime is the format of delivery_state.updated_at (ADR-008 §7).
const ISOTime = "2006-01-02T15:04:05.000Z"

// NameOf returns a string that identifies a key within its table.
func NameOf(key Item) string {
	var b strings.Builder
	for _, name := range []string{
		"chat_id", "sequence", "user_id", "receiver_id", "id", "outlet_shard", "kind", "name",
	} {
		switch v := key[name].(type) {
		case *types.AttributeValueMemberS:
			b.WriteString(v.Value)
		case *types.AttributeValueMemberN:
			b.WriteString(v.Value)
		}
		b.WriteByte(0)
	}
	return b.String()
}

// projected returns the expression for some attributes, and the names in it. It uses names because
// any attribute may be a reserved word.
func projected(only []string) (*string, map[string]string) {
	names := make(map[string]string, len(only)+2)
	marks := make([]string, len(only))
	for i, name := range only {
		marks[i] = "#" + strconv.Itoa(i)
		names[marks[i]] = name
	}
	return aws.String(strings.Join(marks, ", ")), names
}

// some returns nil for an empty expression.
func some(expression string) *string {
	if expression == "" {
		return nil
	}
	return &expression
}

// SizeOf returns about how many bytes DynamoDB counts for an item's names and values.
func SizeOf(it Item) (bytes int) {
	for name, value := range it {
		bytes += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			bytes += len(v.Value)
		case *types.AttributeValueMemberN:
			bytes += len(v.Value)/2 + 2
		default:
			bytes++
		}
	}
	return bytes
}

// atOnce is how many parts of one call run at once.
const atOnce = 32

// Together calls do for 0 to n−1, several at once. It returns the first error, after which it
// starts no more calls. Each success is progress.
func Together(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	if n == 0 {
		return nil
	}
	if n == 1 {
		return do(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	next := make(chan int)
	for range min(n, atOnce) {
		group.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				} else {
					Progress(ctx)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	group.Wait()
	return context.Cause(ctx)
}
