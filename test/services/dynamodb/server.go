// Package dynamodb starts DynamoDB's emulator dynoxide for tests, on a free port of the loopback
// interface. `make dynamodb-deps` installs it; tests that lack it fail and say so.
//
// However the process of the tests ends, the emulator ends and its directory is removed
// (test/services/process).
package dynamodb

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Variable names the environment variable with the address of another DynamoDB (http://HOST:PORT).
// If it is set, Shared returns that DynamoDB instead of an emulator.
const Variable = "TEST_DYNAMODB_ENDPOINT"

// Server is an emulator, or the DynamoDB that Variable names. Its methods are safe for concurrent
// use, except that Kill, Freeze, Thaw and Run must not run concurrently. These four need an
// emulator.
type Server struct {
	// file is the file with the data. If it is empty, the data is in memory and disappears with the
	// emulator.
	file     string
	port     int
	endpoint string
	// home and emulator are nil for the DynamoDB that Variable names.
	home     *process.Home
	emulator *process.Program
}

// shared is the server of the process. A process has only one, so it is a variable of the package.
var shared = sync.OnceValues(func() (*Server, error) {
	if endpoint := os.Getenv(Variable); endpoint != "" {
		return &Server{endpoint: endpoint}, nil
	}
	return start("")
})

// Shared returns the emulator of this process, with its data in memory. The first call starts it,
// and it ends with the process. It is for tests that use only their own tables. If Variable is set,
// Shared returns that DynamoDB.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// SharedByMain is Shared for a TestMain, which has no test.
func SharedByMain() (*Server, error) { return shared() }

// Start starts an emulator for one test, with its data in a file, and ends it with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start("data.db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the emulator's log:\n%s", s.emulator.Log())
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Endpoint returns the address, such as http://127.0.0.1:PORT. It stays the same for the life of
// the server.
func (s *Server) Endpoint() string { return s.endpoint }

// PID returns the process id of the emulator. It is 0 while the emulator does not run, and for the
// DynamoDB that Variable names.
func (s *Server) PID() int {
	if s.emulator == nil {
		return 0
	}
	return s.emulator.PID()
}

// Kill kills the emulator with SIGKILL, and waits until it has ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.ours(t).Kill(t)
}

// Run starts an emulator that was killed, on the same port and file.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.ours(t).Run(t)
}

// Freeze stops the emulator with SIGSTOP: connections stay open, and no call is answered.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.ours(t).Signal(t, syscall.SIGSTOP)
}

// Thaw continues an emulator that Freeze has stopped.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.ours(t).Signal(t, syscall.SIGCONT)
}

func (s *Server) ours(t testing.TB) *process.Program {
	t.Helper()
	if s.emulator == nil {
		t.Fatalf("%s is none of ours", s.endpoint)
	}
	return s.emulator
}
