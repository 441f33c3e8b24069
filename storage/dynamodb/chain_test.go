package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/schema"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/wait"
)

// newest is the number of this program's newest migration.
const newest = 2

// laterFiles are the migrations of programs to come. The first adds a table for the idempotency
// keys, and copies them. The second removes the table in which they were.
var laterFiles = [2]string{`{
	"compatible": 1,
	"tables": [{
		"TableName": "keys",
		"BillingMode": "PAY_PER_REQUEST",
		"AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
		"KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}]
	}],
	"steps": ["copy-keys"]
}`, fmt.Sprintf(`{
	"compatible": %d,
	"remove": ["idempotency_keys"],
	"steps": ["copy-keys"]
}`, newest+1)}

var steps = map[string]schema.Step{"copy-keys": {
	Up: func(ctx context.Context, api *dynamodb.Client, name func(string) string) error {
		return copyItems(ctx, api, name("idempotency_keys"), name("keys"))
	},
	Down: func(ctx context.Context, api *dynamodb.Client, name func(string) string) error {
		return copyItems(ctx, api, name("keys"), name("idempotency_keys"))
	},
}}

// copyItems copies all items. If there is no table, an earlier run has copied them.
func copyItems(ctx context.Context, api *dynamodb.Client, from, to string) error {
	out, err := api.Scan(ctx, &dynamodb.ScanInput{TableName: &from, ConsistentRead: aws.Bool(true)})
	var missing *types.ResourceNotFoundException
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, item := range out.Items {
		put := &dynamodb.PutItemInput{TableName: &to, Item: item}
		if _, err := api.PutItem(ctx, put); err != nil {
			return err
		}
	}
	return nil
}

// upTo returns this program's migrations up to a version.
func upTo(t *testing.T, version int) fstest.MapFS {
	t.Helper()
	names, err := fs.Glob(migrations.DynamoDB, "dynamodb/*")
	if err != nil || len(names) != newest {
		t.Fatalf("got the migrations %q, %v, want %d", names, err, newest)
	}
	files := fstest.MapFS{}
	for _, name := range names[:version] {
		text, err := migrations.DynamoDB.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	return files
}

// chain returns the migrations of a program of storagetest.Chain: 1, 2 or 3.
func chain(t *testing.T, program int) fs.FS {
	t.Helper()
	files := upTo(t, newest)
	for i, text := range laterFiles[:program-1] {
		name := fmt.Sprintf("dynamodb/%04d_later.json", newest+1+i)
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return files
}

// tablesFor returns the tables of a URL, of a program of storagetest.Chain.
func tablesFor(
	t *testing.T, url string, program int, transport http.RoundTripper,
) *schema.Tables {
	t.Helper()
	return tablesOfFiles(t, url, chain(t, program), transport)
}

// tablesOfFiles returns the tables of a URL, of a program with these migrations.
func tablesOfFiles(
	t *testing.T, url string, files fs.FS, transport http.RoundTripper,
) *schema.Tables {
	t.Helper()
	to, err := endpoint.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	api, err := to.Client(t.Context(), transport)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endpoint.Release(api) })
	tables, err := schema.New(api, to, files, steps)
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func TestChain(t *testing.T) {
	storagetest.RunChain(t, func(t *testing.T) storagetest.Chain {
		t.Helper()
		url := service.Shared(t).Store(t)
		c := storagetest.Chain{Newest: newest}
		c.Open = func(ctx context.Context) (storage.Store, error) {
			s, err := Open(ctx, Config{URL: url, Patience: wait.Hang})
			if err != nil {
				return nil, err
			}
			return s, nil
		}
		for i := range c.Programs {
			tables := tablesFor(t, url, i+1, nil)
			c.Programs[i] = storagetest.Program{
				Up: tables.Up, Down: tables.Down, Status: tables.Schema,
			}
		}
		return c
	})
}

// overtaken lets another migration run before a call.
type overtaken struct {
	http.RoundTripper
	once  sync.Once
	quick func()
}

func (o *overtaken) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") {
		o.once.Do(o.quick)
	}
	return o.RoundTripper.RoundTrip(r)
}

