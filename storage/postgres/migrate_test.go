package postgres

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestMigrate_many_at_once_find_it_done: if several migrations run at once, one does the work.
func TestMigrate_many_at_once_find_it_done(t *testing.T) {
	url := service.Shared(t).Database(t)
	errs := make([]error, 6)
	var together sync.WaitGroup
	for i := range errs {
		together.Go(func() { errs[i] = Migrate(t.Context(), url, Up) })
	}
	together.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	openTest(t, url)
}

// TestMigrate_waits_for_one_under_way: a migration of another process looks as if it had failed
// half-way. The wait is longer than the role's timeouts, which are meant for serving.
func TestMigrate_waits_for_one_under_way(t *testing.T) {
	url := service.Shared(t).Database(t)
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatal(err)
	}
	other, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	lock, err := database.GenerateAdvisoryLockId(other.Config().Database, "public",
		"schema_migrations")
	if err != nil {
		t.Fatal(err)
	}
	do := func(statement string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	for _, limit := range []string{"lock_timeout", "statement_timeout"} {
		do("ALTER DATABASE " + other.Config().Database + " SET " + limit + " = '100ms'")
	}
	do("SELECT pg_advisory_lock(" + lock + ")")
	do("UPDATE schema_migrations SET dirty = true")
	ended := make(chan error, 1)
	go func() { ended <- Migrate(t.Context(), url, Up) }()
	for waits := false; !waits; {
		select {
		case err := <-ended:
			t.Fatalf("Migrate ended with %v while another one was under way", err)
		case <-time.After(5 * time.Millisecond):
		}
		err := other.QueryRow(t.Context(),
			"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND "+
				"database = (SELECT oid FROM pg_database WHERE datname = "+
				"current_database())").Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	do("SELECT pg_sleep(0.3)")
	do("UPDATE schema_migrations SET dirty = false")
	do("SELECT pg_advisory_unlock(" + lock + ")")
	if err := <-ended; err != nil {
		t.Errorf("Migrate: %v", err)
	}
}

func TestMigrate_refuses_what_needs_a_person(t *testing.T) {
	for _, tc := range []struct {
		name, damage, parameters string
		migrate, open            tidemark.Code
		words                    string
	}{
		{
			"half-way",
			"UPDATE schema_migrations SET dirty = true", "", tidemark.Conflict, tidemark.Conflict,
			"half-way",
		},
		{
			"newer",
			"UPDATE schema_migrations SET version = 999; " +
				"UPDATE schema_compatible SET version = 999", "", tidemark.Conflict,
			tidemark.Conflict, "run a newer program",
		},
		{
			"through a pooler",
			"SELECT 1", "&pgbouncer=true", tidemark.Invalid, "",
			"the address of the database itself",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := service.Shared(t).Database(t)
			if err := Migrate(t.Context(), url, Up); err != nil {
				t.Fatal(err)
			}
			conn, err := pgx.Connect(t.Context(), url)
			if err == nil {
				_, err = conn.Exec(t.Context(), tc.damage)
				err = errors.Join(err, conn.Close(t.Context()))
			}
			if err != nil {
				t.Fatal(err)
			}
			err = Migrate(t.Context(), url+tc.parameters, Up)
			if tidemark.CodeOf(err) != tc.migrate || !strings.Contains(err.Error(), tc.words) {
				t.Errorf("Migrate: %v, want %s and %q", err, tc.migrate, tc.words)
			}
			s, err := Open(t.Context(), Config{URL: url + tc.parameters})
			if err == nil {
				err = s.Close()
			}
			if (err != nil) != (tc.open != "") || err != nil && tidemark.CodeOf(err) != tc.open {
				t.Errorf("Open: %v, want %q", err, tc.open)
			}
		})
	}
}

// TestMigrate_a_role_that_may_not gets the words of the database, and what to do.
func TestMigrate_a_role_that_may_not(t *testing.T) {
	server := service.Shared(t)
	at := server.Database(t)
	server.Exec(t, "postgres", "CREATE ROLE reader LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { server.Exec(t, "postgres", "DROP ROLE reader") })
	_, address, _ := strings.Cut(at, "@")
	for _, direction := range []Direction{Up, "sideways"} {
		err := Migrate(t.Context(), "postgres://reader:secret@"+address, direction)
		if direction == Up {
			wantError(t, err, tidemark.Unavailable, "permission denied for schema public",
				"migrate as the role that owns the database")
		} else {
			wantError(t, err, tidemark.Invalid, "sideways")
		}
	}
}
