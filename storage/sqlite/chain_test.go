package sqlite

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// newest is the number of this program's newest migration.
const newest = 9

// later are the migrations of programs to come, up and down.
var later = [2][2]string{
	{
		"ALTER TABLE messages ADD COLUMN note TEXT;",
		"ALTER TABLE messages DROP COLUMN note;",
	},
	{
		"ALTER TABLE messages RENAME COLUMN content TO body;" +
			fmt.Sprintf("UPDATE schema_compatible SET version = %d;", newest+1),
		"ALTER TABLE messages RENAME COLUMN body TO content;" +
			"UPDATE schema_compatible SET version = 1;",
	},
}

// laterFile returns the name of a migration of later.
func laterFile(i int, direction Direction) string {
	return fmt.Sprintf("sqlite/%04d_later.%s.sql", newest+1+i, direction)
}

// chain returns the migrations of a program of storagetest.Chain: 1, 2 or 3.
func chain(t *testing.T, program int) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations.SQLite, "sqlite/*")
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
	for i, m := range later[:program-1] {
		files[laterFile(i, Up)] = &fstest.MapFile{Data: []byte(m[0])}
		files[laterFile(i, Down)] = &fstest.MapFile{Data: []byte(m[1])}
	}
	return files
}

// program returns a program of storagetest.Chain, with the store at path.
func program(t *testing.T, path string, number int) storagetest.Program {
	t.Helper()
	files := chain(t, number)
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
			Newest: newest,
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
	body := broken[laterFile(1, Up)]
	whole := body.Data
	body.Data = append(whole[:len(whole):len(whole)], "DROP TABLE there_is_none;"...)
	wantCode(t, migrate(path, Up, broken), tidemark.Unavailable, "the migration of "+path)

	want := storage.Schema{Version: newest + 2, Compatible: 1, Needed: newest + 2, Dirty: true}
	if got, err := status(path, broken); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	body.Data = whole
	for _, direction := range []Direction{Up, Down} {
		wantCode(t, migrate(path, direction, broken), tidemark.Conflict,
			fmt.Sprintf("a migration to version %d failed half-way", newest+2), "by hand",
			"restore a backup")
	}
	s = openTest(t, path)
	send(t, s, "2")
	wantGapless(t, s, 2)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := open(path, false)
	if err == nil {
		err = c.exec(fmt.Sprintf("UPDATE schema_migrations SET version = %d, dirty = 0", newest+1))
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
	for _, step := range []struct{ program, added int }{{1, 0}, {2, 1}, {1, 1}, {3, 2}} {
		if err := ensure(path, chain(t, step.program)); err != nil {
			t.Fatal(err)
		}
		want := uint(newest + step.added)
		if got, err := Status(path); err != nil || got.Version != want {
			t.Errorf("program %d: got %+v, %v, want version %d", step.program, got, err, want)
		}
	}
	wantCode(t, ensure(path, chain(t, 1)), tidemark.Conflict, "run a newer program")
}
