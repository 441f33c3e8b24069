package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// flag is set by one goroutine and seen by others.
type flag = atomic.Bool

// process is the real server on one address and one database, to be started and ended at will.
type process struct {
	t       *testing.T
	dir     string
	binary  string
	address string
	// store is the directory of the database.
	store string
	// wrap is a command that runs the server, before its own; credential the user that it runs as, nil for the same.
	wrap       []string
	credential *syscall.Credential

	process *os.Process
	log     *output
	ended   chan error
}

// newProcess builds the server. What was started of it ends with the test.
func newProcess(t *testing.T) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, dir: dir, binary: filepath.Join(dir, "tidemark"), store: dir, address: freeAddress(t)}
	if out, err := exec.Command("go", "build", "-o", p.binary, module+"/cmd/tidemark").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
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

func (p *process) database() string { return filepath.Join(p.store, "test.db") }

// launch starts the server and does not wait until it is ready.
func (p *process) launch() {
	p.t.Helper()
	line := append(append([]string{}, p.wrap...), p.binary, "serve", "--dev", "--listen", p.address, "--store", "sqlite:"+p.database())
	command := exec.Command(line[0], line[1:]...)
	command.Dir = p.dir
	command.Env = environment()
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

// wait waits until the server has ended, for at most 20 s, and returns how.
func (p *process) wait() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.process = nil
		return err
	case <-time.After(20 * time.Second):
		_ = p.process.Kill()
		p.process = nil
		p.t.Errorf("the server has not ended; its log:\n%s", p.log.String())
		return context.DeadlineExceeded
	}
}

// stop ends the server in good order.
func (p *process) stop() {
	p.t.Helper()
	if err := p.process.Signal(syscall.SIGTERM); err != nil {
		p.t.Error(err)
	}
	if err := p.wait(); err != nil {
		p.t.Errorf("the server ended with %v after SIGTERM", err)
	}
}
