package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTicks is the unit of the times in /proc/PID/stat, 1/100 s on every Linux architecture that Go runs on.
const clockTicks = 100

// Process is what /proc tells about one process, and about the time of its children: a database has one for each connection.
type Process struct {
	PID  int
	Name string
	// User and System are times of the process, of its children, and of those that have ended and that it has waited for.
	User   time.Duration
	System time.Duration
	// Resident is VmRSS in bytes, that of the process alone.
	Resident int64
}

// CPU returns user and system time together.
func (p Process) CPU() time.Duration { return p.User + p.System }

// ReadProcess reads one process. It fails if the process has ended.
func ReadProcess(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, fmt.Errorf("process %d cannot be read (has it ended?): %w", pid, err)
	}
	p, err := parseStat(stat)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Process{}, fmt.Errorf("process %d cannot be read: %w", pid, err)
	}
	p.PID, p.Resident = pid, parseResident(status)
	for _, child := range children(dir) {
		// One that has ended since is in the time of those that were waited for, the next time.
		if stat, err := os.ReadFile(filepath.Join("/proc", child, "stat")); err == nil {
			c, err := parseStat(stat)
			if err != nil {
				return Process{}, fmt.Errorf("process %s: %w", child, err)
			}
			p.User, p.System = p.User+c.User, p.System+c.System
		}
	}
	return p, nil
}

// children returns the children of a process. A kernel that does not list them has none.
func children(dir string) []string {
	lists, err := filepath.Glob(filepath.Join(dir, "task", "*", "children"))
	if err != nil {
		return nil
	}
	var all []string
	for _, list := range lists {
		if names, err := os.ReadFile(list); err == nil {
			all = append(all, strings.Fields(string(names))...)
		}
	}
	return all
}

// parseStat reads the name, and user and system time with those of the children that have ended. The name is in parentheses and may hold anything, so
// the fields are counted from the last parenthesis on.
func parseStat(stat []byte) (Process, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("stat has no name: %q", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	const utime, stime, cutime, cstime = 11, 12, 13, 14 // fields 14 to 17 of proc(5), counted after the name
	if len(fields) <= cstime {
		return Process{}, fmt.Errorf("stat is short: %q", stat)
	}
	var ticks [cstime + 1]time.Duration
	for i := utime; i <= cstime; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Process{}, fmt.Errorf("field %d of stat: %w", i+3, err)
		}
		ticks[i] = time.Duration(n) * time.Second / clockTicks
	}
	return Process{Name: string(stat[open+1 : end]), User: ticks[utime] + ticks[cutime], System: ticks[stime] + ticks[cstime]}, nil
}

func parseResident(status []byte) int64 {
	for line := range strings.Lines(string(status)) {
		value, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0
		}
		return kib << 10
	}
	return 0
}
