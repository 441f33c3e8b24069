package postgres

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	osuser "os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark/test/services/process"
)

//go:embed farewell.sh
var farewell string

// usual returns the settings of every server. Durability is as in production; memory is small.
func usual(dir string) []string {
	return []string{
		"listen_addresses = '127.0.0.1'",
		"unix_socket_directories = '" + dir + "'",
		"max_connections = 200",
		"shared_buffers = 32MB",
		"fsync = on",
		"full_page_writes = on",
		"synchronous_commit = on",
		"shared_preload_libraries = 'pg_stat_statements'",
		"log_checkpoints = off",
		"timezone = 'UTC'",
		"log_timezone = 'UTC'",
	}
}

// start makes and starts a server. fill makes its data directory.
func start(fill func(*Server) error, settings ...string) (_ *Server, err error) {
	s, err := prepare()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end())
		}
	}()
	if err := fill(s); err != nil {
		return nil, err
	}
	if err := s.configure(settings); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s, process.OnFreePort(func(port int) error {
		s.port = port
		return s.postmaster.Start(ctx)
	})
}

// prepare makes the server's directory.
func prepare() (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	home, err := process.NewHome(process.Settings{
		Service: "postgres", Credential: credential, Farewell: farewell,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, password: rand.Text(), credential: credential, home: home}
	s.postmaster = &process.Program{
		Home: home, Name: "Postgres", File: "log", Taken: "could not create any TCP/IP sockets",
		Command: func() *exec.Cmd {
			command := s.command(filepath.Join(s.bin, "postgres"),
				"-D", s.Data(), "-p", strconv.Itoa(s.port))
			command.Env = append(command.Env, s.environment...)
			return command
		},
		Serves: func(string) bool { return s.serves() },
	}
	return s, nil
}

// programs returns the directory of initdb and postgres: the one in PATH, or Debian's newest.
func programs() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("no Postgres is installed; run: make postgres-deps " +
			"(or: apt-get install postgresql, with create_main_cluster = false " +
			"in /etc/postgresql-common/createcluster.conf)")
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4]) // 0 for what is no number
		return n
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// unprivileged returns the user to run Postgres as, because it refuses to run as root. It returns
// nil if we are not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // nil is our own user, as in exec.Cmd
	}
	u, err := osuser.Lookup("postgres")
	if err != nil {
		u, err = osuser.Lookup("nobody")
	}
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// command returns a command that runs as the server's user.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	command := s.home.Command(name, args...)
	ours := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG")
	})
	command.Env = append(ours, "HOME="+s.home.Dir(), "LC_ALL=C")
	return command
}

// initdb makes the data directory. The default collation is not that of bytes, so that tests notice
// a statement that forgets to name its own.
func (s *Server) initdb() error {
	secret := filepath.Join(s.home.Dir(), "password")
	if err := os.WriteFile(secret, []byte(s.password+"\n"), 0o600); err != nil {
		return err
	}
	if s.credential != nil {
		if err := os.Chown(secret, int(s.credential.Uid), int(s.credential.Gid)); err != nil {
			return err
		}
	}
	// No sync: the data is not needed before the server has started.
	out, err := s.command(filepath.Join(s.bin, "initdb"), "--pgdata="+s.Data(), "--no-sync",
		"--username="+user, "--auth=scram-sha-256", "--pwfile="+secret,
		"--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en",
	).CombinedOutput()
	if err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return os.Remove(secret)
}

// configure appends to postgresql.conf, where the last line wins.
func (s *Server) configure(settings []string) error {
	file, err := os.OpenFile(filepath.Join(s.Data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	lines := strings.Join(slices.Concat(usual(s.home.Dir()), settings), "\n")
	_, err = file.WriteString("\n" + lines + "\n")
	return errors.Join(err, file.Close())
}

// serves reports whether the postmaster is ready, by the eighth line of its pid file. The first
// line is its process id.
func (s *Server) serves() bool {
	text, err := os.ReadFile(filepath.Join(s.Data(), "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) < 8 || lines[0] != strconv.Itoa(s.PID()) {
		return false
	}
	status := strings.TrimSpace(lines[7])
	return status == "ready" || status == "standby"
}

// end ends the server and removes its directory. A killed process disappears only when its disk
// requests are done.
func (s *Server) end() error {
	return errors.Join(s.home.Close(), s.postmaster.Wait(20*time.Second))
}
