package sqlite

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite/backup"
)

// TestOpen_restore_is_noticed: the life of the data goes on if the file is as it was left, and only
// then.
func TestOpen_restore_is_noticed(t *testing.T) {
	run := func(t *testing.T, name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	for _, tc := range []struct {
		name string
		// change does something to the closed database at path. copied is a copy of it as it was
		// before the last message, saved a directory with all files when it was closed then.
		change func(t *testing.T, path, copied, saved string)
		same   bool
	}{
		{"nothing", func(*testing.T, string, string, string) {}, true},
		{"it is read", func(t *testing.T, path, _, _ string) {
			if _, err := os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			if _, err := backup.Write(path, path+".again"); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a backup is copied over it", func(t *testing.T, path, copied, _ string) {
			run(t, "cp", copied, path)
		}, false},
		{"a backup is copied over it with its times", func(t *testing.T, path, copied, _ string) {
			run(t, "cp", "-p", copied, path)
		}, false},
		{"a backup is renamed over it", func(t *testing.T, path, copied, _ string) {
			run(t, "mv", copied, path)
		}, false},
		{"all files of before are copied over it", func(t *testing.T, path, _, saved string) {
			run(t, "cp", "-a", saved+"/.", filepath.Dir(path))
		}, false},
		{"the lock file is gone", func(t *testing.T, path, _, _ string) {
			run(t, "rm", path+"-lock")
		}, false},
		{"a crash", func(t *testing.T, path, _, _ string) {
			noted, err := os.ReadFile(path + "-lock")
			if err != nil {
				t.Fatal(err)
			}
			line := bytes.IndexByte(noted, '\n') + 1
			if err := os.Truncate(path+"-lock", int64(line)); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a log that is to be copied into it", func(t *testing.T, path, _, _ string) {
			if err := os.WriteFile(path+"-wal", []byte("a log"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// Not parallel: while a command starts, it has the lock of each open database.
			s, path := openNew(t)
			first := s.Incarnation()
			send(t, s, "one")
			closeStore(t, s)
			saved, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy.db")
			run(t, "cp", "-a", filepath.Dir(path)+"/.", saved)
			if _, err := backup.Write(path, copied); err != nil {
				t.Fatal(err)
			}
			s = openTest(t, path)
			if s.Incarnation() != first {
				t.Errorf("the first Open again: the incarnation is %s, want %s", s.Incarnation(),
					first)
			}
			send(t, s, "two")
			closeStore(t, s)
			tc.change(t, path, copied, saved)
			s = openTest(t, path)
			if got := s.Incarnation() == first; got != tc.same {
				t.Errorf("the incarnation is the same: %v, want %v", got, tc.same)
			}
			numbers := map[tidemark.Incarnation]bool{}
			for i, life := range s.lives {
				if numbers[life.ID] || life.Number != int64(i+1) {
					t.Errorf("the lives are %+v", s.lives)
				}
				numbers[life.ID] = true
			}
		})
	}
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
