package sqlite

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestErase_erased_nowhere_in_all_tables: when the log is copied, no byte of the file has anything
// of the user.
func TestErase_erased_nowhere_in_all_tables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := openTest(t, path)
	storagetest.Erased(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(path + "*")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(text, []byte(storagetest.Canary)); i >= 0 {
			t.Errorf("%s has %q", file, text[max(0, i-80):min(len(text), i+80)])
		}
	}
}
