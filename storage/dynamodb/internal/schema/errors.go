package schema

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/tidemark-im/tidemark"
)

// explain returns an error that says what an operator can do, and which tables it is about.
func (s *Tables) explain(err error) error {
	var ours *tidemark.Error
	var said smithy.APIError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours):
	case errors.As(err, &said):
		err = tidemark.Wrap(tidemark.Unavailable, err, advice(said))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		err = tidemark.Wrap(tidemark.Unavailable, err, "DynamoDB did not answer in time")
	default:
		err = tidemark.Wrap(tidemark.Unavailable, err,
			"DynamoDB cannot be reached: "+cause(err)+
				"; look at the Region and the endpoint in the URL, and at the network")
	}
	return s.to.Named(err)
}

// advice says what to do about an error of DynamoDB.
func advice(said smithy.APIError) string {
	name, words := said.ErrorCode(), said.ErrorMessage()
	switch {
	case name == "AccessDeniedException":
		return "the credentials may not do this (" + words +
			"); docs/dynamodb.md has the policies that serve and migrate need"
	case name == "UnrecognizedClientException", name == "InvalidSignatureException",
		name == "IncompleteSignatureException", name == "MissingAuthenticationTokenException",
		strings.HasPrefix(name, "ExpiredToken"):
		return "DynamoDB refused the credentials (" + words +
			"); look at the key, at the role, and at the clock of the machine"
	case strings.HasPrefix(name, "KMS"), name == "InaccessibleEncryptionDateTimeException":
		return "DynamoDB cannot use the key (" + words +
			"); look at kms_key in the URL, and at the policy of the key"
	case name == "LimitExceededException":
		return "the account has too many tables, or changes too many at once (" + words +
			"); try again, or ask AWS for a higher quota"
	default:
		return "DynamoDB refused (" + name + ": " + words + ")"
	}
}

// cause returns the innermost error of a failed connection. The outer ones repeat the call.
func cause(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