// TestMigrate_schema_fits_beside_a_quicker_one: a slow migration does not lower the version that a
// newer program has written meanwhile.
func TestMigrate_schema_fits_beside_a_quicker_one(t *testing.T) {
	url := newTables(t)
	third := tablesFor(t, url, 3, nil)
	carrier := &http.Transport{}
	t.Cleanup(carrier.CloseIdleConnections)
	slow := tablesFor(t, url, 2, &overtaken{RoundTripper: carrier, quick: func() {
		if err := third.Up(t.Context()); err != nil {
			t.Error(err)
		}
	}})
	if err := slow.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := storage.Schema{Version: newest + 2, Compatible: newest + 1, Needed: newest + 2}
	if got, err := third.Schema(t.Context()); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// looking lets another migration run before a table is described for the second time.
type looking struct {
	http.RoundTripper
	table string
	mu    sync.Mutex
	looks int
	quick func()
}

func (l *looking) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".DescribeTable") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		l.mu.Lock()
		if bytes.Contains(body, []byte(l.table)) {
			if l.looks++; l.looks == 2 {
				l.quick()
			}
		}
		l.mu.Unlock()
	}
	return l.RoundTripper.RoundTrip(r)
}

// TestMigrate_schema_fits_beside_one_that_removes_a_table: a table that a newer program removes is
// not created again. Otherwise the two would create and remove it for minutes.
func TestMigrate_schema_fits_beside_one_that_removes_a_table(t *testing.T) {
	for _, from := range []int{1, 2} {
		url := newTables(t)
		if err := tablesFor(t, url, from, nil).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		third := tablesFor(t, url, 3, nil)
		carrier := &http.Transport{}
		t.Cleanup(carrier.CloseIdleConnections)
		slow := tablesFor(t, url, 2, &looking{
			RoundTripper: carrier, table: "idempotency_keys", quick: func() {
				if err := third.Up(t.Context()); err != nil {
					t.Error(err)
				}
			},
		})
		if err := slow.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := storage.Schema{Version: newest + 2, Compatible: newest + 1, Needed: newest + 2}
		if got, err := third.Schema(t.Context()); err != nil || got != want {
			t.Errorf("from %d: got %+v, %v, want %+v", from, got, err, want)
		}
		api, name := raw(t, url)
		_, err := api.DescribeTable(t.Context(),
			&dynamodb.DescribeTableInput{TableName: name("idempotency_keys")})
		var missing *types.ResourceNotFoundException
		if !errors.As(err, &missing) {
			t.Errorf("from %d: the removed table is there again, or: %v", from, err)
		}
	}
}

// TestLives_restore_is_noticed_beside_a_newer_program: programs agree on the life of the data, even
// if some of their tables differ. If a common table is made again, a new life begins.
func TestLives_restore_is_noticed_beside_a_newer_program(t *testing.T) {
	url := service.Shared(t).Store(t)
	programs := []*schema.Tables{
		tablesFor(t, url, 1, nil), tablesFor(t, url, 2, nil), tablesFor(t, url, 3, nil),
	}
	life := func(program int) tidemark.Incarnation {
		t.Helper()
		all, err := programs[program-1].Lives(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all[len(all)-1].ID
	}
	up := func(program int) {
		t.Helper()
		if err := programs[program-1].Up(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	up(1)
	first := life(1)
	up(2)
	if got := []tidemark.Incarnation{life(2), life(1)}; got[0] != first || got[1] != first {
		t.Errorf("at the second version the lives are %v, want %v", got, first)
	}
	up(3)
	if got := []tidemark.Incarnation{life(3), life(2)}; got[0] != first || got[1] != first {
		t.Errorf("at the third version the lives are %v, want %v", got, first)
	}
	makeAgain(t, url, "messages")
	if second := life(2); second == first || life(3) != second {
		t.Errorf("the lives go on as %v, although a table was made again", second)
	}
}

// TestLives_restore_is_noticed_of_a_later_table: a migration adds a table during a life. If that
// table alone is restored, a new life begins. A program that does not know the table changes
// nothing.
func TestLives_restore_is_noticed_of_a_later_table(t *testing.T) {
	url := service.Shared(t).Store(t)
	old, newer := tablesFor(t, url, 1, nil), tablesFor(t, url, 2, nil)
	count := func(program *schema.Tables) int {
		t.Helper()
		all, err := program.Lives(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if err := old.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	count(old)
	if err := newer.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Several processes of both programs begin at once.
	var together sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		together.Go(func() {
			_, errs[i] = []*schema.Tables{old, newer}[i%2].Lives(t.Context())
		})
	}
	together.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := []int{count(newer), count(old)}; got[0] != 1 || got[1] != 1 {
		t.Errorf("after the migration there are %v lives, want 1", got)
	}
	makeAgain(t, url, "keys")
	if got := []int{count(old), count(newer), count(newer), count(old)}; !slices.Equal(
		got, []int{1, 2, 2, 2}) {
		t.Errorf("after a restore of the added table there are %v lives, want 1, 2, 2, 2", got)
	}
}

// makeAgain replaces a table by an empty one.
func makeAgain(t *testing.T, url, table string) {
	t.Helper()
	api, name := raw(t, url)
	was, err := api.DescribeTable(t.Context(),
		&dynamodb.DescribeTableInput{TableName: name(table)})
	if err != nil {
		t.Fatal(err)
	}
	_, e1 := api.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: name(table)})
	_, e2 := api.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            name(table),
		KeySchema:            was.Table.KeySchema,
		AttributeDefinitions: was.Table.AttributeDefinitions,
		BillingMode:          types.BillingModePayPerRequest,
	})
	if err := errors.Join(e1, e2); err != nil {
		t.Fatal(err)
	}
}

