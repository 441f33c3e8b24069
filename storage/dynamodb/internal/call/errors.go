package call

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tidemark-im/tidemark"
)

// The names of DynamoDB's errors for too many calls.
const (
	throttling         = "ThrottlingException"
	throughputExceeded = "ProvisionedThroughputExceededException"
	limitExceeded      = "RequestLimitExceeded"
)

// meaning is what the result of an attempt means.
type meaning int

const (
	answered meaning = iota // another attempt would have the same result
	undone                  // the call was not performed; another attempt may succeed
	unknown                 // the call may have been performed
)

// throttled is the error of a batch of which DynamoDB left out a part.
type throttled struct{}

func (*throttled) Error() string { return "DynamoDB performed only a part of the batch" }

// A Hole is a message that must exist and is missing.
type Hole struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

func (e *Hole) Error() string {
	return fmt.Sprintf("message %d of chat %s is missing", e.Sequence, e.Chat)
}

// code returns the name of an error of DynamoDB, "" if the error has none.
func code(err error) string {
	var said smithy.APIError
	if errors.As(err, &said) {
		return said.ErrorCode()
	}
	return ""
}

// judge returns what the error of an attempt means.
func judge(err error) meaning {
	if err == nil {
		return answered
	}
	var canceled *types.TransactionCanceledException
	var dial *net.OpError
	switch code(err) {
	//rule:confirmed_is_durable.throttling-is-temporary
	case throttling, throughputExceeded, limitExceeded, "TransactionConflictException",
		"ReplicatedWriteConflictException":
		return undone
	case "TransactionInProgressException", "InternalServerError", "InternalFailure",
		"InternalServerException", "ServiceUnavailable", "ServiceUnavailableException":
		return unknown
	case "TransactionCanceledException":
		if errors.As(err, &canceled) && onlyThrottled(canceled.CancellationReasons) {
			return undone
		}
		return answered
	case "":
		if errors.As(err, &dial) && dial.Op == "dial" {
			return undone
		}
		//rule:send_idempotent.lost-reply-is-unknown
		return unknown
	}
	// The name may be new. Or a load balancer answered, with a status and no name.
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.HTTPStatusCode() >= http.StatusInternalServerError {
		return unknown
	}
	return answered
}

// The codes of a cancelled transaction's reasons. In order: the action is not to blame; its
// condition does not hold; another transaction was in the way; there were too many calls.
const (
	reasonNone       = "None"
	reasonCondition  = "ConditionalCheckFailed"
	reasonConflict   = "TransactionConflict"
	reasonThrottling = "ThrottlingError"
	reasonThroughput = "ProvisionedThroughputExceeded"
)

// Failed reports whether the condition of an action did not hold.
func Failed(reason types.CancellationReason) bool {
	return aws.ToString(reason.Code) == reasonCondition
}

// Blamed reports whether an action was a reason why its transaction was cancelled.
func Blamed(reason types.CancellationReason) bool { return aws.ToString(reason.Code) != reasonNone }

// onlyThrottled reports whether only missing throughput cancelled a transaction, and no condition
// or other transaction.
func onlyThrottled(reasons []types.CancellationReason) bool {
	found := false
	for _, r := range reasons {
		switch aws.ToString(r.Code) {
		case reasonNone, "":
		case reasonThrottling, reasonThroughput:
			found = true
		default:
			return false
		}
	}
	return found
}

// invalid reports whether an action could never be performed. The remaining codes say so
// (ValidationError, ItemCollectionSizeLimitExceeded). It is a bug of this program.
func invalid(reasons []types.CancellationReason) bool {
	return slices.ContainsFunc(reasons, func(r types.CancellationReason) bool {
		switch aws.ToString(r.Code) {
		case reasonNone, "", reasonCondition, reasonConflict, reasonThrottling, reasonThroughput:
			return false
		}
		return true
	})
}

// Public returns err as a *tidemark.Error, the only errors that storage.Store allows. The code is
// Unavailable, or Internal if DynamoDB will never accept the call. A *tidemark.Error stays as it
// is. The detail reaches clients, so it names no account, role or table. The wrapped error has
// DynamoDB's own message.
func Public(err error) error {
	var e *tidemark.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	const unavailable = tidemark.Unavailable
	var h *Hole
	var part *throttled
	var canceled *types.TransactionCanceledException
	switch name := code(err); {
	case errors.As(err, &h):
		return tidemark.Wrap(unavailable, err, "the tables are damaged: "+h.Error())
	case errors.As(err, &part), name == throttling, name == throughputExceeded,
		name == limitExceeded:
		return tidemark.Wrap(unavailable, err, "DynamoDB throttles the calls; try again")
	case errors.As(err, &canceled) && invalid(canceled.CancellationReasons):
		return tidemark.Wrap(tidemark.Internal, err, "DynamoDB refused a transaction")
	case errors.As(err, &canceled) && onlyThrottled(canceled.CancellationReasons):
		return tidemark.Wrap(unavailable, err, "DynamoDB throttles the calls; try again")
	case name == "TransactionConflictException", name == "TransactionCanceledException",
		name == "TransactionInProgressException":
		return tidemark.Wrap(unavailable, err, "others write the same items; try again")
	case name == "ResourceNotFoundException":
		return tidemark.Wrap(unavailable, err, "a table is missing; run tidemark migrate up")
	case name == "AccessDeniedException":
		return tidemark.Wrap(unavailable, err,
			"the server's credentials may not do this in DynamoDB; docs/dynamodb.md has the "+
				"policy that it needs")
	case name == "UnrecognizedClientException", name == "InvalidSignatureException",
		name == "IncompleteSignatureException", name == "MissingAuthenticationTokenException",
		strings.HasPrefix(name, "ExpiredToken"):
		return tidemark.Wrap(unavailable, err,
			"DynamoDB refused the server's credentials; look at the key, at the role, and at the "+
				"clock of the machine")
	case strings.HasPrefix(name, "KMS"), name == "InaccessibleEncryptionDateTimeException":
		return tidemark.Wrap(unavailable, err,
			"DynamoDB cannot use the key of the tables; look at the key, and at its policy")
	case name != "" && judge(err) == answered:
		return tidemark.Wrap(tidemark.Internal, err, "DynamoDB refused a call")
	case name != "":
		return tidemark.Wrap(unavailable, err, "DynamoDB cannot serve the call now; try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return tidemark.Wrap(unavailable, err, "DynamoDB did not answer in time; try again")
	default:
		return tidemark.Wrap(unavailable, err, "DynamoDB cannot be reached; try again")
	}
}
