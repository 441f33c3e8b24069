// Package dynamodb starts DynamoDB's emulator dynoxide for tests, on a free port of the loopback interface. `make dynamodb-deps` installs it; without
// it tests fail and say so.
//
// An emulator and its directory do not outlive the process of the tests, however that ends: a small shell watches it (supervise.sh).
package dynamodb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Variable names the environment variable with the address of another DynamoDB (http://HOST:PORT), which Shared returns instead of an emulator.
const Variable = "TEST_DYNAMODB_ENDPOINT"

// Server is an emulator, or the DynamoDB that Variable names. Its methods may be called by several goroutines, except that Kill, Freeze, Thaw and Run
// are one after the other, and are not for the one that Variable names.
type Server struct {
	program, dir string
	// file is where the data is; if empty, it is in memory, and is gone when the emulator ends.
	file     string
	port     int
	endpoint string
	// supervisor ends the emulator and removes the directory when hold, its input, is closed: by us, or with our process.
	supervisor *exec.Cmd
	hold       *os.File
	// pid is that of the emulator, a child of ours; 0 while it does not run.
	pid int
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
			t.Logf("the emulator's log:\n%s", s.log())
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Endpoint returns the address, as in http://127.0.0.1:PORT. It is the same for all of the server's life.
func (s *Server) Endpoint() string { return s.endpoint }

// PID returns the process id of the emulator, 0 while it does not run.
func (s *Server) PID() int { return s.pid }

// Kill kills the emulator with SIGKILL, and waits until it is gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGKILL)
	if err := s.wait(10 * time.Second); err != nil {
		t.Fatal(err)
	}
}

// Run starts an emulator that was killed, on the same port and file.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if s.program == "" || s.pid != 0 {
		t.Fatal("the emulator runs, or is not ours")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.run(ctx); err != nil {
		t.Fatal(err)
	}
}

// Freeze stops the emulator with SIGSTOP: connections stand, and nobody answers.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGSTOP)
}

// Thaw ends what Freeze began.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGCONT)
}

func (s *Server) signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if s.pid == 0 {
		t.Fatalf("%v: the emulator does not run, or is not ours", signal)
	}
	if err := syscall.Kill(s.pid, signal); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// wait waits until the emulator has ended.
func (s *Server) wait(atMost time.Duration) error {
	for deadline := time.Now().Add(atMost); !s.reaped(); pause() {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d of the emulator has not ended after %v", s.pid, atMost)
		}
	}
	return nil
}

// reaped reports whether the emulator has ended, and forgets it then. No goroutine waits for it: it may outlive every test of a package that looks for
// leaks.
func (s *Server) reaped() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(s.pid, &status, syscall.WNOHANG, nil)
	if pid == s.pid || err == syscall.ECHILD {
		s.pid = 0
		return true
	}
	return false
}

// pause is how long a poll waits.
func pause() { <-time.After(2 * time.Millisecond) }
