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
	// attempts is the maximum number of attempts of a call. attemptTime is the time limit of one
	// attempt.
	attempts    = 5
	attemptTime = 4 * time.Second
	// trying is the time after which no further attempt begins.
	trying = 5 * time.Second
	// firstPause is the pause before the second attempt. Each further pause is twice as long.
	firstPause = 50 * time.Millisecond
)

// validation is DynamoDB's error for every call that it cannot perform, whatever the reason.
const validation = "ValidationException"

// ask makes a call, and repeats it if that may help. All calls of this package are safe to repeat.
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

// passing reports whether a failure may be temporary.
func passing(err error) bool {
	var said smithy.APIError
	if !errors.As(err, &said) {
		return true // There was no answer.
	}
	// The status counts, whatever name DynamoDB or a load balancer gives the error.
	var answer *smithyhttp.ResponseError
	return errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusInternalServerError ||
		named(err, "ThrottlingException", "RequestLimitExceeded",
			"ProvisionedThroughputExceededException")
}

// missing reports whether DynamoDB said that there is no such table.
func missing(err error) bool {
	return named(err, "ResourceNotFoundException", "TableNotFoundException")
}

// busy reports whether another change of the table, or too many changes, prevent this one for now.
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

// each calls do for all tables at once, and returns the first error in the order of the tables.
func each(
	ctx context.Context, tables []table, do func(context.Context, table) error,
) error {
	errs := make([]error, len(tables))
	var all sync.WaitGroup
	for i, d := range tables {
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
