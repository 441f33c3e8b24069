package sqlite

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/tidemark-im/tidemark"
)

// replaceLog puts a device in the place of the open write-ahead log, under SQLite's feet, and returns how to undo it.
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
	saved := map[int]int{}
	for _, entry := range entries {
		var fd int
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || !strings.HasSuffix(target, path+"-wal") {
			continue
		}
		if _, err := fmt.Sscan(entry.Name(), &fd); err != nil {
			t.Fatal(err)
		}
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

// /dev/null takes every write, and has no fsync.
func TestCommit_failed_fsync_ends_the_store(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	restore := replaceLog(t, path, "/dev/null")
	_, err := s.Append(t.Context(), draft("2", "hello"))
	wantCode(t, err, tidemark.Unavailable, "disk")
	restore()
	select {
	case <-s.Failed():
	default:
		t.Fatal("Failed is not closed after a failed fsync")
	}
	_, err = s.Append(t.Context(), draft("3", "hello"))
	wantCode(t, err, tidemark.Unavailable, "started again")
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "started again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := openTest(t, path)
	send(t, again, "2")
	wantGapless(t, again, 2)
}

// /dev/full answers every write with ENOSPC.
func TestCommit_full_disk_is_Unavailable_and_recovers(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	restore := replaceLog(t, path, "/dev/full")
	_, err := s.Append(t.Context(), draft("2", "hello"))
	wantCode(t, err, tidemark.Unavailable, "full")
	wantCode(t, s.Check(t.Context()), tidemark.Unavailable, "full")
	restore()
	select {
	case <-s.Failed():
		t.Fatal("a full disk has ended the store")
	default:
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check with space again: %v", err)
	}
	if got := send(t, s, "2"); got != 2 {
		t.Errorf("the first send after the disk was full has sequence %d, want 2", got)
	}
	wantGapless(t, s, 2)
}
