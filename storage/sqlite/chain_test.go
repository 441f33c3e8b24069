package sqlite

import (
	"context"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// later are the migrations of programs to come.
var later = [][2]string{
	{"0002_notes", "ALTER TABLE messages ADD COLUMN note TEXT;"},
	{"0003_body", "ALTER TABLE messages RENAME COLUMN content TO body;" +
		"UPDATE schema_compatible SET version = 2;"},
}

var laterDown = []string{
	"ALTER TABLE messages DROP COLUMN note;",
	"ALTER TABLE messages RENAME COLUMN body TO content;" +
		"UPDATE schema_compatible SET version = 1;",
}

// chain returns the migrations of a program that needs a version.
func chain(t *testing.T, version int) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations.SQLite, "sqlite/0001_*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := migrations.SQLite.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	for i, m := range later[:version-1] {
		files["sqlite/"+m[0]+".up.sql"] = &fstest.MapFile{Data: []byte(m[1])}
		files["sqlite/"+m[0]+".down.sql"] = &fstest.MapFile{Data: []byte(laterDown[i])}
	}
	return files
}

// program returns a program that needs a version, with the store at path.
func program(t *testing.T, path string, version int) storagetest.Program {
	t.Helper()
	files := chain(t, version)
	return storagetest.Program{
		Up:     func(context.Context) error { return migrate(path, Up, files) },
		Down:   func(context.Context) error { return migrate(path, Down, files) },
		Status: func(context.Context) (storage.Schema, error) { return status(path, files) },
	}
}

func TestChain(t *testing.T) {
	storagetest.RunChain(t, func(t *testing.T) storagetest.Chain {
		t.Helper()
		path := filepath.Join(t.TempDir(), "tidemark.db")
		return storagetest.Chain{
			Programs: [3]storagetest.Program{
				program(t, path, 1), program(t, path, 2), program(t, path, 3),
			},
			Open: func(ctx context.Context) (storage.Store, error) {
				return Open(ctx, Config{Path: path})
			},
		}
	})
}

// TestChain_schema_fits_when_a_migration_fails: what a migration did before it failed is undone.
// Older programs continue to work. After a repair by hand, the migration may be repeated.
func TestChain_schema_fits_when_a_migration_fails(t *testing.T) {
	s, path := openNew(t)
	send(t, s, "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	broken := chain(t, 3)
	body := broken["sqlite/0003_body.up.sql"]
	whole := body.Data
	body.Data = append(whole[:len(whole):len(whole)], "DROP TABLE there_is_none;"...)
	wantCode(t, migrate(path, Up, broken), tidemark.Unavailable, "the migration of "+path)

	want := storage.Schema{Version: 3, Compatible: 1, Needed: 3, Dirty: true}
	if got, err := status(path, broken); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	body.Data = whole
	for _, direction := range []Direction{Up, Down} {
		wantCode(t, migrate(path, direction, broken), tidemark.Conflict,
			"a migration to version 3 failed half-way", "by hand", "restore a backup")
	}
	s = openTest(t, path)
	send(t, s, "2")
	wantGapless(t, s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := open(path, false)
	if err == nil {
		err = c.exec("UPDATE schema_migrations SET version = 2, dirty = 0")
		c.close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(path, Up, broken); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Config{Path: path})
	wantCode(t, err, tidemark.Conflict, "run a newer program")
}

// TestOpen_schema_fits_older: a newer program brings an older database up to date when it opens it,
// and an older program leaves a newer one alone.
func TestOpen_schema_fits_older(t *testing.T) {
	_, path := openNew(t)
	path += ".copy"
	for _, step := range []struct{ program, version int }{{1, 1}, {2, 2}, {1, 2}, {3, 3}} {
		if err := ensure(path, chain(t, step.program)); err != nil {
			t.Fatal(err)
		}
		if got, err := Status(path); err != nil || got.Version != uint(step.version) {
			t.Errorf("program %d: got %+v, %v, want version %d", step.program, got, err,
				step.version)
		}
	}
	wantCode(t, ensure(path, chain(t, 1)), tidemark.Conflict, "run a newer program")
}
