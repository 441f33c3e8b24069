package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/internal/versions"
)

func TestOpen_second_one_is_refused(t *testing.T) {
	s, path := openNew(t)
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link} {
		_, err := Open(t.Context(), Config{Path: name})
		wantCode(t, err, tidemark.Conflict, "in use")
		wantCode(t, Migrate(name, Up), tidemark.Conflict, "in use")
	}
	send(t, s, "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantGapless(t, openTest(t, path), 1)
}

func TestOpen_any_path(t *testing.T) {
	for _, name := range []string{
		"with space.db", "what?.db", "a#b.db", "100%25 %zz.db", "?mode=memory", "file:x",
		":memory:", "ä'\"&;.db", "plain",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			s := openTest(t, path)
			if err := s.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("the database is not where it should be: %v", err)
			}
			if _, err := Status(path); err != nil {
				t.Errorf("Status: %v", err)
			}
		})
	}
}

func TestOpen_errors_say_what_to_do(t *testing.T) {
	directory := t.TempDir()
	text := filepath.Join(directory, "text")
	letter := []byte("This is a letter and not a database. It is shorter than a page.\n")
	if err := os.WriteFile(text, letter, 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(directory, "newer.db")
	if err := Migrate(newer, Up); err != nil {
		t.Fatal(err)
	}
	c, err := open(newer, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"UPDATE schema_migrations SET version = 999", "UPDATE schema_compatible SET version = 998",
	} {
		if err := c.exec(text); err != nil {
			t.Fatal(err)
		}
	}
	c.close()
	for _, test := range []struct {
		path  string
		code  tidemark.Code
		words []string
	}{
		{"", tidemark.Invalid, []string{"empty"}},
		{
			filepath.Join(directory, "missing", "x.db"), tidemark.Unavailable,
			[]string{"missing", "create it"},
		},
		{filepath.Join(text, "x.db"), tidemark.Unavailable, []string{"not a directory"}},
		{text, tidemark.Unavailable, []string{text}},
		{newer, tidemark.Conflict, []string{"999", "998", "newer program"}},
	} {
		_, err := Open(t.Context(), Config{Path: test.path})
		wantCode(t, err, test.code, test.words...)
	}
	// A failed Open leaves no lock.
	err = Migrate(newer, Up)
	if tidemark.CodeOf(err) != tidemark.Conflict || tidemark.DetailOf(err) == "" {
		t.Errorf("Migrate of a newer schema: %v", err)
	}
}

// TestOpen_schema_fits_damaged: a schema that lost what it says of itself is refused and not
// changed.
func TestOpen_schema_fits_damaged(t *testing.T) {
	for _, tc := range []struct{ damage, words string }{
		{"DROP TABLE schema_compatible", "does not say which programs may use it"},
		{"DELETE FROM schema_compatible", "does not say which programs may use it"},
		{"UPDATE schema_compatible SET version = -1", "does not say which programs may use it"},
		{"DELETE FROM schema_migrations", "tables and no version"},
		{"UPDATE schema_migrations SET version = 'one'", "tables and no version"},
		{"DROP TABLE schema_migrations", "tables and no version"},
	} {
		t.Run(tc.damage, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			if err := Migrate(path, Up); err != nil {
				t.Fatal(err)
			}
			c, err := open(path, false)
			if err == nil {
				err = c.exec(tc.damage)
				c.close()
			}
			if err != nil {
				t.Fatal(err)
			}
			_, err = Status(path)
			wantCode(t, err, tidemark.Conflict, tc.words, "restore a backup")
			for _, direction := range []Direction{Up, Down} {
				wantCode(t, Migrate(path, direction), tidemark.Conflict, tc.words)
			}
			_, err = Open(t.Context(), Config{Path: path})
			wantCode(t, err, tidemark.Conflict, tc.words)
		})
	}
}

func TestOpen_context_that_has_ended(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ctx, Config{Path: filepath.Join(t.TempDir(), "x.db")})
	wantCode(t, err, tidemark.Unavailable)
}

func TestMigrate_up_and_down(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	_, err := Status(path)
	wantCode(t, err, tidemark.NotFound, path)
	needed, err := versions.Newest(migrations.SQLite, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	version := func(want uint) {
		t.Helper()
		got, err := Status(path)
		if err != nil {
			t.Fatal(err)
		}
		wanted := storage.Schema{Version: want, Compatible: min(want, 1), Needed: needed}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("schema (-want +got):\n%s", diff)
		}
	}
	for range 2 {
		for range 2 {
			if err := Migrate(path, Up); err != nil {
				t.Fatal(err)
			}
			version(needed)
		}
		for n := range needed {
			if err := Migrate(path, Down); err != nil {
				t.Fatal(err)
			}
			version(needed - 1 - n)
		}
		wantCode(t, Migrate(path, Down), tidemark.Invalid, "no schema")
	}
	wantCode(t, Migrate(path, "sideways"), tidemark.Invalid, "sideways")
	s := openTest(t, path)
	version(needed)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Each name of a file has its own lock, so a file with two names is refused.
func TestOpen_file_with_two_names_is_a_Conflict(t *testing.T) {
	path := faultTemplate(t)
	if err := os.Link(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".link"} {
		_, err := Open(t.Context(), Config{Path: name})
		wantCode(t, err, tidemark.Conflict, name, "2 names")
	}
	if err := os.Remove(path + ".link"); err != nil {
		t.Fatal(err)
	}
	wantGapless(t, openTest(t, path), 3)
}

// A process was killed, so its log stays. Then somebody puts a backup in the place of the database
// and forgets the log, which would be put into the backup.
func TestOpen_log_of_another_file_is_refused(t *testing.T) {
	backup := faultTemplate(t)
	s, path := openNew(t)
	send(t, s, "1")
	// A link keeps the log that Close deletes.
	if err := os.Link(path+"-wal", path+".kept"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, names := range [][2]string{
		{path + ".kept", path + "-wal"}, {path, path + ".away"}, {backup, path},
	} {
		if err := os.Rename(names[0], names[1]); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(t.Context(), Config{Path: path})
	wantCode(t, err, tidemark.Unavailable, path+"-wal", "another file", "mv ")

	// Files that were copied together have other identities, and belong together.
	to := filepath.Join(t.TempDir(), "copy.db")
	for _, suffix := range []string{"-wal", "-lock"} {
		duplicate(t, path+suffix, to+suffix)
	}
	duplicate(t, path+".away", to)
	wantGapless(t, openTest(t, to), 1)

	if err := os.Rename(path+"-wal", path+"-wal.old"); err != nil {
		t.Fatal(err)
	}
	wantGapless(t, openTest(t, path), 3)
}

func duplicate(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
