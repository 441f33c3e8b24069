package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

func TestRows_measures_client_and_backend_and_leaves_nothing(t *testing.T) {
	url := postgres.Start(t).Database(t)
	got := Rows(t.Context(), url, 10*time.Millisecond)
	if got.Missing != "" || got.Rounds < 3 || got.Least <= 0 {
		t.Errorf("got %+v, want at least three rounds, each above 0", got)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer closeConn(t.Context(), conn)
	var left int
	const schemas = `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'tidemark%'`
	if err := conn.QueryRow(t.Context(), schemas).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d schemas are left", left)
	}
	// The part of the backend is measured: it is what grows while only the backend works.
	backend, err := backendOf(conn)
	if err != nil {
		t.Fatal(err)
	}
	before, err := cpu(backend)
	if err != nil {
		t.Fatal(err)
	}
	const work = `SELECT sum(i) FROM generate_series(1, 1000000) AS s(i)`
	if _, err := conn.Exec(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if after, err := cpu(backend); err != nil || after-before < 20*time.Millisecond {
		t.Errorf("a million rows took %v of CPU, %v", after-before, err)
	}
}

func TestRows_without_a_postgres_shows_no_password(t *testing.T) {
	for _, url := range []string{
		"postgres://u:pa55@127.0.0.1:1/d", "postgres://u:a/pa55@h/d", "pa55://",
	} {
		got := Rows(t.Context(), url, time.Millisecond)
		if got.Missing == "" || strings.Contains(got.Missing, "pa55") {
			t.Errorf("%+v, want a reason without the password", got)
		}
	}
}
