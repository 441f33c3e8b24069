package dynamo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The calls of the tests.
const (
	appends = `{"ClientRequestToken":"x","TransactItems":[` +
		`{"Update":{"TableName":"p-chat_counters"}},{"Put":{"TableName":"p-messages"}},` +
		`{"Put":{"TableName":"p-idempotency_keys"}}]}`
	put       = `{"TableName":"p-pending_deliveries","Item":{}}`
	get       = `{"TableName":"p-delivery_state","Key":{}}`
	strongGet = `{"TableName":"p-delivery_state","Key":{},"ConsistentRead":true}`
	query     = `{"TableName":"p-messages","Limit":100}`
	backwards = `{"TableName":"p-messages","ScanIndexForward":false,"ConsistentRead":true}`
	batch     = `{"RequestItems":{"p-chat_counters":{"ConsistentRead":true,"Keys":[` +
		`{"k":1},{"k":2},{"k":3},{"k":4},{"k":5},{"k":6},{"k":7},{"k":8}]}}}`
	writes = `{"RequestItems":{"p-chat_memberships":[` +
		`{"k":1},{"k":2},{"k":3},{"k":4},{"k":5},{"k":6},{"k":7},{"k":8}]}}`
)

// service is behind the network. It answers each call with the number of calls so far.
type service struct {
	*httptest.Server
	performed atomic.Int64
	last      atomic.Value
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := s.performed.Add(1)
		s.last.Store(string(body))
		w.Header().Set("X-Amz-Crc32", "7")
		var asked struct{ Limit int }
		if json.Unmarshal(body, &asked) == nil && asked.Limit > 0 && asked.Limit < 10 {
			fmt.Fprintf(w, `{"Count":1,"Items":[{"n":1}],"LastEvaluatedKey":{"n":1}}`)
			return
		}
		fmt.Fprintf(w, `{"Call":%d,"Count":3,"Items":[{"n":1},{"n":2},{"n":3}]}`, n)
	}))
	t.Cleanup(s.Close)
	return s
}

// ask makes a call through the network.
func ask(
	t *testing.T, n *Network, s *service, operation, body string, limit time.Duration,
) (status int, text string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Amz-Target", "DynamoDB_20120810."+operation)
	response, err := n.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	switch crc := response.Header.Get("X-Amz-Crc32"); crc {
	case "7": // as the service sent it
		read = append(read, " crc 7"...)
	case fmt.Sprint(crc32.ChecksumIEEE(read)), "":
	default:
		read = append(read, " wrong crc"...)
	}
	return response.StatusCode, string(read), err
}

func network(t *testing.T) (*Network, *service) {
	t.Helper()
	n := New(1, "p-")
	t.Cleanup(n.Close)
	return n, newService(t)
}

const whole = `{"Call":1,"Count":3,"Items":[{"n":1},{"n":2},{"n":3}]} crc 7`

