package dynamodb

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"go.uber.org/goleak"
)

// endVariable says how this program, instead of running tests, ends after it has started an emulator.
const endVariable = "TEST_END"

func TestMain(m *testing.M) {
	if how := os.Getenv(endVariable); how != "" {
		s, err := start("")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(s.pid, s.dir)
		_, _ = io.Copy(io.Discard, os.Stdin)
		if how == "panic" {
			panic("as planned")
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestShared_ends_with_the_process_however_that_ends(t *testing.T) {
	for _, tc := range []struct {
		how string
		end func(process *os.Process, input io.Closer, emulator int) error
	}{
		{"exit", func(_ *os.Process, input io.Closer, _ int) error { return input.Close() }},
		{"panic", func(_ *os.Process, input io.Closer, _ int) error { return input.Close() }},
		{"SIGKILL of its group", func(p *os.Process, _ io.Closer, _ int) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }},
		{"SIGKILL, with an emulator that is stopped", func(p *os.Process, _ io.Closer, emulator int) error {
			return errors.Join(syscall.Kill(emulator, syscall.SIGSTOP), p.Kill())
		}},
	} {
		t.Run(tc.how, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), endVariable+"="+tc.how)
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			input, err := command.StdinPipe()
			must(t, err)
			output, err := command.StdoutPipe()
			must(t, err)
			must(t, command.Start())
			line, err := bufio.NewReader(output).ReadString('\n')
			must(t, err)
			var emulator int
			var dir string
			if _, err := fmt.Sscan(line, &emulator, &dir); err != nil {
				t.Fatalf("the program says %q", line)
			}
			if !exists(fmt.Sprintf("/proc/%d/exe", emulator)) || !exists(dir) {
				t.Fatalf("process %d runs: %v; %s exists: %v", emulator, exists(fmt.Sprintf("/proc/%d/exe", emulator)), dir, exists(dir))
			}
			must(t, tc.end(command.Process, input, emulator))
			_ = command.Wait() // how it ended is the case
			for deadline := time.Now().Add(30 * time.Second); exists(dir) || exists(fmt.Sprintf("/proc/%d/exe", emulator)); pause() {
				if time.Now().After(deadline) {
					t.Fatalf("process %d, or %s, is left", emulator, dir)
				}
			}
		})
	}
}

// exists reports whether there is such a file. The program of a process is one, until the process has ended.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestStart_leaves_nothing(t *testing.T) {
	var dir string
	var pid int
	t.Run("a test", func(t *testing.T) {
		s := Start(t)
		dir, pid = s.dir, s.pid
	})
	if exists(dir) || exists(fmt.Sprintf("/proc/%d/exe", pid)) {
		t.Errorf("%s is left, or process %d is", dir, pid)
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
			tables, err := s.Client().ListTables(t.Context(), &dynamodb.ListTablesInput{ExclusiveStartTableName: aws.String(prefix), Limit: aws.Int32(1)})
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
	if address.Host != "us-east-1" || !strings.HasPrefix(address.Query().Get("endpoint"), "http://127.0.0.1:") {
		t.Errorf("the store is %s", store)
	}
	return strings.TrimPrefix(address.Path, "/")
}

// TestKill_and_Run_keep_what_is_confirmed: what the emulator has confirmed is there after SIGKILL. The last confirmed write is as recent as can be.
func TestKill_and_Run_keep_what_is_confirmed(t *testing.T) {
	s := Start(t)
	create(t, s, "table")
	client := s.Client()
	confirmed := 0
	for range 5 {
		ended := make(chan int)
		go func() {
			n := confirmed
			for put(context.Background(), client, n) == nil {
				n++
			}
			ended <- n
		}()
		<-time.After(100 * time.Millisecond)
		pid := s.PID()
		s.Kill(t)
		if s.PID() != 0 || exists(fmt.Sprintf("/proc/%d/exe", pid)) {
			t.Errorf("the emulator has the process id %d when it is gone, and was %d", s.PID(), pid)
		}
		before := confirmed
		if confirmed = <-ended; confirmed == before {
			t.Fatal("nothing was confirmed")
		}
		if err := put(t.Context(), client, 0); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a call to an emulator that is down: %v", err)
		}
		s.Run(t)
		for n := range confirmed {
			item, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("table"), Key: key(n), ConsistentRead: aws.Bool(true)})
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
	if err := s.run(t.Context()); !errors.Is(err, errPortTaken) {
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
		TableName:            aws.String(name),
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeN}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	must(t, err)
}

func key(n int) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": &types.AttributeValueMemberN{Value: fmt.Sprint(n)}}
}

func put(ctx context.Context, client *dynamodb.Client, n int) error {
	_, err := client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("table"), Item: key(n)})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
