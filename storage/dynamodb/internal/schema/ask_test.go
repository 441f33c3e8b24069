package schema

import (
	"errors"
	"net/http"
	"testing"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// TestAsk_what_may_be_over_soon: the status decides, since a load balancer's answer has no error
// name.
func TestAsk_what_may_be_over_soon(t *testing.T) {
	answer := func(status int, name string) error {
		return &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
			Err:      &smithy.GenericAPIError{Code: name},
		}
	}
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"no answer", errors.New("connection refused"), true},
		{"an error inside", answer(500, "InternalServerError"), true},
		{"a balancer's answer", answer(503, "UnknownError"), true},
		{"throttling", answer(400, "ThrottlingException"), true},
		{"a refusal", answer(400, "ValidationException"), false},
		{"no permission", answer(400, "AccessDeniedException"), false},
	} {
		if got := passing(tc.err); got != tc.want {
			t.Errorf("%s: passing is %v, want %v", tc.name, got, tc.want)
		}
	}
}
