package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// between stands before the emulator. It gives the answers that a test wants, and passes on the
// other calls.
type between struct {
	answer func(operation, table string) (status int, body string) // status 0 passes the call on
}

func (b between) RoundTrip(r *http.Request) (*http.Response, error) {
	_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var named struct{ TableName string }
	if err := json.Unmarshal(body, &named); err != nil {
		return nil, err
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if status, text := b.answer(operation, named.TableName); status != 0 {
		return &http.Response{
			StatusCode:    status,
			Proto:         "HTTP/1.1",
			ProtoMajor:    1,
			ProtoMinor:    1,
			Request:       r,
			ContentLength: int64(len(text)),
			Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
			Body:          io.NopCloser(strings.NewReader(text)),
		}, nil
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	return http.DefaultTransport.RoundTrip(r)
}

func open(t *testing.T, url string, transport http.RoundTripper) *Tables {
	t.Helper()
	return openWith(t, url, transport, migrations.DynamoDB, nil)
}

// openWith returns the tables of a program with these migrations.
func openWith(
	t *testing.T, url string, transport http.RoundTripper, files fs.FS, steps map[string]Step,
) *Tables {
	t.Helper()
	to, err := endpoint.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	api, err := to.Client(t.Context(), transport)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := New(api, to, files, steps)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func wantVersion(t *testing.T, tables *Tables, want uint) {
	t.Helper()
	if got, err := tables.Schema(t.Context()); err != nil || got.Version != want {
		t.Errorf("got %+v, %v, want version %d", got, err, want)
	}
}

// refusal returns an error answer of DynamoDB.
func refusal(name, words string) string {
	return fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, name, words)
}

// backups plays a part of AWS that the emulator lacks: backups that are unknown at first, and are
// then turned on.
type backups struct {
	mu      sync.Mutex
	on      map[string]bool
	refused map[string]int
	changes int
}

func (b *backups) answer(operation, table string) (int, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch operation {
	case "DescribeContinuousBackups":
		status := map[bool]string{true: "ENABLED", false: "DISABLED"}[b.on[table]]
		return http.StatusOK, `{"ContinuousBackupsDescription":{` +
			`"ContinuousBackupsStatus":"ENABLED","PointInTimeRecoveryDescription":{` +
			`"PointInTimeRecoveryStatus":"` + status + `"}}}`
	case "UpdateContinuousBackups":
		if b.refused[table] < 2 {
			b.refused[table]++
			return http.StatusBadRequest, refusal("ContinuousBackupsUnavailableException",
				"Backups are being enabled for the table")
		}
		b.on[table] = true
		b.changes++
		return http.StatusOK, `{}`
	}
	return 0, ""
}

func TestUp_turns_on_recovery_once(t *testing.T) {
	b := backups{on: make(map[string]bool), refused: make(map[string]int)}
	tables := open(t, service.Shared(t).Store(t)+"&point_in_time_recovery=on", between{b.answer})
	for range 2 {
		if err := tables.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := b.changes, len(tables.wanted()); len(b.on) != want || got != want {
		t.Errorf("got %d tables that can be recovered, by %d changes, want %d by one each",
			len(b.on), got, want)
	}
	wantVersion(t, tables, tables.needed())
}

func TestUp_recovery_that_an_emulator_has_not(t *testing.T) {
	tables := open(t, service.Shared(t).Store(t)+"&point_in_time_recovery=on", nil)
	err := tables.Up(t.Context())
	if tidemark.CodeOf(err) != tidemark.Invalid ||
		!strings.Contains(err.Error(), "point_in_time_recovery=off") {
		t.Errorf("got %v, want INVALID that says what to write", err)
	}
	wantVersion(t, tables, 0)
}

// TestUp_goes_on_after_any_call: wherever a migration died, the next one completes it. No version
// is written before that.
func TestUp_goes_on_after_any_call(t *testing.T) {
	url := service.Shared(t).Store(t)
	cuts := 0
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		calls := 0
		err := open(t, url, between{func(string, string) (int, string) {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls >= n {
				cancel()
			}
			return 0, ""
		}}).Up(ctx)
		cancel()
		tables := open(t, url, nil)
		if err == nil {
			break
		}
		cuts++
		found, e := tables.Schema(t.Context())
		if e != nil {
			t.Fatalf("after %d calls: %v", n, e)
		}
		if found.Version == tables.needed() {
			wantNothingToDo(t, url)
		}
		if n%5 != 0 {
			continue // The next migration finds what this one has created.
		}
		if err := tables.Up(t.Context()); err != nil {
			t.Fatalf("after %d calls: %v", n, err)
		}
		for version := tables.needed(); version > 0; version-- {
			wantVersion(t, tables, version)
			if err := tables.Down(t.Context()); err != nil {
				t.Fatalf("after %d calls: %v", n, err)
			}
		}
		wantVersion(t, tables, 0)
	}
	if cuts < 20 {
		t.Errorf("the calls were cut off at %d places; there are more", cuts)
	}
}

// wantNothingToDo migrates tables that have a version. The version is written last, so no step may
// remain.
func wantNothingToDo(t *testing.T, url string) {
	t.Helper()
	err := open(t, url, between{func(operation, table string) (int, string) {
		if !strings.HasPrefix(operation, "Describe") && operation != "GetItem" {
			t.Errorf("there is a version, but %s of %s was not done", operation, table)
		}
		return 0, ""
	}}).Up(t.Context())
	if err != nil {
		t.Error(err)
	}
}

// TestUp_what_somebody_else_did_meanwhile is no failure, although AWS refuses a change that is
// already made.
func TestUp_what_somebody_else_did_meanwhile(t *testing.T) {
	url := service.Shared(t).Store(t)
	other := open(t, url, nil)
	var once sync.Once
	tables := open(t, url, between{func(operation, table string) (int, string) {
		refused := false
		if operation == "UpdateTimeToLive" {
			once.Do(func() {
				if err := other.Up(t.Context()); err != nil {
					t.Error(err)
				}
				refused = true
			})
		}
		if refused {
			return http.StatusBadRequest, refusal("ValidationException",
				"TimeToLive is already enabled")
		}
		return 0, ""
	}})
	if err := tables.Up(t.Context()); err != nil {
		t.Error(err)
	}
	wantVersion(t, tables, tables.needed())
}

// slowIndex plays AWS, where an index is made and deleted long after the call. Descriptions of the
// table show it in the states of a time, and then as it is.
type slowIndex struct {
	mu     sync.Mutex
	states []string
	calls  []string // what changed the table
}

func (s *slowIndex) answer(operation, table string) (int, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !strings.HasSuffix(table, Counters):
	case operation == "UpdateTable" || operation == "CreateTable":
		s.calls = append(s.calls, operation)
		s.states = append(s.states, "CREATING", "CREATING")
	case operation == "DescribeTable" && len(s.states) > 0:
		state := s.states[0]
		s.states = s.states[1:]
		return http.StatusOK, fmt.Sprintf(`{"Table":{"TableName":%q,"TableStatus":"ACTIVE",
			"KeySchema":[{"AttributeName":"chat_id","KeyType":"HASH"}],
			"AttributeDefinitions":[{"AttributeName":"chat_id","AttributeType":"S"},
				{"AttributeName":"outbox_shard","AttributeType":"S"}],
			"BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST"},
			"GlobalSecondaryIndexes":[{"IndexName":"outbox","IndexStatus":%q,"Backfilling":true,
				"KeySchema":[{"AttributeName":"outbox_shard","KeyType":"HASH"},
					{"AttributeName":"chat_id","KeyType":"RANGE"}]}]}}`, table, state)
	}
	return 0, ""
}

// TestUp_waits_for_an_index: the version is written when the index can be read. Down deletes the
// index, and nothing else of the table. Both can be repeated.
func TestUp_waits_for_an_index(t *testing.T) {
	url := service.Shared(t).Store(t)
	first := fstest.MapFS{}
	text, err := migrations.DynamoDB.ReadFile("dynamodb/0001_initial.json")
	if err != nil {
		t.Fatal(err)
	}
	first["dynamodb/0001_initial.json"] = &fstest.MapFile{Data: text}
	if err := openWith(t, url, nil, first, nil).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	aws := &slowIndex{}
	tables := open(t, url, between{func(operation, table string) (int, string) {
		if operation == "PutItem" {
			aws.mu.Lock()
			defer aws.mu.Unlock()
			if len(aws.states) > 0 {
				t.Error("the version is written before the index is active")
			}
			return 0, ""
		}
		return aws.answer(operation, table)
	}})
	for range 2 {
		if err := tables.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(aws.calls, []string{"UpdateTable"}) {
		t.Errorf("the table was changed by %q, want one UpdateTable", aws.calls)
	}
	wantVersion(t, tables, 2)
	plain := open(t, url, nil)
	if err := plain.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, plain, 1)
	is, err := plain.describe(t.Context(), plain.wanted()[0])
	if err != nil || len(is.GlobalSecondaryIndexes) != 0 {
		t.Errorf("after Down the table is %+v, %v, want one without an index", is, err)
	}
}

// TestSchema_without_an_index refuses tables whose index was deleted, or left out by a restore. Up
// makes it again.
func TestSchema_without_an_index(t *testing.T) {
	tables := open(t, service.Shared(t).Store(t), nil)
	if err := tables.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	counters := tables.wanted()[0]
	if err := tables.dropIndex(t.Context(), counters,
		counters.GlobalSecondaryIndexes[0].IndexName); err != nil {
		t.Fatal(err)
	}
	_, err := tables.Schema(t.Context())
	if tidemark.CodeOf(err) != tidemark.Conflict ||
		!strings.Contains(tidemark.DetailOf(err), "has no index outbox; run tidemark migrate up") {
		t.Errorf("got %v, want a Conflict that says what to do", err)
	}
	if err := tables.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantVersion(t, tables, tables.needed())
}

// TestChain_of_indexes: an index of a table that no earlier file has is refused, and two indexes
// are added one after the other.
func TestChain_of_indexes(t *testing.T) {
	const of = `{"compatible": 1, "indexes": [%s]}`
	index := func(table, name string) string {
		return fmt.Sprintf(`{"TableName": %q,
			"AttributeDefinitions": [{"AttributeName": %q, "AttributeType": "S"}],
			"Create": {"IndexName": %q, "Projection": {"ProjectionType": "KEYS_ONLY"},
				"KeySchema": [{"AttributeName": %q, "KeyType": "HASH"}]}}`,
			table, name+"_x", name, name+"_x")
	}
	files := fstest.MapFS{}
	for _, name := range []string{"0001_initial.json", "0002_outlets.json"} {
		text, err := migrations.DynamoDB.ReadFile("dynamodb/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files["dynamodb/"+name] = &fstest.MapFile{Data: text}
	}
	third := &fstest.MapFile{}
	files["dynamodb/0003_more.json"] = third
	third.Data = fmt.Appendf(nil, of, index("nothing", "one"))
	if _, err := readChain(files, nil); err == nil ||
		!strings.Contains(fmt.Sprint(errors.Unwrap(err)), "which no file before has") {
		t.Errorf("got %v, want an error that names the table", err)
	}
	third.Data = fmt.Appendf(nil, of, index("messages", "one")+","+index("messages", "two"))
	url := service.Shared(t).Store(t)
	if err := open(t, url, nil).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	tables := openWith(t, url, nil, files, nil)
	if err := tables.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages := tables.wanted()[indexOf(tables.wanted(), tables.to.Table("messages"))]
	for _, want := range []int{2, 0} {
		is, err := tables.describe(t.Context(), messages)
		if err != nil || len(is.GlobalSecondaryIndexes) != want {
			t.Fatalf("the messages have the indexes %+v, %v, want %d",
				is.GlobalSecondaryIndexes, err, want)
		}
		if want > 0 {
			if err := tables.Down(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestErrors_say_what_to_do(t *testing.T) {
	for _, tc := range []struct {
		name, operation string
		status          int
		body            string
		code            tidemark.Code
		words           []string
	}{
		{
			"no right to look", "GetItem", 400, refusal("AccessDeniedException",
				"User: arn:u is not authorized to perform: dynamodb:GetItem"),
			tidemark.Unavailable, []string{"dynamodb:GetItem", "docs/dynamodb.md"},
		},
		{
			"no right to make",
			"CreateTable", 400,
			refusal("AccessDeniedException", "not authorized to perform: dynamodb:CreateTable"),
			tidemark.Unavailable, []string{"dynamodb:CreateTable", "policies"},
		},
		{
			"wrong key", "GetItem", 400, refusal("UnrecognizedClientException",
				"The security token included in the request is invalid."),
			tidemark.Unavailable, []string{"refused the credentials", "token included"},
		},
		{
			"late clock",
			"GetItem", 400, refusal("InvalidSignatureException", "Signature expired"),
			tidemark.Unavailable, []string{"the clock"},
		},
		{
			"no use of the key",
			"CreateTable", 400, refusal("KMSAccessDeniedException", "no"), tidemark.Unavailable,
			[]string{"kms_key"},
		},
		{
			"refused for good",
			"UpdateTimeToLive", 400, refusal("ValidationException", "modified multiple times"),
			tidemark.Unavailable, []string{"ValidationException: modified multiple times"},
		},
		{
			"broken",
			"GetItem", 500, refusal("InternalServerError", "oops"), tidemark.Unavailable,
			[]string{"InternalServerError"},
		},
		{
			"something else",
			"GetItem", 200, "<html>", tidemark.Unavailable,
			[]string{"look at the Region and the endpoint"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tables := open(t, service.Shared(t).Store(t),
				between{func(operation, _ string) (int, string) {
					if operation == tc.operation {
						return tc.status, tc.body
					}
					return 0, ""
				}})
			err := tables.Up(t.Context())
			for _, words := range append(tc.words, tables.to.Name) {
				if tidemark.CodeOf(err) != tc.code ||
					!strings.Contains(tidemark.DetailOf(err), words) {
					t.Errorf("got %v, want %s and %q", err, tc.code, words)
				}
			}
		})
	}
}

// TestSchema_in_bounded_time: of a server that does not exist, of a silent one, and of one that is
// slow for a moment.
func TestSchema_in_bounded_time(t *testing.T) {
	for name, endpoint := range map[string]string{
		"refused": "http://127.0.0.1:1", "no such name": "http://nowhere.invalid",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := open(t, "dynamodb://r/p?endpoint="+endpoint, nil).Schema(t.Context())
			if tidemark.CodeOf(err) != tidemark.Unavailable ||
				!strings.Contains(tidemark.DetailOf(err), "cannot be reached: ") {
				t.Errorf("got %v, want UNAVAILABLE", err)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
	t.Run("for a moment", func(t *testing.T) {
		t.Parallel()
		var mu sync.Mutex
		calls := 0
		wantVersion(t,
			open(t, service.Shared(t).Store(t), between{func(string, string) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls <= 3 {
					return http.StatusBadRequest, refusal("ThrottlingException", "slow down")
				}
				return 0, ""
			}}), 0)
	})
}
