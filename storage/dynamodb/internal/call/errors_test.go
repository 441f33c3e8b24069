package call

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
)

// said is a network that gives the same answer to every call.
type said struct {
	status int
	body   string
	err    error
}

func (s said) RoundTrip(request *http.Request) (*http.Response, error) {
	if s.err != nil {
		return nil, s.err
	}
	return &http.Response{
		StatusCode:    s.status,
		ProtoMajor:    1,
		ProtoMinor:    1,
		Request:       request,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		ContentLength: int64(len(s.body)),
		Body:          io.NopCloser(strings.NewReader(s.body)),
	}, nil
}

// transact makes one transaction over a network, with the SDK.
func transact(network http.RoundTripper) error {
	client := dynamodb.New(dynamodb.Options{
		Region:      "eu-central-1",
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
		Retryer:     aws.NopRetryer{},
		HTTPClient:  &http.Client{Transport: network},
	})
	_, err := client.TransactWriteItems(context.Background(), &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{},
	})
	return err
}

func named(name string) string {
	return `{"__type":"com.amazonaws.dynamodb.v20120810#` + name +
		`","message":"arn:aws:iam::111122223333:role/secret says no"}`
}

func canceled(codes ...string) string {
	reasons := make([]string, len(codes))
	for i, code := range codes {
		reasons[i] = `{"Code":"` + code + `"}`
	}
	return `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",` +
		`"Message":"cancelled","CancellationReasons":[` + strings.Join(reasons, ",") + `]}`
}

// TestJudge_and_Public checks all errors of DynamoDB and of a network: which calls may be repeated,
// which may have been performed, and what the caller is told.
func TestJudge_and_Public(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for _, tc := range []struct {
		name   string
		answer said
		want   meaning
		code   tidemark.Code
		words  string
	}{
		{
			"throttled",
			said{400, named("ThrottlingException"), nil}, undone, tidemark.Unavailable, "throttles",
		},
		{
			"a hot partition",
			said{400, named("ProvisionedThroughputExceededException"), nil}, undone,
			tidemark.Unavailable, "throttles",
		},
		{
			"the account's limit",
			said{400, named("RequestLimitExceeded"), nil}, undone, tidemark.Unavailable,
			"throttles",
		},
		{
			"a transaction in the way",
			said{400, named("TransactionConflictException"), nil}, undone, tidemark.Unavailable,
			"others write",
		},
		{
			"the same transaction under way",
			said{400, named("TransactionInProgressException"), nil}, unknown, tidemark.Unavailable,
			"others write",
		},
		{
			"an error inside",
			said{500, named("InternalServerError"), nil}, unknown, tidemark.Unavailable,
			"cannot serve",
		},
		{
			"unavailable",
			said{503, named("ServiceUnavailable"), nil}, unknown, tidemark.Unavailable,
			"cannot serve",
		},
		{
			"a name that nobody knows, of the server",
			said{500, named("SomethingNewException"), nil}, unknown, tidemark.Unavailable, "",
		},
		{"the page of a balancer", said{502, "<html>", nil}, unknown, tidemark.Unavailable, ""},
		{"nothing, of a balancer", said{503, "", nil}, unknown, tidemark.Unavailable, ""},
		{
			"JSON without a name, of a balancer",
			said{503, "{}", nil}, unknown, tidemark.Unavailable, "",
		},
		{"no connection", said{err: dial}, undone, tidemark.Unavailable, "cannot be reached"},
		{
			"a broken connection",
			said{err: io.ErrUnexpectedEOF}, unknown, tidemark.Unavailable, "cannot be reached",
		},
		{
			"no answer",
			said{err: context.DeadlineExceeded}, unknown, tidemark.Unavailable, "in time",
		},
		{
			"a bug",
			said{400, named("ValidationException"), nil}, answered, tidemark.Internal,
			"refused a call",
		},
		{
			"no table",
			said{400, named("ResourceNotFoundException"), nil}, answered, tidemark.Unavailable,
			"tidemark migrate up",
		},
		{
			"no permission",
			said{400, named("AccessDeniedException"), nil}, answered, tidemark.Unavailable,
			"policy",
		},
		{
			"unknown credentials",
			said{400, named("UnrecognizedClientException"), nil}, answered, tidemark.Unavailable,
			"credentials",
		},
		{
			"old credentials",
			said{400, named("ExpiredTokenException"), nil}, answered, tidemark.Unavailable,
			"credentials",
		},
		{
			"no key",
			said{400, named("KMSDisabledException"), nil}, answered, tidemark.Unavailable,
			"key of the tables",
		},
		{
			"a condition",
			said{400, canceled("None", "ConditionalCheckFailed"), nil}, answered,
			tidemark.Unavailable, "others write",
		},
		{
			"a conflict",
			said{400, canceled("TransactionConflict", "None"), nil}, answered, tidemark.Unavailable,
			"others write",
		},
		{
			"a throttled transaction",
			said{400, canceled("None", "ThrottlingError"), nil}, undone, tidemark.Unavailable,
			"throttles",
		},
		{
			"a transaction on a hot partition",
			said{400, canceled("ProvisionedThroughputExceeded"), nil}, undone, tidemark.Unavailable,
			"throttles",
		},
		{
			"throttled, and a condition",
			said{400, canceled("ThrottlingError", "ConditionalCheckFailed"), nil}, answered,
			tidemark.Unavailable, "others write",
		},
		{
			"a transaction with a bug",
			said{400, canceled("None", "ValidationError"), nil}, answered, tidemark.Internal,
			"refused a transaction",
		},
		{
			"a transaction refused for a reason that nobody knows",
			said{400, canceled("ItemCollectionSizeLimitExceeded", "None"), nil}, answered,
			tidemark.Internal, "refused a transaction",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := transact(tc.answer)
			if err == nil {
				t.Fatal("the SDK took the answer for a success")
			}
			if got := judge(err); got != tc.want {
				t.Errorf("judge(%v) is %d, want %d", err, got, tc.want)
			}
			public := Public(err)
			if got := tidemark.CodeOf(public); got != tc.code {
				t.Errorf("Public has the code %v, want %v: %v", got, tc.code, err)
			}
			detail := tidemark.DetailOf(public)
			if !strings.Contains(detail, tc.words) {
				t.Errorf("Public says %q, want %q in it", detail, tc.words)
			}
			if strings.Contains(detail, "111122223333") {
				t.Errorf("Public tells clients of the account: %q", detail)
			}
			if !errors.Is(public, err) {
				t.Errorf("Public does not wrap the error of DynamoDB")
			}
		})
	}
}