// TestFault_does_what_it_says: each fault happens to the calls that it selects and to no other. The
// call is performed as often as the fault says.
func TestFault_does_what_it_says(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		fault           Fault
		operation, body string
		performed       []int64 // allowed numbers of performed calls
		status          int     // 0: an error
		says            string  // a part of the body, or of the error
		err             error
	}{
		{ReplyLost(), "PutItem", put, []int64{1}, 0, "", syscall.ECONNRESET},
		{Forgotten(), "TransactWriteItems", appends, []int64{1}, 0, "", syscall.ECONNRESET},
		{RequestLost(), "PutItem", put, []int64{0}, 0, "", syscall.ECONNRESET},
		{Delayed(), "TransactWriteItems", appends, []int64{1}, 0, "", syscall.ECONNRESET},
		{Doubled(), "PutItem", put, []int64{2}, 200, whole, nil},
		{Slow(time.Millisecond, 2*time.Millisecond), "GetItem", get, []int64{1}, 200, whole, nil},
		{
			Slow(time.Second, 2*time.Second), "GetItem", get, []int64{1}, 0, "",
			context.DeadlineExceeded,
		},
		{Silent(), "PutItem", put, []int64{0, 1}, 0, "", context.DeadlineExceeded},
		{Cut(), "PutItem", put, []int64{1}, 200, "", io.ErrUnexpectedEOF},
		{Truncated(), "PutItem", put, []int64{1}, 200, "", nil},
		{Corrupted(), "PutItem", put, []int64{1}, 200, " wrong crc", nil},
		{Garbage(), "PutItem", put, []int64{1}, 200, "", nil},
		{Throttled(), "GetItem", get, []int64{0}, 400, "com.amazon", nil},
		{
			TransactionThrottled(), "TransactWriteItems", appends, []int64{0}, 400,
			"TransactionCanceledException", nil,
		},
		{
			TransactionConflict(), "TransactWriteItems", appends, []int64{0}, 400,
			`"Code":"TransactionConflict"`, nil,
		},
		{Conflict(), "PutItem", put, []int64{0}, 400, "TransactionConflictException", nil},
		{
			InProgress(), "TransactWriteItems", appends, []int64{1}, 400,
			"TransactionInProgressException", nil,
		},
		{InternalError(), "PutItem", put, []int64{0}, 500, "InternalServerError", nil},
		{InternalErrorAfter(), "PutItem", put, []int64{1}, 500, "InternalServerError", nil},
		{
			PartialBatch(), "BatchGetItem", batch, []int64{1}, 200,
			`"UnprocessedKeys":{"p-chat_counters":{"ConsistentRead":true,"Keys":[{"k":`, nil,
		},
		{
			PartialBatch(), "BatchWriteItem", writes, []int64{1}, 200,
			`"UnprocessedItems":{"p-chat_memberships":[{"k":`, nil,
		},
		{ShortPage(), "Query", query, []int64{1}, 200, "LastEvaluatedKey", nil},
		{Hole("messages", false), "Query", query, []int64{1}, 200, `"Count":2,`, nil},
		{Hole("messages", true), "Query", backwards, []int64{1}, 200, `"Count":2,`, nil},
	} {
		t.Run(tc.fault.Name+" "+tc.operation, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(10) {
				s := newService(t)
				n := New(seed, "p-")
				n.late = 10 * time.Millisecond
				n.Inject(tc.fault.At(100))
				limit := 10 * time.Second
				if errors.Is(tc.err, context.DeadlineExceeded) {
					limit = 200 * time.Millisecond
				}
				status, text, err := ask(t, n, s, tc.operation, tc.body, limit)
				n.Inject()
				n.Close()
				fired := n.Fired()[tc.fault.Name]
				if len(fired) != 1 || n.Calls()[slices.Collect(maps.Keys(fired))[0]] != 1 {
					if tc.operation != "BatchGetItem" && tc.operation != "BatchWriteItem" {
						t.Fatalf("seed %d: it has happened %v, of calls %v", seed, fired, n.Calls())
					}
					continue // it has left out nothing this time
				}
				if got := s.performed.Load(); !slices.Contains(tc.performed, got) {
					t.Errorf("seed %d: performed %d times, want %v", seed, got, tc.performed)
				}
				if status != tc.status || !strings.Contains(text, tc.says) ||
					!errors.Is(err, tc.err) {
					t.Errorf("seed %d: answer %d %q, error %v; want %d with %q, %v",
						seed, status, text, err, tc.status, tc.says, tc.err)
				}
				if tc.status == 200 && tc.says == "" && text == whole {
					t.Errorf("seed %d: the answer is whole", seed)
				}
			}
		})
	}
}

