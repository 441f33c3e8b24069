package postgres

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database makes an empty database and returns its URL. It is dropped with the test, even while
// clients are connected.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.Copy(t, "template0")
}

// Copy is like Database, but makes a copy of a database, to which nobody is connected.
func (s *Server) Copy(t testing.TB, template string) string {
	t.Helper()
	name := "t" + strings.ToLower(rand.Text()[:16])
	s.Exec(t, "postgres", "CREATE DATABASE "+name+" TEMPLATE "+template)
	t.Cleanup(func() {
		if s.PID() == 0 {
			return // the database disappears with the directory
		}
		s.Exec(t, "postgres", "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	})
	return s.URL(name)
}

// Exec runs statements as the superuser over a connection of its own, within five minutes.
func (s *Server) Exec(t testing.TB, database, statements string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statements); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}