func TestPublic_keeps_errors_of_the_contract(t *testing.T) {
	for _, err := range []error{nil, tidemark.Errorf(tidemark.NotFound, "there is no chat")} {
		if got := Public(err); got != err {
			t.Errorf("Public(%v) is %v", err, got)
		}
	}
	if got := Public(&Hole{Chat: "c", Sequence: 7}); tidemark.CodeOf(got) != tidemark.Unavailable ||
		!strings.Contains(tidemark.DetailOf(got), "message 7 of chat c") {
		t.Errorf("Public of a hole is %v", got)
	}
}

// TestPause_doubles_within_its_bounds looks at each pause a few times, since half of it is random.
func TestPause_doubles_within_its_bounds(t *testing.T) {
	for _, tc := range []struct {
		n    int
		most time.Duration
	}{
		{0, 10 * time.Millisecond},
		{1, 20 * time.Millisecond},
		{4, 160 * time.Millisecond},
		{5, 200 * time.Millisecond},
		{6, 200 * time.Millisecond},
		{1 << 40, 200 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			for range 50 {
				began := time.Now()
				if err := Pause(t.Context(), tc.n); err != nil {
					t.Fatalf("Pause: %v", err)
				}
				if got := time.Since(began); got < tc.most/2 || got > tc.most {
					t.Errorf("Pause %d took %v, want %v to %v", tc.n, got, tc.most/2, tc.most)
				}
			}
		})
	}
}

func TestPause_and_Yield_end_with_their_context(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for n := range 8 {
		if Pause(ctx, n) == nil || Yield(ctx, n) == nil {
			t.Errorf("repetition %d goes on after its context has ended", n)
		}
	}
}

func TestYield_waits_from_the_fourth_time_on(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n, waits := range []bool{false, false, false, true, true} {
			began := time.Now()
			if err := Yield(t.Context(), n); err != nil {
				t.Fatalf("Yield: %v", err)
			}
			if got := time.Since(began) > 0; got != waits {
				t.Errorf("Yield %d waits: %v, want %v", n, got, waits)
			}
		}
	})
}