func TestFault_only_of_what_it_is_for(t *testing.T) {
	t.Parallel()
	n, s := network(t)
	n.Inject(TransactionConflict().At(100), InProgress().At(100), PartialBatch().At(100),
		Hole("messages", false).At(100), Hole("chat_memberships", true).At(100),
		Stale().At(100), RequestLost().At(100).For(func(c *Call) bool {
			return c.On("PutItem", "messages")
		}), ReplyLost().At(0))
	for _, call := range [][2]string{
		{"PutItem", put}, {"GetItem", strongGet}, {"Query", backwards}, {"UpdateItem", put},
	} {
		status, text, err := ask(t, n, s, call[0], call[1], 10*time.Second)
		if status != 200 || !strings.HasSuffix(text, " crc 7") || err != nil {
			t.Errorf("%s: %d %q, %v", call[0], status, text, err)
		}
	}
	if fired := n.Fired(); len(fired) != 0 {
		t.Errorf("it has happened: %v", fired)
	}
}

// TestStale_only_what_was_true: an eventual read returns what an earlier one returned, for at most
// a second.
func TestStale_only_what_was_true(t *testing.T) {
	t.Parallel()
	n, s := network(t)
	n.Inject(Stale().At(100))
	for i := range 3 {
		_, text, err := ask(t, n, s, "GetItem", get, 10*time.Second)
		if err != nil || text != whole {
			t.Errorf("read %d: %q, %v; want that of the first", i, text, err)
		}
	}
	if got := s.performed.Load(); got != 3 {
		t.Errorf("%d reads were performed, want each", got)
	}
	for call := 4; call <= staleness; call++ {
		_, _, _ = ask(t, n, s, "GetItem", get, 10*time.Second)
	}
	_, text, err := ask(t, n, s, "GetItem", get, 10*time.Second)
	if err != nil || !strings.Contains(text, `"Call":2`) {
		t.Errorf("read %d: %q, %v; want that of the second", staleness+1, text, err)
	}
}

// TestPartialBatch_asks_for_the_rest: performed and left-out items together are the batch.
func TestPartialBatch_asks_for_the_rest(t *testing.T) {
	t.Parallel()
	for _, call := range [][2]string{{"BatchGetItem", batch}, {"BatchWriteItem", writes}} {
		for seed := range uint64(20) {
			s := newService(t)
			n := New(seed, "p-")
			n.Inject(PartialBatch().At(100))
			_, text, err := ask(t, n, s, call[0], call[1], 10*time.Second)
			n.Close()
			asked, _ := s.last.Load().(string)
			for k := 1; k <= 8; k++ {
				key := fmt.Sprintf(`{"k":%d}`, k)
				in, left := strings.Contains(asked, key), strings.Contains(text, key)
				if in == left {
					t.Errorf("seed %d: %s is asked for: %v, left out: %v (%v)",
						seed, key, in, left, err)
				}
			}
		}
	}
}

// TestForgotten_takes_the_token_away: the same transaction, made again, counts as a new one.
func TestForgotten_takes_the_token_away(t *testing.T) {
	t.Parallel()
	n, s := network(t)
	n.Inject(Forgotten().At(100))
	_, _, _ = ask(t, n, s, "TransactWriteItems", appends, time.Second)
	asked, _ := s.last.Load().(string)
	if strings.Contains(asked, "ClientRequestToken") || !strings.Contains(asked, "p-messages") {
		t.Errorf("the service was asked for %s", asked)
	}
}

func TestCall_kind(t *testing.T) {
	t.Parallel()
	n, s := network(t)
	for _, call := range [][2]string{
		{"TransactWriteItems", appends}, {"PutItem", put}, {"BatchGetItem", batch},
	} {
		if _, _, err := ask(t, n, s, call[0], call[1], 10*time.Second); err != nil {
			t.Error(err)
		}
	}
	for _, kind := range []string{
		"TransactWriteItems chat_counters idempotency_keys messages",
		"PutItem pending_deliveries", "BatchGetItem chat_counters",
	} {
		if n.Calls()[kind] != 1 {
			t.Errorf("%q is not among %v", kind, n.Calls())
		}
	}
}
