// Package postgres starts real Postgres servers for tests. Each has its own data directory made by
// initdb, and a free port of the loopback interface. It runs as a user other than root, with
// durability as in production. `make postgres-deps` installs Postgres; tests that lack it fail and
// say so.
//
// However the process of the tests ends, the servers end and their directories are removed
// (test/services/process, farewell.sh).
package postgres

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Server is a Postgres server. Its methods are safe for concurrent use, except that Stop, Kill,
// Freeze, Thaw and Run must not run concurrently.
type Server struct {
	bin      string
	port     int
	password string
	// credential is the user that it runs as, nil for our own.
	credential *syscall.Credential
	// environment is what the postmaster's environment has besides ours.
	environment []string
	home        *process.Home
	postmaster  *process.Program
}

// user is the superuser, as whom tests connect.
const user = "tidemark"

// shared is the server of the process. A process has only one, so it is a variable of the package.
var shared = sync.OnceValues(func() (*Server, error) { return start((*Server).initdb) })

// Shared returns the server of this process. The first call starts it, and it ends with the
// process. It is for tests that use only their own database.
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

// Start starts a server for one test, and ends it with the test. Settings are lines of
// postgresql.conf, which override the usual ones.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return started(t, (*Server).initdb, settings)
}

// StartCopy starts a server on a copy of another server's data. fill puts the copy into the
// directory copied.Data(), by pg_basebackup or from a backup. The server has the same superuser and
// password, and ends with the test. Settings are those of Start.
func StartCopy(
	t testing.TB, of *Server, fill func(copied *Server) error, settings ...string,
) *Server {
	t.Helper()
	return started(t, func(copied *Server) error {
		copied.password = of.password
		return fill(copied)
	}, settings)
}

// Serve starts a server for a program that is no test. Close ends it.
func Serve(settings ...string) (*Server, error) {
	return start((*Server).initdb, settings...)
}

// Close ends a server that Serve has started, and removes its directory.
func (s *Server) Close() error { return s.end() }

func started(t testing.TB, fill func(*Server) error, settings []string) *Server {
	t.Helper()
	s, err := start(fill, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of Postgres's log:\n%s", tail(s.Log(), 4000))
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Shell returns a script of bash that runs as the server's user, who is not root. Postgres's
// programs are on its PATH, and PGPASSWORD is the superuser's password.
func (s *Server) Shell(script string, env ...string) *exec.Cmd {
	command := s.command("/bin/bash", "-euo", "pipefail", "-c", script)
	command.Env = append(append(command.Env, "PATH="+s.bin+":"+os.Getenv("PATH"),
		"PGPASSWORD="+s.password), env...)
	return command
}

// PID returns the process id of the postmaster, 0 while it does not run.
func (s *Server) PID() int { return s.postmaster.PID() }

// Data returns the data directory, as the server sees it.
func (s *Server) Data() string { return filepath.Join(s.home.Dir(), "data") }

// Port returns the port on 127.0.0.1. It stays the same for the life of the server.
func (s *Server) Port() int { return s.port }

// Log returns what the server has written to its log.
func (s *Server) Log() string { return s.postmaster.Log() }

// URL returns the URL of a database, for the superuser.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable",
		user, s.password, s.port, database)
}

// Stop ends the server in one of Postgres's modes, and waits. "smart" waits for the last client,
// "fast" rolls back open transactions, "immediate" makes no checkpoint, as in a crash.
func (s *Server) Stop(t testing.TB, mode string) {
	t.Helper()
	signal, known := map[string]syscall.Signal{
		"smart": syscall.SIGTERM, "fast": syscall.SIGINT, "immediate": syscall.SIGQUIT,
	}[mode]
	if !known {
		t.Fatalf("there is no mode %q", mode)
	}
	s.postmaster.Signal(t, signal)
	if err := s.postmaster.Wait(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Kill kills the postmaster and all of its children with SIGKILL at one moment, as when the machine
// fails. It waits until they have ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.Freeze(t) // so that no child starts meanwhile
	family := process.Family(s.PID())
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err := s.postmaster.Wait(5 * time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, pid := range family[1:] {
		for deadline := time.Now().Add(5 * time.Minute); process.Runs(pid); {
			if time.Now().After(deadline) {
				t.Fatalf("process %d of Postgres does not end", pid)
			}
			process.Pause()
		}
	}
}

// Freeze stops the postmaster and its children with SIGSTOP: they answer no client, and their
// connections stay open. Thaw continues them.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	// The postmaster comes first, so that it starts no more children.
	s.postmaster.Signal(t, syscall.SIGSTOP)
	for !strings.Contains("TtZ", process.State(s.PID())) {
		process.Pause()
	}
	for _, pid := range process.Family(s.PID()) {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
}

// Thaw ends a Freeze.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	for _, pid := range process.Family(s.PID()) {
		// A child may end as soon as another one goes on.
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && err != syscall.ESRCH {
			t.Errorf("process %d of Postgres: %v", pid, err)
		}
	}
}

// Ended reports whether the postmaster has ended, also by itself: if it could not recover from a
// crash.
func (s *Server) Ended() bool { return s.postmaster.Ended() }

// Run starts the server again, after Stop or Kill, and waits until it serves.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.postmaster.Run(t)
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }
