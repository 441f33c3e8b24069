package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/sqlite"
)

// TestCopy_copy_equal_by_the_command copies a database, and compares it. Then the copy changes, and
// the comparison fails.
func TestCopy_copy_equal_by_the_command(t *testing.T) {
	dir := t.TempDir()
	from, to := "sqlite:"+filepath.Join(dir, "a.db"), "sqlite:"+filepath.Join(dir, "b.db")
	code, _, stderr := invoke(t, nil, "copy", "--from", from, "--to", to)
	if code != exitFailure || !strings.Contains(stderr, "--from: ") ||
		!strings.Contains(stderr, "there is no database") {
		t.Errorf("from a database that does not exist: exit %d, %s", code, stderr)
	}
	file := write(t, "export.jsonl", versionLine+chatLines("a", "hello")+chatLines("b", "hi"))
	code, _, stderr = invoke(t, nil, "import", "--from", "jsonl", "--store", from, file)
	if code != exitOK {
		t.Fatal(stderr)
	}
	code, out, stderr := invoke(t, nil, "copy", "--from", from, "--to", to)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	decoder := json.NewDecoder(strings.NewReader(out))
	for _, what := range []string{"copied", "compared"} {
		var report map[string]copied
		if err := decoder.Decode(&report); err != nil {
			t.Fatal(err)
		}
		if r := report[what]; r.Chats != 2 || r.Messages != 2 || !r.Complete || r.Different != 0 {
			t.Errorf("%s: %+v", what, report)
		}
	}
	variables := map[string]string{"TIDEMARK_COPY_FROM": from, "TIDEMARK_COPY_TO": to}
	if code, _, stderr = invoke(t, variables, "copy", "--verify"); code != exitOK {
		t.Errorf("verify: exit %d, %s", code, stderr)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "b.db")})
	if err != nil {
		t.Fatal(err)
	}
	name := "another"
	if _, err := s.UpdateChat(t.Context(), "a", storage.ChatChange{Name: &name}); err != nil {
		t.Error(err)
	}
	code, _, stderr = invoke(t, nil, "copy", "--from", from, "--to", to)
	if code != exitFailure || !strings.Contains(stderr, "--to: ") ||
		!strings.Contains(stderr, "is in use by another server") {
		t.Errorf("while the target is in use: exit %d, %s", code, stderr)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	code, _, stderr = invoke(t, nil, "copy", "--from", from, "--to", to)
	if code != exitFailure || !strings.Contains(stderr, "the stores differ in 1 places") {
		t.Errorf("after a change: exit %d, %s", code, stderr)
	}
}
