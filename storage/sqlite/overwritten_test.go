package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// If a backup is copied into the open database file, nothing more is confirmed. Neither the end of
// the server nor the next start puts the log into the backup.
func TestCommit_confirms_nothing_in_a_file_that_was_overwritten(t *testing.T) {
	for n := range 4 {
		restarted, reopened := n&1 > 0, n&2 > 0
		t.Run(fmt.Sprint("log restarted ", restarted, ", reopened ", reopened), func(t *testing.T) {
			s, path := openNew(t)
			send(t, s, "1")
			backup := path + ".backup"
			c, err := open(path, true)
			if err == nil {
				err = c.exec("VACUUM INTO '" + backup + "'")
				c.close()
			}
			if err != nil {
				t.Fatal(err)
			}
			if reopened {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = openAt(t, path)
			}
			send(t, s, "2")
			if restarted {
				checkpointed(t, s)
				send(t, s, "3") // it begins the log anew
			}
			copyInto(t, backup, path)
			for range 3 {
				_, err := storage.AppendOne(t.Context(), s, draft("4", "hello"))
				wantCode(t, err, tidemark.Unavailable, path, "written into", "mv ")
			}
			wantCode(t, s.Check(t.Context()), tidemark.Unavailable, path, "written into")
			// After a kill, the next start would find this note.
			if note, _ := os.ReadFile(path + "-lock"); !bytes.HasPrefix(note, []byte(spoiled)) {
				t.Errorf("the lock file says %q", note)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			_, err = Open(t.Context(), Config{Path: path})
			wantCode(t, err, tidemark.Unavailable, path, "mv ")
			if err := os.Rename(path+"-wal", path+"-wal.old"); err != nil {
				t.Fatal(err)
			}
			after := openAt(t, path)
			wantGapless(t, after, 1)
			if n := send(t, after, "2"); n != 2 {
				t.Errorf("in the backup, the message got sequence %d, want 2", n)
			}
		})
	}
}

// Checkpoints of other programs are no reason to refuse writes, whatever their mode.
func TestCommit_goes_on_after_a_checkpoint_of_another_program(t *testing.T) {
	s, path := openNew(t)
	for i, mode := range []string{"PASSIVE", "FULL", "RESTART", "TRUNCATE"} {
		send(t, s, fmt.Sprint(2*i+1))
		other, err := open(path, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.pragma("PRAGMA wal_checkpoint(" + mode + ")"); err != nil {
			t.Fatal(err)
		}
		other.close()
		send(t, s, fmt.Sprint(2*i+2))
	}
	wantGapless(t, s, 8)
}

// If only the file's time was changed, nothing is lost: the message says how to start the server.
func TestCommit_of_a_file_that_was_touched(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	if err := os.Chtimes(path, time.Now(), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := storage.AppendOne(t.Context(), s, draft("2", "hello"))
	wantCode(t, err, tidemark.Unavailable, "as before", path+"-lock")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + "-lock"); err != nil {
		t.Fatal(err)
	}
	after := openAt(t, path)
	wantGapless(t, after, 1)
	send(t, after, "2")
}

// checkpointed copies the whole log into the database file.
func checkpointed(t *testing.T, s *Store) {
	t.Helper()
	err := s.change(t.Context(), func(w *writer) error {
		w.checkpointAt, w.checkpointEvery = 0, 0
		return w.c.exec("PRAGMA user_version = 0")
	})
	if err != nil {
		t.Fatal(err)
	}
	// The checkpoint runs after the answer, and before the next commit.
	err = s.change(t.Context(), func(w *writer) error {
		w.checkpointAt, w.checkpointEvery = checkpointFrames, checkpointFrames
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copyInto writes a file into another one, as cp does.
func copyInto(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func openAt(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
