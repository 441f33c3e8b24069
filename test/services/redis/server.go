// Package redis starts Redis for tests, on free ports of the loopback interface: one server, a
// master with a replica behind Sentinel, or a cluster. `make redis-deps` unpacks Redis; tests that
// lack it fail and say so.
//
// However the process of the tests ends, the servers end and their directory is removed
// (test/services/process).
package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Server is a redis-server. Its data is in memory, and disappears when it ends. After Do(t,
// "SAVE"), the next Run has the data of that moment. With the setting "appendonly yes", it has
// everything that was confirmed.
//
// The methods are safe for concurrent use, except that Kill, Run, RunEmpty, Freeze and Thaw must
// not run concurrently.
type Server struct {
	home    *process.Home
	program *process.Program
	// dir contains its redis.conf, of the lines settings, and its data.
	dir      string
	settings []string
	port     int
	bus      int // the port of a cluster's members among themselves
	password string
}

// shared is the server of the process. A process has only one, so it is a variable of the package.
var shared = sync.OnceValues(func() (*Server, error) { return Serve() })

// Shared returns the server of this process. The first call starts it, and it ends with the
// process. It is for tests that use only their own Database. Publications reach all databases.
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

// Start starts a server for one test, and ends it with the test. Settings are lines of redis.conf,
// which override the usual ones.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := Serve(settings...)
	if err != nil {
		t.Fatal(err)
	}
	ends(t, s.home, s)
	return s
}

// Serve starts a server for a program that is no test. Close ends it.
func Serve(settings ...string) (*Server, error) {
	home, err := newHome()
	if err != nil {
		return nil, err
	}
	s, err := start(home, "redis", settings...)
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	return s, nil
}

// Close ends a server that Serve has started, and removes its directory.
func (s *Server) Close() error { return end(s.home, s) }

// ends ends servers of a home with the test.
func ends(t testing.TB, home *process.Home, servers ...*Server) {
	t.Cleanup(func() {
		if t.Failed() {
			for _, s := range servers {
				log := s.Log()
				t.Logf("the end of the log of %s:\n%s", s.program.Name, log[max(0, len(log)-3000):])
			}
		}
		if err := end(home, servers...); err != nil {
			t.Error(err)
		}
	})
}

func end(home *process.Home, servers ...*Server) error {
	err := home.Close()
	for _, s := range servers {
		err = errors.Join(err, s.program.Wait(time.Minute))
	}
	return err
}

// URL returns the URL of its first database.
func (s *Server) URL() string { return s.url(0) }

func (s *Server) url(database int) string {
	user := ""
	if s.password != "" {
		user = ":" + s.password + "@"
	}
	return fmt.Sprintf("redis://%s%s/%d", user, s.Address(), database)
}

// Address returns 127.0.0.1:PORT. It stays the same for the life of the server.
func (s *Server) Address() string { return fmt.Sprint("127.0.0.1:", s.port) }

// Port returns the port on 127.0.0.1.
func (s *Server) Port() int { return s.port }

// PID returns the process id, 0 while it does not run.
func (s *Server) PID() int { return s.program.PID() }

// Log returns what the server has written to its log.
func (s *Server) Log() string { return s.program.Log() }

// Kill kills the server with SIGKILL, and waits until it has ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.program.Kill(t)
}

// Run starts the server again after Kill, on the same port, with the saved data, and waits until it
// serves.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.program.Run(t)
}

// RunEmpty is Run without data.
func (s *Server) RunEmpty(t testing.TB) {
	t.Helper()
	for _, name := range []string{"dump.rdb", "appendonlydir"} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.program.Run(t)
}

// Freeze stops the server with SIGSTOP: old and new connections stay open, and no command is
// answered.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.program.Signal(t, syscall.SIGSTOP)
}

// Thaw continues a server that Freeze has stopped.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.program.Signal(t, syscall.SIGCONT)
}

// Do runs a command over a connection of its own, within 10 s. It returns the reply: a string, an
// int64, nil, or a slice of replies. An error of Redis ends the test.
func (s *Server) Do(t testing.TB, args ...string) any {
	t.Helper()
	reply, err := s.Ask(args...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return reply
}

// Ask is like Do, but returns errors.
func (s *Server) Ask(args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return ask(ctx, s.Address(), s.password, args)
}
