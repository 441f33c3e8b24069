package schema

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tidemark-im/tidemark/internal/signal"
)

const (
	// attempts is how often a call is made that may succeed the next time, and attemptTime how long an answer is waited for.
	attempts    = 5
	attemptTime = 4 * time.Second
	// trying is after what time no further attempt is made.
	trying = 5 * time.Second
	// firstPause is what is waited before the second attempt; before each further one it is twice as long.
	firstPause = 50 * time.Millisecond
)

// validation is the name of DynamoDB's error for what it does not do, whatever the reason.
const validation = "ValidationException"

// ask makes a call, again if that may help. Every call of this package may be made twice.
func ask[I, O any](
	ctx context.Context, call func(context.Context, I, ...func(*dynamodb.Options)) (O, error), in I,
) (out O, err error) {
	began, wait := time.Now(), firstPause
	for n := 1; ; n++ {
		attempt, cancel := context.WithTimeout(ctx, attemptTime)
		out, err = call(attempt, in)
		cancel()
		if err == nil || n == attempts || !passing(err) || time.Since(began) > trying {
			return out, err
		}
		if !signal.Pause(ctx, wait) {
			return out, err
		}
		wait *= 2
	}
}

// passing reports whether a failure may be over soon.
func passing(err error) bool {
	var said smithy.APIError
	if !errors.As(err, &said) {
		return true // nobody answered
	}
	var answer *smithyhttp.ResponseError // whatever DynamoDB, or a balancer before it, calls it
	return errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusInternalServerError ||
		named(err, "ThrottlingException", "RequestLimitExceeded",
			"ProvisionedThroughputExceededException")
}

// missing reports whether DynamoDB said that there is no such table.
func missing(err error) bool {
	return named(err, "ResourceNotFoundException", "TableNotFoundException")
}

// busy reports whether somebody else is just changing a table, or too many are being changed: later it can be done.
func busy(err error) bool {
	return named(err, "ResourceInUseException", "TableInUseException", "LimitExceededException",
		"ContinuousBackupsUnavailableException", "ResourceNotFoundException",
		"TableNotFoundException")
}

// named reports whether DynamoDB answered with one of these errors.
func named(err error, names ...string) bool {
	var said smithy.APIError
	if !errors.As(err, &said) {
		return false
	}
	for _, name := range names {
		if said.ErrorCode() == name {
			return true
		}
	}
	return false
}

// each does something for all tables at once, and returns the first error in their order.
func (s *Tables) each(ctx context.Context, do func(context.Context, table) error) error {
	errs := make([]error, len(s.tables))
	var all sync.WaitGroup
	for i, d := range s.tables {
		all.Go(func() { errs[i] = do(ctx, d) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
