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

// Process is what /proc tells about one process.
type Process struct {
	PID    int
	Name   string
	User   time.Duration
	System time.Duration
	// Resident is VmRSS in bytes.
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
	return p, nil
}

// parseStat reads name, user and system time. The name is in parentheses and may hold anything, so the fields are counted from
// the last parenthesis on.
func parseStat(stat []byte) (Process, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("stat has no name: %q", stat)
	}
	fields := strings.Fields(string(stat[end+1:]))
	const utime, stime = 11, 12 // fields 14 and 15 of proc(5), counted after the name
	if len(fields) <= stime {
		return Process{}, fmt.Errorf("stat is short: %q", stat)
	}
	user, err := strconv.ParseInt(fields[utime], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("utime: %w", err)
	}
	system, err := strconv.ParseInt(fields[stime], 10, 64)
	if err != nil {
		return Process{}, fmt.Errorf("stime: %w", err)
	}
	const tick = time.Second / clockTicks
	return Process{Name: string(stat[open+1 : end]), User: time.Duration(user) * tick, System: time.Duration(system) * tick}, nil
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
