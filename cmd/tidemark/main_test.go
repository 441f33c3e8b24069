package main

import (
	"bytes"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const testSecret = "0123456789abcdef0123456789abcdef"

// invoke runs a command line. Of Tidemark's variables, only the given ones are set.
func invoke(t *testing.T, variables map[string]string, args ...string) (code int, out, err string) {
	t.Helper()
	cleanEnvironment(t)
	for name, value := range variables {
		t.Setenv(name, value)
	}
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, streams{out: &stdout, err: &stderr})
	return code, stdout.String(), stderr.String()
}

func cleanEnvironment(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "TIDEMARK_") {
			value := os.Getenv(name)
			os.Unsetenv(name)
			t.Cleanup(func() { os.Setenv(name, value) })
		}
	}
}

// write writes a file into the test's directory, and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun_refuses_wrong_use_with_a_sentence(t *testing.T) {
	secret := func(value string) map[string]string {
		return map[string]string{"TIDEMARK_JWT_SECRET": value}
	}
	listens := secret(testSecret)
	listens["TIDEMARK_LISTEN"] = "nonsense"
	for _, tc := range []struct {
		name string
		env  map[string]string
		args string
		want string
	}{
		{"no command", nil, "", "expected one of"},
		{"unknown command", nil, "sevre", "sevre"},
		{"unknown flag", nil, "serve --lisen x", "--lisen"},
		{
			"neither dev nor secret", nil, "serve",
			"set TIDEMARK_JWT_SECRET to a secret of at least 32 bytes",
		},
		{
			"keys without TLS", nil, "serve --jwks-url http://id.example.com/keys",
			"must be https://",
		},
		{
			"a page that is no origin", nil, "serve --dev --allow-origin https://app.example.com/",
			"--allow-origin",
		},
		{"an issuer and no tokens", nil, "serve --dev --jwt-issuer x", "concern tokens only"},
		{"an API key for no name", nil, "api-key --name a/b", "--name"},
		{"short secret", secret("short"), "serve", "has 5 bytes; it needs at least 32"},
		{"dev on all addresses", nil, "serve --dev --listen :0", "loopback addresses only"},
		{
			"dev on an outer address", nil, "serve --dev --listen 192.0.2.1:0",
			"loopback addresses only",
		},
		{"address from the environment", listens, "serve", "not HOST:PORT"},
		{
			"postgres without slashes", nil, "serve --dev --store postgres:u:pa55@h/d",
			"is written postgres://",
		},
		{
			"postgres with a slash in the password", nil,
			"serve --dev --store postgres://u:a/pa55@h/d", "a slash %2F",
		},
		{
			"postgres with an @ in the password", nil,
			"migrate up --store postgres://u:a@pa55@h/d", "an @ is written %40",
		},
		{
			"postgres in the wrong place", nil, "serve --dev postgres://u:pa55@h/d",
			"unexpected argument postgres:…",
		},
		{
			"backup of postgres", nil, "backup --store postgres://u:pa55@h/d --to x",
			"with its own tools: pg_dump",
		},
		{
			"backup of dynamodb", nil, "backup --store dynamodb://r/p --to x",
			"point-in-time recovery",
		},
		{
			"dynamodb without slashes", nil, "serve --dev --store dynamodb:r",
			"is written dynamodb://",
		},
		{
			"dynamodb with credentials", nil, "migrate up --store dynamodb://AKIA:pa55@r/p",
			"give those of DynamoDB by the environment",
		},
		{"unknown store", nil, "serve --dev --store mongodb://u:pa55@h", "no such store"},
		{
			"memory with a path", nil, "serve --dev --store memory:pa55",
			"takes nothing after the colon",
		},
		{"missing file", nil, "serve --dev --config /nonexistent/c.yaml", "cannot be read"},
		{"token without secret", nil, "token --user bob", "TIDEMARK_JWT_SECRET is not set"},
		{"token without user", secret(testSecret), "token", "--user"},
		{"token for no id", secret(testSecret), "token --user b/b", "--user must be"},
		{"token for no time", secret(testSecret), "token --user b --ttl 0s", "--ttl"},
		{"migrate memory", nil, "migrate up --store memory:", "has no schema"},
		{"bench without mode", nil, "bench", "expected one of"},
		{"bench over pigeons", nil, "bench p2p --transport pigeon", "pigeon"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, stderr := invoke(t, tc.env, strings.Fields(tc.args)...)
			if code != exitUsage || out != "" || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit %d, out %q, err %q, want exit %d and %q",
					code, out, stderr, exitUsage, tc.want)
			}
			if strings.Contains(stderr, "pa55") {
				t.Errorf("a password is shown: %q", stderr)
			}
		})
	}
}

