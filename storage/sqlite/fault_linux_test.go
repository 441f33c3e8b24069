package sqlite

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// replaceLog replaces the open write-ahead log by a device, without SQLite's knowledge. restore
// undoes it.
func replaceLog(t *testing.T, path, device string) (restore func()) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	// First find all, then copy: a copy may get the number of a descriptor that was listed and then
	// closed.
	var logs []int
	for _, entry := range entries {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || target != path+"-wal" {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, fd)
	}
	saved := map[int]int{}
	for _, fd := range logs {
		if saved[fd], err = syscall.Dup(fd); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Dup3(int(f.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
	if len(saved) == 0 {
		t.Fatal("no descriptor of the log was found: the fault cannot be injected")
	}
	return func() {
		for fd, original := range saved {
			if err := syscall.Dup3(original, fd, syscall.O_CLOEXEC); err != nil {
				t.Error(err)
			}
			if err := syscall.Close(original); err != nil {
				t.Error(err)
			}
		}
	}
}

// /dev/null accepts every write, but its fsync fails.
func TestCommit_failed_fsync_ends_the_store(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	restore := replaceLog(t, path, "/dev/null")
	_, err := storage.AppendOne(t.Context(), s, draft("2", "hello"))
	wantCode(t, err, tidemark.Unavailable, "disk")
	restore()
	select {
	case <-s.Failed():
	default:
		t.Fatal("Failed is not closed after a failed fsync")
	}
	_, err = storage.AppendOne(t.Context(), s, draft("3", "hello"))
	wantCode(t, err, tidemark.Unavailable, "start the server again")
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "start the server again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := openTest(t, path)
	send(t, again, "2")
	wantGapless(t, again, 2)
}
