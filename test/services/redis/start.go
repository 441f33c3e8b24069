package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// databases is how many databases a server has. It bounds how many tests can use the shared server
// at a time.
const databases = 1024

// usual returns the settings of every server. Nothing is saved without the command SAVE.
func usual() []string {
	return []string{
		`save ""`, "appendonly no", fmt.Sprint("databases ", databases),
		"enable-debug-command local", "repl-diskless-sync-delay 0",
	}
}

func newHome() (*process.Home, error) { return process.NewHome(process.Settings{Service: "redis"}) }

// start starts a server in a directory of the home with this name.
func start(home *process.Home, name string, settings ...string) (*Server, error) {
	return launch(home, name, "Ready to accept connections", slices.Concat(usual(), settings))
}

// startSentinel starts a Sentinel. It has only the given settings.
func startSentinel(home *process.Home, name string, settings ...string) (*Server, error) {
	return launch(home, name, "Sentinel ID is", settings, "--sentinel")
}

func launch(
	home *process.Home, name, ready string, settings []string, args ...string,
) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	s := &Server{home: home, dir: filepath.Join(home.Dir(), name), settings: settings}
	for _, line := range settings {
		if password, set := strings.CutPrefix(line, "requirepass "); set {
			s.password = password
		}
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	s.program = &process.Program{
		Home: home, Name: name, File: name + ".log", Taken: "Address already in use",
		Command: func() *exec.Cmd {
			command := home.Command(program, append([]string{s.conf()}, args...)...)
			command.Dir = s.dir
			return command
		},
		Serves: func(said string) bool {
			if !strings.Contains(said, ready) {
				return false
			}
			reply, err := s.Ask("PING")
			return err == nil && reply == "PONG"
		},
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s, process.OnFreePort(func(port int) error {
		s.port = port
		if err := s.configure(); err != nil {
			return err
		}
		return s.program.Start(ctx)
	})
}

func (s *Server) conf() string { return filepath.Join(s.dir, "redis.conf") }

// configure writes redis.conf, where the last line wins. Redis may rewrite it later.
func (s *Server) configure() error {
	lines := append([]string{fmt.Sprint("port ", s.port), "bind 127.0.0.1", "dir " + s.dir},
		s.settings...)
	return os.WriteFile(s.conf(), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// find returns the program: the one in PATH, or the one that scripts/redis-deps has unpacked below
// .build.
func find() (string, error) {
	if path, err := exec.LookPath("redis-server"); err == nil {
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		path := filepath.Join(dir, ".build/debian/usr/bin/redis-server")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("redis-server is not installed; run: make redis-deps")
}