func TestRun_failures_exit_1(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	for _, args := range [][]string{
		{
			"serve",
			"--dev", "--listen", "127.0.0.1:0", "--store", "sqlite:" + filepath.Join(dir, "a.db"),
		},
		{"serve", "--api-keys-file", filepath.Join(dir, "api-keys")},
		{"migrate", "status", "--store", "sqlite:" + filepath.Join(dir, "a.db")},
		{"bench", "p2p", "--url", "http://127.0.0.1:1"},
	} {
		if code, _, stderr := invoke(t, nil, args...); code != exitFailure || stderr == "" {
			t.Errorf("%v: exit %d, err %q, want exit %d and a reason",
				args, code, stderr, exitFailure)
		}
	}
}

func TestRun_help_and_version_exit_0(t *testing.T) {
	for _, args := range [][]string{
		{"--help"}, {"serve", "--help"}, {"bench", "p2p", "--help"}, {"version"},
	} {
		code, out, stderr := invoke(t, nil, args...)
		if code != exitOK || out == "" || stderr != "" {
			t.Errorf("%v: exit %d, out %q, err %q, want exit 0 and only output",
				args, code, out, stderr)
		}
	}
}

func TestToken_prints_only_the_token(t *testing.T) {
	code, out, stderr := invoke(t, map[string]string{"TIDEMARK_JWT_SECRET": testSecret}, "token",
		"--user", "bob", "--ttl", "2h")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d, err %q", code, stderr)
	}
	claims := jwt.RegisteredClaims{}
	_, err := jwt.ParseWithClaims(strings.TrimSuffix(out, "\n"), &claims,
		func(*jwt.Token) (any, error) { return []byte(testSecret), nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err != nil {
		t.Fatalf("%q is no token: %v", out, err)
	}
	left := time.Until(claims.ExpiresAt.Time)
	if claims.Subject != "bob" || left < 2*time.Hour-time.Minute || left > 2*time.Hour {
		t.Errorf("subject %q, valid for %v, want bob, 2h", claims.Subject, left)
	}
}

// TestMigrate_leaves_a_newer_schema_alone checks what an older program says about the schema of a
// newer one that it can use.
func TestMigrate_leaves_a_newer_schema_alone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	store := "sqlite:" + path
	if code, _, stderr := invoke(t, nil, "migrate", "up", "--store", store); code != exitOK {
		t.Fatalf("migrate up: exit %d, %s", code, stderr)
	}
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.ExecContext(t.Context(), "UPDATE schema_migrations SET version = 10")
	}
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	const schema = "a.db: schema 10, compatible 1, needed 9\n"
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"migrate", "status"}, exitOK, schema},
		{[]string{"migrate", "up"}, exitOK, schema + "nothing to do: a newer program made the " +
			"schema, and this program can use it\n"},
		{[]string{"migrate", "down"}, exitFailure, "this program has the migrations up to 9; run " +
			"tidemark migrate down with the newer program"},
		{
			[]string{"doctor", "--dev", "--listen", "127.0.0.1:1"}, exitOK,
			"a.db: schema 10 of a newer program, which this program can use",
		},
		{[]string{"migrate", "status"}, exitOK, schema},
	} {
		code, out, stderr := invoke(t, nil, append(tc.args, "--store", store)...)
		if code != tc.code || !strings.Contains(out+stderr, tc.want) {
			t.Errorf("%v: exit %d, out %q, err %q, want exit %d and %q",
				tc.args, code, out, stderr, tc.code, tc.want)
		}
	}
}

func TestMigrate_up_status_down(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	file := write(t, "c.yaml", "store: "+store+"\nlisten: 127.0.0.1:9999\n")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"migrate", "up", "--config", file}, "schema 9, compatible 1, needed 9"},
		{[]string{"migrate", "status", "--store", store}, "schema 9, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 8, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 7, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 6, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 5, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 4, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 3, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 2, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 1, compatible 1, needed 9"},
		{[]string{"migrate", "down", "--store", store}, "schema 0, compatible 0, needed 9"},
		{[]string{"migrate", "status", "--store", store}, "schema 0, compatible 0, needed 9"},
	} {
		code, out, stderr := invoke(t, nil, tc.args...)
		if code != exitOK || !strings.Contains(out, tc.want) {
			t.Errorf("%v: exit %d, out %q, err %q, want exit 0 and %q",
				tc.args, code, out, stderr, tc.want)
		}
	}
}
