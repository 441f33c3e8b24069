package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ErrPortTaken is returned if another program listens on the port.
var ErrPortTaken = errors.New("the port is taken")

// Program is a program that a service starts, kills and starts again. Its methods must not be
// called concurrently. Only PID and Log may run concurrently with each other.
type Program struct {
	// Home is where the program works.
	Home *Home
	// Name is its name in messages.
	Name string
	// File is the name of its log in Home.
	File string
	// Command returns the command for its next life. The output goes to the log.
	Command func() *exec.Cmd
	// Taken is a part of its output when its port is taken.
	Taken string
	// Serves reports whether the program serves. said is its output of this life.
	Serves func(said string) bool

	// pid is the id of the process, a child of ours; 0 while it does not run.
	pid int
}

// PID returns the process id, 0 while it does not run.
func (p *Program) PID() int { return p.pid }

// Log returns what all of its lives have written.
func (p *Program) Log() string {
	text, err := os.ReadFile(filepath.Join(p.Home.dir, p.File))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Start starts the program, and waits until it serves. It returns ErrPortTaken if the port is
// taken.
func (p *Program) Start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(p.Home.dir, p.File), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before := len(p.Log())
	command := p.Command()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return err
	}
	p.pid = command.Process.Pid
	for !p.Serves(p.Log()[before:]) {
		if p.Ended() {
			said := p.Log()[before:]
			if strings.Contains(said, p.Taken) {
				return fmt.Errorf("starting %s: %w", p.Name, ErrPortTaken)
			}
			return fmt.Errorf("starting %s: it ended at once:\n%s", p.Name, said)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("starting %s: it is not ready in time:\n%s", p.Name, p.Log()[before:])
		}
		Pause()
	}
	return nil
}

// Run starts the program again within five minutes, and waits until it serves. Another program may
// use its port for a moment.
func (p *Program) Run(t testing.TB) {
	t.Helper()
	if p.pid != 0 {
		t.Fatalf("%s runs, as process %d", p.Name, p.pid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	err := p.Start(ctx)
	for ; errors.Is(err, ErrPortTaken) && ctx.Err() == nil; err = p.Start(ctx) {
		Pause()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Signal sends a signal to the process, but not to its children.
func (p *Program) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	if p.pid == 0 {
		t.Fatalf("%v: %s does not run", signal, p.Name)
	}
	if err := syscall.Kill(p.pid, signal); err != nil {
		t.Fatalf("%v to %s: %v", signal, p.Name, err)
	}
}

// Kill kills the process with SIGKILL, and waits until it has ended.
func (p *Program) Kill(t testing.TB) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	if err := p.Wait(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// Wait waits until the program has ended.
func (p *Program) Wait(atMost time.Duration) error {
	for deadline := time.Now().Add(atMost); !p.Ended(); Pause() {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d of %s has not ended after %v", p.pid, p.Name, atMost)
		}
	}
	return nil
}

// Ended reports whether the program does not run. No goroutine waits for it, because it may outlive
// every test of a package that looks for leaks.
func (p *Program) Ended() bool {
	if p.pid == 0 {
		return true
	}
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
	if pid == p.pid || err == syscall.ECHILD {
		p.pid = 0
	}
	return p.pid == 0
}

// Pause waits for one interval of a poll.
func Pause() { <-time.After(3 * time.Millisecond) }
