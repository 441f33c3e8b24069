package postgres

import (
	"context"
	"fmt"
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

// newest is the number of this program's newest migration.
const newest = 12

// later are the migrations of programs to come, up and down.
var later = [2][2]string{
	{"ALTER TABLE messages ADD COLUMN note text;", "ALTER TABLE messages DROP note;"},
	{
		fmt.Sprintf("UPDATE schema_compatible SET version = %d;", newest+1) +
			"ALTER TABLE messages RENAME content TO body;",
		"ALTER TABLE messages RENAME body TO content; UPDATE schema_compatible SET version = 1;",
	},
}

// laterFile returns the name of a migration of later.
func laterFile(i int, direction Direction) string {
	return fmt.Sprintf("postgres/%04d_later.%s.sql", newest+1+i, direction)
}

// chain returns the migrations of a program of storagetest.Chain: 1, 2 or 3.
func chain(t *testing.T, program int) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations.Postgres, "postgres/*")
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
	for i, m := range later[:program-1] {
		files[laterFile(i, Up)] = &fstest.MapFile{Data: []byte(m[0])}
		files[laterFile(i, Down)] = &fstest.MapFile{Data: []byte(m[1])}
	}
	return files
}

// program returns a program of storagetest.Chain, with the database of a URL.
func program(t *testing.T, url string, number int) storagetest.Program {
	t.Helper()
	files := chain(t, number)
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
			Newest: newest,
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
		program        int
		during, behind string // the words of the refusals, "" for none
	}{
		{"that only adds", 2, "", ""},
		{"that takes something away", 3, "is under way", "run a newer program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := newDatabase(t, service.Shared(t))
			if tc.program == 3 {
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
			go func() { ended <- program(t, url, tc.program).Up(t.Context()) }()
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
	body := broken[laterFile(1, Up)]
	whole := body.Data
	body.Data = append(whole[:len(whole):len(whole)], "DROP TABLE there_is_none;"...)
	if err := migrate(t.Context(), url, Up, broken); err == nil ||
		!strings.Contains(err.Error(), "there_is_none") {
		t.Fatalf("got %v, want the error of the database", err)
	}
	want := storage.Schema{Version: newest + 2, Compatible: 1, Needed: newest + 2, Dirty: true}
	if got, err := status(t.Context(), url, broken); err != nil || got != want {
		t.Fatalf("got %+v, %v, want %+v", got, err, want)
	}
	body.Data = whole
	for _, direction := range []Direction{Up, Down} {
		wantError(t, migrate(t.Context(), url, direction, broken), tidemark.Conflict,
			fmt.Sprintf("a migration to version %d failed half-way", newest+2), "by hand",
			"restore a backup")
	}
	if err := openTest(t, url).Check(t.Context()); err != nil {
		t.Error(err)
	}
	server.Exec(t, name, fmt.Sprintf("UPDATE schema_migrations SET version = %d, dirty = false",
		newest+1))
	if err := migrate(t.Context(), url, Up, broken); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{URL: url})
	wantError(t, err, tidemark.Conflict, "run a newer program")
}