// cutter ends a context before a call.
type cutter struct {
	http.RoundTripper
	calls atomic.Int32
	last  int32
	end   func()
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.calls.Add(1) > c.last {
		c.end()
		return nil, context.Canceled
	}
	return c.RoundTripper.RoundTrip(r)
}

// TestChain_schema_fits_after_a_crash: a migration dies before each of its calls in turn. The
// stored version is then true, and the next migration completes the work. A program that may use
// the store finds every key.
func TestChain_schema_fits_after_a_crash(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	s := openTest(t, url)
	createGroup(t, s, "c", "anna")
	if _, err := s.Append(t.Context(), drafts("c", "anna", 2, "a")); err != nil {
		t.Fatal(err)
	}
	third := tablesFor(t, url, 3, nil)
	carrier := &http.Transport{}
	t.Cleanup(carrier.CloseIdleConnections)
	cuts := 0
	// die runs a migration that ends before a call. It returns false if there are fewer calls.
	die := func(last int, run func(*schema.Tables, context.Context) error) bool {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := &cutter{RoundTripper: carrier, last: int32(last), end: cancel}
		if err := run(tablesFor(t, url, 3, c), ctx); err == nil {
			return false
		}
		cuts++
		wantKeys(t, url, third, 2)
		return true
	}
	for n := 1; die(n, (*schema.Tables).Up); n += 2 {
		if err := third.Up(t.Context()); err != nil {
			t.Fatalf("up, after %d calls: %v", n, err)
		}
		wantKeys(t, url, third, 2)
		for version := uint(newest + 2); version > 1; version-- {
			if die(n, (*schema.Tables).Down) {
				if err := revert(t.Context(), third, version-1); err != nil {
					t.Fatalf("down, after %d calls: %v", n, err)
				}
			}
			wantKeys(t, url, third, 2)
		}
	}
	if cuts < 30 {
		t.Errorf("the calls were cut off at %d places; there are more", cuts)
	}
}

// revert completes a migration down to a version.
func revert(ctx context.Context, tables *schema.Tables, to uint) error {
	found, err := tables.Schema(ctx)
	if err == nil && found.Version == to {
		return nil // It died after its last call.
	}
	return tables.Down(ctx)
}

// wantKeys checks each program that may work with the store: every table on which it relies has the
// keys.
func wantKeys(t *testing.T, url string, third *schema.Tables, want int) {
	t.Helper()
	found, err := third.Schema(t.Context())
	if tidemark.CodeOf(err) == tidemark.Conflict {
		return // A program of this version is refused, because one of its tables is missing.
	}
	if err != nil {
		t.Fatal(err)
	}
	api, name := raw(t, url)
	for table, relies := range map[string]bool{
		"idempotency_keys": found.Compatible <= newest,
		"keys":             found.Version > newest,
	} {
		if !relies {
			continue
		}
		out, err := api.Scan(t.Context(), &dynamodb.ScanInput{TableName: name(table)})
		if err != nil || len(out.Items) != want {
			t.Errorf("at %+v the table %s has %d keys, %v, want %d",
				found, table, len(out.Items), err, want)
		}
	}
}
