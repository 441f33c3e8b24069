package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// secret is a password that no error may repeat.
const secret = "s3cret-of-the-role"

// TestOpen_refuses: each refusal says what to do, and never the password.
func TestOpen_refuses(t *testing.T) {
	server := service.Start(t)
	base := func(t *testing.T) string {
		t.Helper()
		return strings.TrimSuffix(newDatabase(t, server), "?sslmode=disable")
	}
	database := func(url string) string { return url[strings.LastIndex(url, "/")+1:] }
	role := func(t *testing.T, url string) string {
		t.Helper()
		_, address, _ := strings.Cut(url, "@")
		return "postgres://guest:" + secret + "@" + address
	}
	damaged := fmt.Sprint("version ", newest)
	clean := base(t)
	server.Exec(t, "postgres", "CREATE ROLE guest LOGIN PASSWORD '"+secret+"'")
	for _, tc := range []struct {
		name  string
		url   func(t *testing.T) string
		code  tidemark.Code
		words []string
	}{
		{"no schema", func(t *testing.T) string {
			t.Helper()
			return strings.TrimSuffix(server.Database(t), "?sslmode=disable")
		}, tidemark.Conflict, []string{"version 0", "this program needs", "tidemark migrate up",
			"--migrate"}},
		{"an older schema", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, database(url), "UPDATE schema_migrations SET version = 0")
			return url
		}, tidemark.Conflict, []string{"version 0", "tidemark migrate up"}},
		{"a newer schema", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, database(url), "UPDATE schema_migrations SET version = 999; "+
				"UPDATE schema_compatible SET version = 998")
			return url
		}, tidemark.Conflict, []string{"version 999", "run a newer program"}},
		{"a lost table of compatible programs", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, database(url), "DROP TABLE schema_compatible")
			return url
		}, tidemark.Conflict, []string{damaged, "does not say which programs", "restore"}},
		{"a lost row of compatible programs", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, database(url), "DELETE FROM schema_compatible")
			return url
		}, tidemark.Conflict, []string{damaged, "does not say which programs", "restore"}},
		{"a migration that failed", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, database(url), "UPDATE schema_migrations SET dirty = true")
			return url
		}, tidemark.Conflict, []string{"half-way", "by hand"}},
		{"synchronous_commit off", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, "postgres",
				"ALTER DATABASE "+database(url)+" SET synchronous_commit = off")
			return url
		}, tidemark.Conflict, []string{"synchronous_commit is off", "could be lost"}},
		{
			"synchronous_commit off in the URL",
			func(t *testing.T) string { t.Helper(); return clean + "?synchronous_commit=off" },
			tidemark.Conflict, []string{"synchronous_commit is off"},
		},
		{"read-only", func(t *testing.T) string {
			t.Helper()
			url := base(t)
			server.Exec(t, "postgres",
				"ALTER DATABASE "+database(url)+" SET default_transaction_read_only = on")
			return url
		}, tidemark.Unavailable, []string{"read-only", "standby"}},
		{"another password", func(t *testing.T) string {
			t.Helper()
			return strings.Replace(role(t, clean), secret, secret+"x", 1)
		}, tidemark.Unavailable, []string{"password authentication failed", "guest"}},
		{"no such role", func(t *testing.T) string {
			t.Helper()
			return strings.Replace(role(t, clean), "guest", "nobody", 1)
		}, tidemark.Unavailable, []string{"nobody"}},
		{"no such database", func(t *testing.T) string {
			t.Helper()
			return role(t, server.URL("missing")[:strings.Index(server.URL("missing"), "?")])
		}, tidemark.Unavailable, []string{`database "missing" does not exist`}},
		{
			"no privileges",
			func(t *testing.T) string { t.Helper(); return role(t, clean) }, tidemark.Unavailable,
			[]string{"grant it SELECT, INSERT, UPDATE and DELETE"},
		},
		{"nobody listens", func(t *testing.T) string {
			t.Helper()
			return "postgres://guest:" + secret + "@127.0.0.1:1/tidemark"
		}, tidemark.Unavailable, []string{"cannot be reached", "127.0.0.1:1", "tidemark"}},
		{"no URL", func(t *testing.T) string {
			t.Helper()
			return "postgres://guest:" + secret + "%@127.0.0.1/tidemark"
		}, tidemark.Invalid, []string{"postgres://user:password@host:port/database"}},
		{"a port that is none", func(t *testing.T) string {
			t.Helper()
			return "postgres://guest:" + secret + "@127.0.0.1:99999/tidemark"
		}, tidemark.Invalid, []string{"malformed"}},
		{"a parameter that is malformed", func(t *testing.T) string {
			t.Helper()
			return "postgres://guest:" + secret + "@127.0.0.1/tidemark?sslmode=maybe"
		}, tidemark.Invalid, []string{"sslmode"}},
		{
			"a parameter that Postgres does not know",
			func(t *testing.T) string { t.Helper(); return clean + "?wrong=1" },
			tidemark.Unavailable, []string{"refused the connection", `"wrong"`},
		},
		{"a password with a ?", func(t *testing.T) string {
			t.Helper()
			return "postgres://" + secret + ":12?" + secret + "@127.0.0.1/tidemark"
		}, tidemark.Invalid, []string{"%XX"}},
		{"parameters without a ?", func(t *testing.T) string {
			t.Helper()
			return "postgres://127.0.0.1:1/tidemark&user=guest&password=" + secret
		}, tidemark.Invalid, []string{"follow one ?"}},
		{"pgbouncer=perhaps", func(t *testing.T) string {
			t.Helper()
			return "postgres://guest:" + secret + "@127.0.0.1/tidemark?pgbouncer=perhaps"
		}, tidemark.Invalid, []string{"pgbouncer", "true or false"}},
		{"one writer", func(t *testing.T) string {
			t.Helper()
			return "postgres://guest:" + secret + "@127.0.0.1/tidemark?pool_writers=1"
		}, tidemark.Invalid, []string{"pool_writers", "2 to 1000"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url := tc.url(t)
			if !strings.Contains(url, "sslmode") {
				url += map[bool]string{true: "&", false: "?"}[strings.Contains(url, "?")] +
					"sslmode=disable"
			}
			s, err := Open(t.Context(), Config{URL: url})
			// A busy machine may say nothing within the five seconds of a connect.
			for n := 0; n < 10 && err != nil && strings.Contains(err.Error(), "in time"); n++ {
				s, err = Open(t.Context(), Config{URL: url})
			}
			if err == nil {
				t.Fatal("the database was opened", s.Close())
			}
			wantError(t, err, tc.code, tc.words...)
			if tc.code == tidemark.Conflict && strings.Count(err.Error(), tc.words[0]) != 1 {
				t.Errorf("the error says it twice: %v", err)
			}
			for _, text := range []string{err.Error(), tidemark.DetailOf(err)} {
				if strings.Contains(text, secret) {
					t.Errorf("the error repeats the password: %s", text)
				}
			}
		})
	}

	// fsync is a setting of the server. It may be turned off while the store is connected. Then the
	// store is not ready.
	url := newDatabase(t, server)
	s := openTest(t, url)
	server.Exec(t, "postgres", "ALTER SYSTEM SET fsync = off")
	server.Exec(t, "postgres", "SELECT pg_reload_conf()")
	s.writers.Reset()
	s.readers.Reset()
	wantSoon(t, func() bool {
		return tidemark.CodeOf(s.Check(context.Background())) == tidemark.Unavailable
	})
	wantError(t, s.Check(t.Context()), tidemark.Unavailable, "fsync is off")
	_, err := Open(t.Context(), Config{URL: url})
	wantError(t, err, tidemark.Conflict, "fsync is off", "could be lost")
}
