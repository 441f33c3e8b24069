package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Family returns the process ids of a process and of its children, its own first.
func Family(parent int) []int {
	pids := []int{parent}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range stats {
		if fields := stat(path); len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// State returns the state of a process, as proc(5) names it: "Z" if the process does not exist.
func State(pid int) string {
	if fields := stat(fmt.Sprintf("/proc/%d/stat", pid)); fields != nil {
		return fields[0]
	}
	return "Z"
}

// Runs reports whether a process lives.
func Runs(pid int) bool { return State(pid) != "Z" && State(pid) != "X" }

// stat returns the fields of /proc/PID/stat after the program's name: state, parent, and so on. It
// returns nil if there is no such process.
func stat(path string) []string {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
}
