package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pause is how long a poll waits.
func pause() { <-time.After(5 * time.Millisecond) }

// reaped reports whether the postmaster has ended, and forgets it then. No goroutine waits for it: it may outlive every test of a package that looks
// for leaks.
func (s *Server) reaped() bool {
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(s.pid, &status, syscall.WNOHANG, nil)
	if pid == s.pid || err == syscall.ECHILD {
		s.pid = 0
		return true
	}
	return false
}

// wait waits until the postmaster has ended.
func (s *Server) wait(atMost time.Duration) error {
	for deadline := time.Now().Add(atMost); !s.reaped(); pause() {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d of Postgres has not ended after %v", s.pid, atMost)
		}
	}
	return nil
}

// family returns the process ids of the postmaster and of its children, the postmaster's first.
func (s *Server) family() []int {
	pids := []int{s.pid}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range stats {
		if fields := stat(path); len(fields) > 1 && fields[1] == strconv.Itoa(s.pid) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// stat returns the fields of /proc/PID/stat after the program's name: state, parent, and so on; nil if there is no such process.
func stat(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
}

// state returns the state of a process: "Z" if there is none any more.
func state(pid int) string {
	if fields := stat(fmt.Sprintf("/proc/%d/stat", pid)); fields != nil {
		return fields[0]
	}
	return "Z"
}

// runs reports whether a process lives.
func runs(pid int) bool { return state(pid) != "Z" && state(pid) != "X" }
