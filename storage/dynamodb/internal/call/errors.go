package call

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tidemark-im/tidemark"
)

// What the result of an attempt means.
type meaning int

const (
	answered meaning = iota // another attempt would say the same
	undone                  // nothing was performed; another attempt may succeed
	unknown                 // it may have been performed, or not
)

// throttled is why DynamoDB left out a part of a batch.
type throttled struct{}

func (*throttled) Error() string { return "DynamoDB performed only a part of the batch" }

// A Hole is a message that must exist and is not there.
type Hole struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

func (e *Hole) Error() string {
	return fmt.Sprintf("message %d of chat %s is missing", e.Sequence, e.Chat)
}

// code returns the name of an error of DynamoDB, "" if it did not say one.
func code(err error) string {
	var said smithy.APIError
	if errors.As(err, &said) {
		return said.ErrorCode()
	}
	return ""
}

// judge says what the error of an attempt means.
func judge(err error) meaning {
	if err == nil {
		return answered
	}
	var canceled *types.TransactionCanceledException
	var dial *net.OpError
	switch code(err) {
	case "ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded", "TransactionConflictException", "ReplicatedWriteConflictException":
		return undone
	case "TransactionInProgressException", "InternalServerError", "InternalFailure", "InternalServerException", "ServiceUnavailable", "ServiceUnavailableException":
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
		return unknown
	}
	var said smithy.APIError
	if errors.As(err, &said) && said.ErrorFault() == smithy.FaultServer {
		return unknown
	}
	return answered
}

// onlyThrottled reports whether a transaction was cancelled for want of throughput, and not by a condition or another transaction.
func onlyThrottled(reasons []types.CancellationReason) bool {
	found := false
	for _, r := range reasons {
		switch aws.ToString(r.Code) {
		case "None", "":
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			found = true
		default:
			return false
		}
	}
	return found
}

// Public makes an error one of the contract. Those of the contract stay as they are.
func Public(err error) error {
	var e *tidemark.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	const unavailable = tidemark.Unavailable
	var h *Hole
	var part *throttled
	var said smithy.APIError
	var canceled *types.TransactionCanceledException
	switch name := code(err); {
	case errors.As(err, &h):
		return tidemark.Wrap(unavailable, err, "the tables are damaged: "+err.Error())
	case errors.As(err, &part), name == "ThrottlingException", name == "ProvisionedThroughputExceededException", name == "RequestLimitExceeded":
		return tidemark.Wrap(unavailable, err, "DynamoDB throttles the calls; try again")
	case errors.As(err, &canceled) && invalid(canceled.CancellationReasons):
		return tidemark.Wrap(tidemark.Internal, err, "DynamoDB refused a transaction")
	case name == "TransactionConflictException", name == "TransactionCanceledException", name == "TransactionInProgressException":
		return tidemark.Wrap(unavailable, err, "others write the same items; try again")
	case name == "ResourceNotFoundException":
		return tidemark.Wrap(unavailable, err, "a table is missing; run tidemark migrate up")
	case name == "AccessDeniedException", name == "UnrecognizedClientException", name == "ExpiredTokenException", name == "InvalidSignatureException", name == "MissingAuthenticationTokenException":
		errors.As(err, &said)
		return tidemark.Wrap(unavailable, err, "DynamoDB refused the credentials: "+said.ErrorMessage())
	case name == "KMSAccessDeniedException", name == "KMSDisabledException", name == "KMSNotFoundException", name == "KMSInvalidStateException":
		return tidemark.Wrap(unavailable, err, "DynamoDB cannot use the key of the tables")
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
