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

// clockTicks is the number of ticks per second in /proc/PID/stat.
// It is 100 on every Linux architecture that Go supports.
const clockTicks = 100

// Process holds the use of one process from /proc, and the CPU time of its children.
// A database has one child per connection.
type Process struct {
	PID  int
	Name string
	// User and System include the children that run, and those that the process has waited for.
	User   time.Duration
	System time.Duration
	// Exact is the same sum to the nanosecond, or 0 if the system has no such clock. What children
	// used that have ended is in it to 10 ms.
	Exact time.Duration
	// Resident is VmRSS in bytes, of the process alone.
	Resident int64
}

// CPU returns user and system time together, as exactly as the system tells them.
func (p Process) CPU() time.Duration {
	if p.Exact > 0 {
		return p.Exact
	}
	return p.User + p.System
}

// ReadProcess returns the use of one process. It fails if the process has ended.
func ReadProcess(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, fmt.Errorf("process %d cannot be read (has it ended?): %w", pid, err)
	}
	p, ended, err := parseStat(stat)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Process{}, fmt.Errorf("process %d cannot be read: %w", pid, err)
	}
	p.PID, p.Resident = pid, parseResident(status)
	if clock, err := CPUClock(pid); err == nil {
		p.Exact = clock + ended
	}
	for _, child := range children(dir) {
		// A child that ends before it is read counts at the next reading, as one waited for.
		if stat, err := os.ReadFile(filepath.Join("/proc", child, "stat")); err == nil {
			c, gone, err := parseStat(stat)
			if err != nil {
				return Process{}, fmt.Errorf("process %s: %w", child, err)
			}
			p.User, p.System = p.User+c.User, p.System+c.System
			if p.Exact > 0 {
				p.Exact += childCPU(child, c) + gone
			}
		}
	}
	return p, nil
}

// childCPU returns what a child used itself, by its clock, or else by what /proc says. The latter
// includes the child's children.
func childCPU(child string, stat Process) time.Duration {
	pid, err := strconv.Atoi(child)
	if err == nil {
		if clock, err := CPUClock(pid); err == nil {
			return clock
		}
	}
	return stat.User + stat.System
}

// children returns the children of a process, or none if the kernel does not list them.
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

// parseStat parses /proc/PID/stat: the name, and the times including those of ended children.
// ended is the part of these children. The name is in parentheses and may contain anything, so
// fields count from the last parenthesis.
func parseStat(stat []byte) (p Process, ended time.Duration, err error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return p, 0, fmt.Errorf("stat has no name: %q", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	// Fields 14 to 17 of proc(5), counted after the name.
	const utime, stime, cutime, cstime = 11, 12, 13, 14
	if len(fields) <= cstime {
		return p, 0, fmt.Errorf("stat is short: %q", stat)
	}
	var ticks [cstime + 1]time.Duration
	for i := utime; i <= cstime; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return p, 0, fmt.Errorf("field %d of stat: %w", i+3, err)
		}
		ticks[i] = time.Duration(n) * time.Second / clockTicks
	}
	return Process{
		Name:   string(stat[open+1 : end]),
		User:   ticks[utime] + ticks[cutime],
		System: ticks[stime] + ticks[cstime],
	}, ticks[cutime] + ticks[cstime], nil
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
