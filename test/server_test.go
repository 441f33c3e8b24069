package test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

// flag is set by one goroutine and read by others.
type flag = atomic.Bool

// process is the real server on one address and one database. A test starts and ends it.
type process struct {
	t       *testing.T
	dir     string
	binary  string
	address string
	// store is the directory of the database, name its file there; unless url is the store.
	store, name, url string
	// migrated reports that the schema exists, or is missing on purpose.
	migrated bool
	// flags are those of serve, without its address and its store. env is the environment besides
	// that of the caller.
	flags, env []string
	// wrap is a command that runs the server, before its own. credential is the user that it runs
	// as, nil for the same.
	wrap       []string
	credential *syscall.Credential

	process *os.Process
	log     *output
	ended   chan error
}

// program builds the program once for all tests. `go build` does not link it again if it is up to
// date.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs("../.build/test/tidemark")
	if err != nil {
		return "", err
	}
	return path, compile(path, ".")
})

// compile builds cmd/tidemark of a source tree into binary. flags are further flags of `go build`.
func compile(binary, source string, flags ...string) error {
	args := append([]string{"build", "-o", binary}, flags...)
	cmd := exec.Command("go", append(args, module+"/cmd/tidemark")...)
	cmd.Dir = source
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", source, err, out)
	}
	return nil
}

// build returns the path of the program.
func build(t *testing.T) (binary string) {
	t.Helper()
	binary, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// newProcess builds the program, as a server in development mode with an empty database. What it
// starts ends with the test.
func newProcess(t *testing.T) *process {
	t.Helper()
	return processOf(t, build(t))
}

// processOf is newProcess with a program that is already built.
func processOf(t *testing.T, binary string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{
		t:       t,
		dir:     dir,
		binary:  binary,
		store:   dir,
		name:    "tidemark.db",
		address: freeAddress(t),
		flags:   []string{"--dev"},
	}
	t.Cleanup(func() {
		if p.process != nil {
			_ = p.process.Kill()
			p.wait()
		}
		if t.Failed() && p.log != nil {
			t.Logf("the server's log:\n%s", p.log.String())
		}
	})
	return p
}

// eachStorage runs a test with a server of each storage, one at a time: clients cannot see a
// difference.
func eachStorage(t *testing.T, run func(t *testing.T, p *process)) {
	t.Helper()
	binary := build(t)
	t.Run("sqlite", func(t *testing.T) { run(t, processOf(t, binary)) })
	t.Run("postgres", func(t *testing.T) {
		p := processOf(t, binary)
		p.url = postgres.Shared(t).Database(t)
		run(t, p)
	})
	t.Run("dynamodb", func(t *testing.T) {
		p := processOf(t, binary)
		p.url = dynamodb.Shared(t).Store(t)
		run(t, p)
	})
}

func (p *process) database() string { return filepath.Join(p.store, p.name) }

// line returns the command that starts the server.
func (p *process) line() []string {
	line := slices.Concat(p.wrap,
		[]string{p.binary, "serve", "--listen", p.address, "--store",
			cmp.Or(p.url, "sqlite:"+p.database())}, p.flags)
	if !p.migrated {
		line = append(line, "--migrate")
	}
	return line
}

// launch starts the server and does not wait until it is ready.
func (p *process) launch() {
	p.t.Helper()
	line := p.line()
	command := exec.Command(line[0], line[1:]...)
	command.Dir = p.dir
	command.Env = append(environment(), p.env...)
	if p.credential != nil {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: p.credential}
	}
	p.log = &output{}
	command.Stdout, command.Stderr = p.log, p.log
	if err := command.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan error, 1)
	p.process, p.ended = command.Process, ended
	go func() { ended <- command.Wait() }()
}

// start starts the server and waits until it is ready.
func (p *process) start() {
	p.t.Helper()
	p.launch()
	if err := waitReady(p.t.Context(), "http://"+p.address+"/readyz", p.ended); err != nil {
		p.t.Fatalf("%v\n%s", err, p.log.String())
	}
}

// wait waits until the server has ended, for at most five minutes, and returns how.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.process = nil
		return err
	case <-time.After(5 * time.Minute):
		_ = p.process.Kill()
		p.process = nil
		p.t.Errorf("the server has not ended; its log:\n%s", p.log.String())
		return context.DeadlineExceeded
	}
}

// stop ends the server with SIGTERM, if it runs.
func (p *process) stop() {
	p.t.Helper()
	if p.process == nil {
		return
	}
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	if err := p.wait(); err != nil {
		p.t.Errorf("the server ended with %v after SIGTERM", err)
	}
}
