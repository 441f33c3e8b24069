package sqlite

import (
	"os"
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A log without its database holds confirmed messages. A new database would destroy it.
func TestOpen_log_without_its_database_is_refused(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	rename(t, path, path+".away")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Path: path})
	wantCode(t, err, tidemark.Unavailable, path+"-wal", "missing", "mv ")
	rename(t, path+".away", path)
	wantGapless(t, openAt(t, path), 1)
}

// A link in the place of the open file is noticed. The next server would look elsewhere for the
// log.
func TestCommit_confirms_nothing_behind_a_link(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	rename(t, path, path+".real")
	if err := os.Symlink(path+".real", path); err != nil {
		t.Fatal(err)
	}
	_, err := storage.AppendOne(t.Context(), s, draft("2", "hello"))
	wantCode(t, err, tidemark.Unavailable, path, "replaced")
	// A kill leaves the log, as this does.
	if err := os.Link(path+"-wal", path+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); err != nil {
		rename(t, path+".kept", path+"-wal")
	}
	_, err = Open(t.Context(), Config{Path: path})
	wantCode(t, err, tidemark.Unavailable, path+"-wal", "link")
	rename(t, path+".real", path)
	wantGapless(t, openAt(t, path), 1)
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
