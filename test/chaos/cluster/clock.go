package cluster

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-im/tidemark/test/wait"
)

// setClock shifts the time of day of one process, by whole seconds. The process is stopped for some
// milliseconds, and continues.
//
// A Go program reads the time from the kernel's vDSO, which a preloaded library cannot replace.
// setClock overwrites the function there with one that makes the system call and adds the seconds.
// The monotonic clock is unchanged. A thread that is in the function while it is overwritten would
// run half of each, and the process would crash. So setClock writes only while every thread stands
// still outside of the vDSO, and in no signal handler, from which it might return there.
func setClock(pid int, apart time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return errors.New("clocks can be set apart on amd64 only")
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = memory.Close() }()
	f, err := findGettime(pid, memory)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(wait.Hang); ; {
		written, err := f.overwrite(pid, memory, gettime(int32(apart/time.Second)))
		if written || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a thread of process %d is always in clock_gettime", pid)
		}
		<-time.After(100 * time.Microsecond)
	}
}

// function is where a process has a function of its vDSO. The vDSO ends before to.
type function struct{ from, at, to int64 }

// findGettime returns where the vDSO of a process has clock_gettime.
func findGettime(pid int, memory io.ReaderAt) (function, error) {
	var low, high int64
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return function{}, err
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err != nil {
				return function{}, err
			}
		}
	}
	image := make([]byte, high-low)
	if _, err := memory.ReadAt(image, low); err != nil {
		return function{}, err
	}
	library, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return function{}, err
	}
	symbols, err := library.DynamicSymbols()
	if err != nil {
		return function{}, err
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			//nolint:gosec // offsets within a few pages
			return function{from: low, at: low + int64(s.Value), to: high}, nil
		}
	}
	return function{}, errors.New("the vDSO has no clock_gettime")
}

// overwrite stops the process, writes the code unless a thread may be in the vDSO, and continues
// the process. It reports whether it wrote.
func (f function) overwrite(pid int, memory io.WriterAt, code []byte) (written bool, err error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)) }()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		at, handles, err := standsAt(pid, thread.Name())
		if err != nil || handles || f.from <= at && at < f.to {
			return false, err
		}
	}
	_, err = memory.WriteAt(code, f.at)
	return err == nil, err
}

// standsAt waits until a thread of a stopped process stands still. It returns the address of the
// thread's next instruction, and whether it may be in a signal handler. A thread that has ended is
// at 0.
func standsAt(pid int, thread string) (address int64, handles bool, err error) {
	for deadline := time.Now().Add(wait.Hang); time.Now().Before(deadline); {
		stopped, blocks, err := threadStopped(pid, thread)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, err
		}
		if stopped {
			// The last of the fields is the program counter (proc_pid_syscall(5)).
			line, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, thread))
			if err != nil {
				return 0, false, err
			}
			fields := strings.Fields(string(line))
			if len(fields) < 3 {
				return 0, false, fmt.Errorf("thread %s of process %d: no program counter in %q",
					thread, pid, line)
			}
			address, err := strconv.ParseInt(fields[len(fields)-1], 0, 64)
			return address, blocks, err
		}
		<-time.After(100 * time.Microsecond)
	}
	return 0, false, fmt.Errorf("thread %s of process %d has not stopped within %v", thread, pid,
		wait.Hang)
}

// threadStopped reports whether a signal has stopped a thread, and whether the thread blocks
// SIGURG, as the handlers of Go do. The thread that serves os/signal blocks most other signals.
func threadStopped(pid int, thread string) (stopped, blocks bool, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread))
	if err != nil {
		return false, false, err
	}
	// The name is in parentheses and may contain some itself. The state is the first field behind
	// it, the blocked signals are the 30th (proc_pid_stat(5)).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 30 {
		return false, false, fmt.Errorf("thread %s of process %d: no state in %q", thread, pid,
			stat)
	}
	blocked, err := strconv.ParseUint(fields[29], 10, 64)
	return fields[0] == "T", blocked&(1<<(syscall.SIGURG-1)) != 0, err
}

// gettime returns the machine code of clock_gettime(2) with the seconds added to the time of day.
func gettime(seconds int32) []byte {
	code := []byte{
		0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (clock_gettime)
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 0x07, // jne to ret
		0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
		0xc3, // ret
	}
	//nolint:gosec // the bits are meant
	binary.LittleEndian.PutUint32(code[14:], uint32(seconds))
	return code
}
