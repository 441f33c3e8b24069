package dynamodb

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

// The tables (migrations/dynamodb). Their names have the prefix of the store's URL.
const (
	counters    = "chat_counters"
	memberships = "chat_memberships"
	messages    = "messages"
	keys        = "idempotency_keys"
	states      = "delivery_state"
	pendings    = "pending_deliveries"
)

// An item is what DynamoDB stores under a key: its attributes by their names.
type item = map[string]types.AttributeValue

func text[T ~string](s T) types.AttributeValue {
	return &types.AttributeValueMemberS{Value: string(s)}
}

func number[T ~int | ~int64 | ~uint64](n T) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

func flag(b bool) types.AttributeValue { return &types.AttributeValueMemberBOOL{Value: b} }

// A reader takes an item apart. err is why an attribute cannot be read.
type reader struct {
	item item
	err  error
}

// text returns an attribute, "" if it is not there.
func (r *reader) text(name string) string {
	switch v := r.item[name].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case nil:
	default:
		r.err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is not a string", name)
	}
	return ""
}

// number returns an attribute, 0 if it is not there.
func (r *reader) number(name string) uint64 {
	switch v := r.item[name].(type) {
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseUint(v.Value, 10, 64)
		if err == nil {
			return n
		}
	case nil:
		return 0
	}
	r.err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is not a number", name)
	return 0
}

func (r *reader) sequence(name string) tidemark.Sequence {
	return tidemark.Sequence(r.number(name))
}

func (r *reader) has(name string) bool { return r.item[name] != nil }

// flag returns an attribute, false if it is not there.
func (r *reader) flag(name string) bool {
	v, _ := r.item[name].(*types.AttributeValueMemberBOOL)
	return v != nil && v.Value
}

// time returns an attribute of milliseconds, the zero time if it is not there.
func (r *reader) time(name string) time.Time {
	switch v := r.item[name].(type) {
	case *types.AttributeValueMemberN:
		n, err := strconv.ParseInt(v.Value, 10, 64)
		if err == nil {
			return time.UnixMilli(n).UTC()
		}
	case nil:
		return time.Time{}
	}
	r.err = tidemark.Errorf(tidemark.Internal, "the attribute %s of an item is not a time", name)
	return time.Time{}
}

func (r *reader) intervals(name string) tidemark.Intervals {
	intervals, err := tidemark.ParseIntervals(r.text(name))
	if err != nil {
		r.err = err
	}
	return intervals
}

// stored returns a time as it is stored: in UTC with millisecond precision.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// isoTime is the form of delivery_state.updated_at (ADR-008 §7).
const isoTime = "2006-01-02T15:04:05.000Z"

// nameOf tells keys of one table apart.
func nameOf(key item) string {
	var b strings.Builder
	for _, name := range []string{"chat_id", "sequence", "user_id", "receiver_id", "id"} {
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

// projected returns the expression for some attributes, and the names in it: any of them may be a word of DynamoDB's.
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

// sizeOf is about how many bytes DynamoDB counts for an item: names and values.
func sizeOf(it item) (bytes int) {
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

func chatKey(chat tidemark.ChatID) item { return item{"chat_id": text(chat)} }

func memberKey(chat tidemark.ChatID, user tidemark.UserID) item {
	return item{"chat_id": text(chat), "user_id": text(user)}
}

// stateKey is the key of a delivery state, with the same attributes as memberKey: the tables differ in which one comes first.
func stateKey(user tidemark.UserID, chat tidemark.ChatID) item { return memberKey(chat, user) }

func pendingKey(user tidemark.UserID, chat tidemark.ChatID) item {
	return item{"receiver_id": text(user), "chat_id": text(chat)}
}

// atOnce is how many parts of one call are worked on at once.
const atOnce = 32

// together calls do for 0 to n−1, several at once, and returns the first error, after which it begins no other.
func together(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
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
