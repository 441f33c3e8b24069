package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// endVariable says how a test program ends after it has started its service, instead of running its
// tests.
const endVariable = "TEST_END"

// EndIfAsked ends a process that Ends has started. Call it first in the TestMain of a service.
func EndIfAsked(start func() (pid int, home *Home, err error)) {
	how := os.Getenv(endVariable)
	if how == "" {
		return
	}
	pid, home, err := start()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(pid, home.Dir())
	_, _ = io.Copy(io.Discard, os.Stdin)
	// A home that nothing refers to is closed, with all that works in it, when its memory is freed.
	runtime.KeepAlive(home)
	if how == "panic" {
		panic("as planned")
	}
	os.Exit(0)
}

// Ends tests that a service ends with its test program. However that program ends, no process of
// the service is left, of which there must be at least so many, and no directory. The package's
// TestMain must call EndIfAsked.
func Ends(t *testing.T, least int) {
	t.Helper()
	for _, tc := range []struct {
		how string
		end func(process *os.Process, input io.Closer, pid int) error
	}{
		{"exit", func(_ *os.Process, input io.Closer, _ int) error { return input.Close() }},
		{"panic", func(_ *os.Process, input io.Closer, _ int) error { return input.Close() }},
		{
			"SIGKILL of its group",
			func(p *os.Process, _ io.Closer, _ int) error {
				return syscall.Kill(-p.Pid, syscall.SIGKILL)
			},
		},
		{"SIGKILL, with a service that is " +
			"stopped", func(p *os.Process, _ io.Closer, pid int) error {
			return errors.Join(syscall.Kill(pid, syscall.SIGSTOP), p.Kill())
		}},
	} {
		t.Run(tc.how, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), endVariable+"="+tc.how)
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			input, err := command.StdinPipe()
			must(t, err)
			output, err := command.StdoutPipe()
			must(t, err)
			must(t, command.Start())
			line, err := bufio.NewReader(output).ReadString('\n')
			must(t, err)
			var pid int
			var dir string
			if _, err := fmt.Sscan(line, &pid, &dir); err != nil {
				t.Fatalf("the program says %q", line)
			}
			family := Family(pid)
			if _, err := os.Stat(dir); err != nil || len(family) < least || !Runs(pid) {
				t.Fatalf("the service has the processes %v, its directory: %v", family, err)
			}
			must(t, tc.end(command.Process, input, pid))
			_ = command.Wait() // how it ended is the case
			left := Left(dir, family...)
			deadline := time.Now().Add(5 * time.Minute)
			for ; len(left) > 0; left = Left(dir, family...) {
				if time.Now().After(deadline) {
					t.Fatalf("there is left: %q", left)
				}
				Pause()
			}
		})
	}
}

// Left returns what is left of a service: its directory, and processes.
func Left(dir string, pids ...int) (left []string) {
	for _, pid := range pids {
		if Runs(pid) {
			left = append(left, fmt.Sprint("process ", pid))
		}
	}
	if _, err := os.Stat(dir); err == nil {
		left = append(left, dir)
	}
	return left
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
