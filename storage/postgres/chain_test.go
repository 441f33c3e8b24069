package postgres

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// later are the migrations of programs to come: names, and statements up and down.
var later = [][3]string{
	{"0002_notes", "ALTER TABLE messages ADD COLUMN note text;", "ALTER TABLE messages DROP note;"},
	{
		"0003_body", "UPDATE schema_compatible SET version = 2;" +
			"ALTER TABLE messages RENAME content TO body;",
		"ALTER TABLE messages RENAME body TO content; UPDATE schema_compatible SET version = 1;",
	},
}

// chain returns the migrations of a program that needs a version.
func chain(t *testing.T, version int) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations.Postgres, "postgres/0001_*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := migrations.Postgres.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	for _, m := range later[:version-1] {
		files["postgres/"+m[0]+".up.sql"] = &fstest.MapFile{Data: []byte(m[1])}
		files["postgres/"+m[0]+".down.sql"] = &fstest.MapFile{Data: []byte(m[2])}
	}
	return files
}

// program returns a program that needs a version, with the database of a URL.
func program(t *testing.T, url string, version int) storagetest.Program {
	t.Helper()
	files := chain(t, version)
	return storagetest.Program{
		Up:   func(ctx context.Context) error { return migrate(ctx, url, Up, files) },
		Down: func(ctx context.Context) error { return migrate(ctx, url, Down, files) },
		Status: func(ctx context.Context) (storage.Schema, error) {
			return status(ctx, url, files)
		},
	}
}

func TestChain(t *testing.T) {
	storagetest.RunChain(t, func(t *testing.T) storagetest.Chain {
		t.Helper()
		url := service.Shared(t).Database(t)
		return storagetest.Chain{
			Programs: [3]storagetest.Program{
				program(t, url, 1), program(t, url, 2), program(t, url, 3),
			},
			Open: func(ctx context.Context) (storage.Store, error) {
				return Open(ctx, Config{URL: url})
			},
		}
	})
}

// TestChain_schema_fits_while_a_migration_runs: an old program does not start while a newer one's
// migration takes something away, and starts while a migration only adds.
func TestChain_schema_fits_while_a_migration_runs(t *testing.T) {
	for _, tc := range []struct {
		name           string
		version        int
		during, behind string // the words of the refusals, "" for none
	}{
		{"that only adds", 2, "", ""},
		{"that takes something away", 3, "is under way", "run a newer program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := newDatabase(t, service.Shared(t))
			if tc.version == 3 {
				if err := program(t, url, 2).Up(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			opens := func(words string) {
				t.Helper()
				s, err := Open(t.Context(), Config{URL: url})
				if words != "" {
					wantError(t, err, tidemark.Conflict, words)
				}
				if err == nil {
					err = s.Close()
				}
				if words == "" && err != nil {
					t.Errorf("the old program: %v", err)
				}
			}
			opens("")
			reader, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close(context.Background())
			reads, err := reader.Begin(t.Context())
			if err == nil {
				_, err = reads.Exec(t.Context(), "SELECT FROM messages")
			}
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- program(t, url, tc.version).Up(t.Context()) }()
			for waits := false; !waits; {
				select {
				case err := <-ended:
					t.Fatalf("the migration did not wait for the reader: %v", err)
				case <-time.After(5 * time.Millisecond):
				}
				err := reads.QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_locks WHERE "+
					"NOT granted AND relation = 'messages'::regclass AND database = (SELECT oid "+
					"FROM pg_database WHERE datname = current_database())").Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
			}
			opens(tc.during)
			if err := reads.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			opens(tc.behind)
		})
	}
}

// TestChain_schema_fits_when_a_migration_fails: what a migration did before it failed is undone.
// Older programs continue to work. After a repair by hand, the migration may be repeated.
func TestChain_schema_fits_when_a_migration_fails(t *testing.T) {
	server := service.Shared(t)
	url := newDatabase(t, server)
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	broken := chain(t, 3)
	body := broken["postgres/0003_body.up.sql"]
	whole := body.Data
	body.Data = append(whole[:len(whole):len(whole)], "DROP TABLE there_is_none;"...)
	if err := migrate(t.Context(), url, Up, broken); err == nil ||
		!strings.Contains(err.Error(), "there_is_none") {
		t.Fatalf("got %v, want the error of the database", err)
	}
	want := storage.Schema{Version: 3, Compatible: 1, Needed: 3, Dirty: true}
	if got, err := status(t.Context(), url, broken); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	body.Data = whole
	for _, direction := range []Direction{Up, Down} {
		wantError(t, migrate(t.Context(), url, direction, broken), tidemark.Conflict,
			"a migration to version 3 failed half-way", "by hand", "restore a backup")
	}
	if err := openTest(t, url).Check(t.Context()); err != nil {
		t.Error(err)
	}
	server.Exec(t, name, "UPDATE schema_migrations SET version = 2, dirty = false")
	if err := migrate(t.Context(), url, Up, broken); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{URL: url})
	wantError(t, err, tidemark.Conflict, "run a newer program")
}
