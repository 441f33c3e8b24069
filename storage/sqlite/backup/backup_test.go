package backup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/sqlite"
	"github.com/tidemark-im/tidemark/storage/sqlite/backup"
)

func TestWrite_refuses(t *testing.T) {
	dir := t.TempDir()
	database := filepath.Join(dir, "a.db")
	if err := sqlite.Migrate(database, sqlite.Up); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken")
	text := filepath.Join(dir, "text")
	letter := []byte("This is a letter and no database. It is longer than the header of a " +
		"database, which has a hundred bytes.")
	for _, name := range []string{taken, text} {
		if err := os.WriteFile(name, letter, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := names(t, dir)
	for _, tc := range []struct {
		name, from, to string
		want           tidemark.Code
	}{
		{
			"no database",
			filepath.Join(dir, "b.db"), filepath.Join(dir, "backup"), tidemark.NotFound,
		},
		{"another file's place", database, taken, tidemark.Conflict},
		{"the database's own place", database, database, tidemark.Conflict},
		{"no directory", database, filepath.Join(dir, "missing", "backup"), tidemark.Unavailable},
		{"no database but a letter", text, filepath.Join(dir, "backup"), tidemark.Unavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := backup.Write(tc.from, tc.to)
			if got := tidemark.CodeOf(err); got != tc.want {
				t.Errorf("code %q, want %q: %v", got, tc.want, err)
			}
		})
	}
	if diff := cmp.Diff(before, names(t, dir)); diff != "" {
		t.Errorf("files after the refusals (-want +got):\n%s", diff)
	}
}

func TestWrite_any_path(t *testing.T) {
	for _, name := range []string{"with space", "what?", "it's", "a#b", "100%25", "file:x", "ä"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			database, to := filepath.Join(dir, name+".db"), filepath.Join(dir, name+".backup")
			if err := sqlite.Migrate(database, sqlite.Up); err != nil {
				t.Fatal(err)
			}
			n, err := backup.Write(database, to)
			if err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(to)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() != n || info.Mode() != 0o600 {
				t.Errorf("size %d, mode %v, want %d, -rw-------", info.Size(), info.Mode(), n)
			}
			if _, err := sqlite.Status(to); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWrite_broken_database_gives_no_backup(t *testing.T) {
	dir := t.TempDir()
	database := filepath.Join(dir, "a.db")
	if err := sqlite.Migrate(database, sqlite.Up); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	// All pages except the first, which has the schema, are overwritten.
	for i := 4096; i < len(raw); i++ {
		raw[i] = 0xee
	}
	if err := os.WriteFile(database, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "backup")
	if _, err := backup.Write(database, to); tidemark.CodeOf(err) != tidemark.Unavailable {
		t.Errorf("a backup of a broken database: %v, want Unavailable", err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("there is a backup")
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
