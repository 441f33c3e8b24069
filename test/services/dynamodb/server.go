// Package dynamodb starts DynamoDB's emulator dynoxide for tests, on a free port of the loopback interface. `make dynamodb-deps` installs it; without
// it tests fail and say so.
//
// An emulator and its directory do not outlive the process of the tests, however that ends (test/services/process).
package dynamodb

import (
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Variable names the environment variable with the address of another DynamoDB (http://HOST:PORT), which Shared returns instead of an emulator.
const Variable = "TEST_DYNAMODB_ENDPOINT"

// Server is an emulator, or the DynamoDB that Variable names. Its methods may be called by several goroutines, except that Kill, Freeze, Thaw and Run
// are one after the other, and are not for the one that Variable names.
type Server struct {
	// file is where the data is; if empty, it is in memory, and is gone when the emulator ends.
	file     string
	port     int
	endpoint string
	// home and emulator are nil for the DynamoDB that Variable names.
	home     *process.Home
	emulator *process.Program
}

// shared is the server of the process. A process has one of them, which is why it is the package's.
var shared = sync.OnceValues(func() (*Server, error) {
	if endpoint := os.Getenv(Variable); endpoint != "" {
		return &Server{endpoint: endpoint}, nil
	}
	return start("")
})

// Shared returns the emulator of this process, with its data in memory, and starts it at the first call. It ends with the process. It is for tests that
// mind only their own tables. With Variable set it is that DynamoDB instead.
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

// Endpoint returns the address, as in http://127.0.0.1:PORT. It is the same for all of the server's life.
func (s *Server) Endpoint() string { return s.endpoint }

// PID returns the process id of the emulator, 0 while it does not run, or is not ours.
func (s *Server) PID() int {
	if s.emulator == nil {
		return 0
	}
	return s.emulator.PID()
}

// Kill kills the emulator with SIGKILL, and waits until it is gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.ours(t).Kill(t)
}

// Run starts an emulator that was killed, on the same port and file.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.ours(t).Run(t)
}

// Freeze stops the emulator with SIGSTOP: connections stand, and nobody answers.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.ours(t).Signal(t, syscall.SIGSTOP)
}

// Thaw ends what Freeze began.
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
