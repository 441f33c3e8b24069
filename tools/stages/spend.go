package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// linger is how long the children of a program that has ended may go on before their time is no
// longer counted. Databases of tests end within it.
const linger = 10 * time.Second

// spent is what a program took, together with every process that it left behind.
type spent struct {
	Wall time.Duration
	// CPU is user and system time.
	CPU time.Duration
}

// adopt makes this process the parent of orphans below it. The databases of tests outlive their
// tests for a moment, so their time would not be counted otherwise.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// finish waits for a started command, reaps orphans meanwhile, and returns what they took and the
// command's exit status. Nothing else may wait for children of this process.
func finish(command *exec.Cmd, began time.Time) (spent, int, error) {
	var took spent
	status := -1
	var until time.Time
	for {
		options := 0
		if !until.IsZero() {
			options = syscall.WNOHANG
		}
		var how syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &how, options, &usage)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.ECHILD || err == nil && pid == 0 && time.Now().After(until):
			if status < 0 {
				return took, status, fmt.Errorf("%s was lost", command.Path)
			}
			return took, status, nil
		case err != nil:
			return took, status, fmt.Errorf("waiting for %s: %w", command.Path, err)
		case pid == 0:
			time.Sleep(20 * time.Millisecond)
			continue
		}
		took.CPU += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		if pid == command.Process.Pid {
			took.Wall = time.Since(began)
			until = time.Now().Add(linger)
			status = exitStatus(how)
		}
	}
}

// exitStatus is the status as a shell has it.
func exitStatus(how syscall.WaitStatus) int {
	if how.Signaled() {
		return 128 + int(how.Signal())
	}
	return how.ExitStatus()
}

// piped starts a command with its output, and its errors too if both is set, in the pipe that is
// returned. The rest is our own.
func piped(command *exec.Cmd, both bool) (*os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer write.Close()
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, write, os.Stderr
	if both {
		command.Stderr = write
	}
	if err := command.Start(); err != nil {
		read.Close()
		return nil, err
	}
	return read, nil
}
