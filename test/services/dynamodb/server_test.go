package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/test/services/process"
	"github.com/tidemark-im/tidemark/test/wait"
)

func TestMain(m *testing.M) {
	process.EndIfAsked(func() (int, *process.Home, error) {
		s, err := start("")
		if err != nil {
			return 0, nil, err
		}
		return s.PID(), s.home, nil
	})
	goleak.VerifyTestMain(m)
}

func TestShared_ends_with_the_process_however_that_ends(t *testing.T) { process.Ends(t, 1) }

func TestStart_leaves_nothing(t *testing.T) {
	var dir string
	var pid int
	t.Run("a test", func(t *testing.T) {
		s := Start(t)
		dir, pid = s.home.Dir(), s.PID()
	})
	if left := process.Left(dir, pid); len(left) > 0 {
		t.Errorf("there is left: %q", left)
	}
}

func TestStore_is_empty_and_dropped_with_the_test(t *testing.T) {
	s := Shared(t)
	if Shared(t) != s {
		t.Error("there are two shared servers")
	}
	var prefixes []string
	names := func() (found []string) {
		for _, prefix := range prefixes {
			tables, err := s.Client().ListTables(t.Context(), &dynamodb.ListTablesInput{
				ExclusiveStartTableName: aws.String(prefix),
				Limit:                   aws.Int32(1),
			})
			must(t, err)
			for _, name := range tables.TableNames {
				if name[:len(prefix)] == prefix {
					found = append(found, name)
				}
			}
		}
		return found
	}
	t.Run("a test", func(t *testing.T) {
		for range 2 {
			prefixes = append(prefixes, prefixOf(t, s.Store(t)))
		}
		if got := names(); prefixes[0] == prefixes[1] || len(got) != 0 {
			t.Errorf("the prefixes are %q, and there are the tables %q", prefixes, got)
		}
		for _, prefix := range prefixes {
			for _, table := range []string{"a", "b", "z"} {
				create(t, s, prefix+table)
			}
		}
		if got := names(); len(got) != 2 {
			t.Errorf("there are the tables %q", got)
		}
	})
	if got := names(); len(got) != 0 {
		t.Errorf("there are the tables %q after the test", got)
	}
}

// prefixOf returns the prefix in a store's URL.
func prefixOf(t *testing.T, store string) string {
	t.Helper()
	address, err := url.Parse(store)
	must(t, err)
	if address.Host != "us-east-1" ||
		!strings.HasPrefix(address.Query().Get("endpoint"), "http://127.0.0.1:") {
		t.Errorf("the store is %s", store)
	}
	return strings.TrimPrefix(address.Path, "/")
}

// TestKill_and_Run_keep_what_is_confirmed: after SIGKILL the emulator still has what it has
// confirmed, even the write just before.
func TestKill_and_Run_keep_what_is_confirmed(t *testing.T) {
	s := Start(t)
	create(t, s, "table")
	client := s.Client()
	confirmed := 0
	for range 5 {
		first, last := make(chan struct{}), make(chan int)
		go func() {
			n := confirmed
			for put(context.Background(), client, n) == nil {
				if n == confirmed {
					close(first)
				}
				n++
			}
			last <- n
		}()
		select {
		case <-first:
		case <-time.After(wait.Hang):
		}
		<-time.After(100 * time.Millisecond)
		pid := s.PID()
		s.Kill(t)
		if s.PID() != 0 || process.Runs(pid) {
			t.Errorf("the emulator has the process id %d when it is gone, and was %d", s.PID(), pid)
		}
		before := confirmed
		if confirmed = <-last; confirmed == before {
			t.Fatal("nothing was confirmed")
		}
		if err := put(t.Context(), client, 0); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a call to an emulator that is down: %v", err)
		}
		s.Run(t)
		for n := range confirmed {
			item, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
				TableName:      aws.String("table"),
				Key:            key(n),
				ConsistentRead: aws.Bool(true),
			})
			must(t, err)
			if item.Item == nil {
				t.Errorf("of %d confirmed items, %d is lost", confirmed, n)
			}
		}
	}
	t.Logf("%d items confirmed", confirmed)
}

func TestFreeze_answers_nobody_until_Thaw(t *testing.T) {
	s := Start(t)
	create(t, s, "table")
	s.Freeze(t)
	answered := make(chan error, 1)
	go func() { answered <- put(context.Background(), s.Client(), 1) }()
	select {
	case err := <-answered:
		t.Errorf("a frozen emulator answers: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Thaw(t)
	if err := <-answered; err != nil {
		t.Errorf("after Thaw: %v", err)
	}
}

func TestRun_names_a_taken_port(t *testing.T) {
	s := Start(t)
	s.Kill(t)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
	must(t, err)
	if err := s.emulator.Start(t.Context()); !errors.Is(err, process.ErrPortTaken) {
		t.Errorf("got %v, want that the port is taken", err)
	}
	must(t, listener.Close())
	s.Run(t)
}

func TestShared_is_what_the_variable_names(t *testing.T) {
	emulator := Start(t)
	t.Setenv(Variable, emulator.Endpoint())
	named := &Server{endpoint: os.Getenv(Variable)}
	t.Run("a test", func(t *testing.T) {
		prefix := prefixOf(t, named.Store(t))
		create(t, named, prefix+"a")
	})
	tables, err := emulator.Client().ListTables(t.Context(), &dynamodb.ListTablesInput{})
	must(t, err)
	if len(tables.TableNames) != 0 {
		t.Errorf("there are the tables %q after the test", tables.TableNames)
	}
}

func create(t *testing.T, s *Server, name string) {
	t.Helper()
	_, err := s.Client().CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:   aws.String(name),
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash},
		},
	})
	must(t, err)
}

func key(n int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": &types.AttributeValueMemberN{Value: fmt.Sprint(n)}}
}

func put(ctx context.Context, client *dynamodb.Client, n int) error {
	_, err := client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName: aws.String("table"),
		Item:      key(n),
	})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
