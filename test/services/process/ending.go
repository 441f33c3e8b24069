package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// endVariable says how a program of tests, instead of running them, ends after it has started its service.
const endVariable = "TEST_END"

// EndAsTold is for the TestMain of a service, before anything else: a process that Ends has started ends here.
func EndAsTold(start func() (pid int, dir string, err error)) {
	how := os.Getenv(endVariable)
	if how == "" {
		return
	}
	pid, dir, err := start()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(pid, dir)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if how == "panic" {
		panic("as planned")
	}
	os.Exit(0)
}

// Ends is the test of a service: no process of it, of which there are so many at least, and no directory is left when the process of the tests has
// ended, however it did. The package's TestMain uses EndAsTold.
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
			for deadline := time.Now().Add(30 * time.Second); len(left) > 0; left = Left(dir, family...) {
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
