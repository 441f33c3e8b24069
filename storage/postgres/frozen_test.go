package postgres

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// frozen is a dump of the data of storagetest.WriteFrozen in the schema of version 1.
const frozen = "testdata/v1.sql"

// TestFrozen_v1_is_upgraded: this program upgrades data of version 1, and reads and writes them.
// `make frozen` writes the data anew.
func TestFrozen_v1_is_upgraded(t *testing.T) {
	url := service.Shared(t).Database(t)
	found, err := Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if storagetest.Rewrite(t, found.Needed) {
		writeFrozen(t)
	}
	text, err := os.ReadFile(frozen)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	if _, err := c.PgConn().Exec(t.Context(), string(text)).ReadAll(); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatal(err)
	}
	storagetest.RunFrozen(t, openTest(t, url), storagetest.FrozenLives)
}

func writeFrozen(t *testing.T) {
	t.Helper()
	s, lives := storagetest.WriteFrozen(t, openNew(t), restored)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text := dump(t, s.(durable).url)
	for i, life := range lives {
		text = strings.ReplaceAll(text, string(life), string(storagetest.FrozenLives[i]))
	}
	if err := os.WriteFile(frozen, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// dump returns the statements that make the database. The schema is the text of the migrations.
func dump(t *testing.T, url string) string {
	t.Helper()
	var text strings.Builder
	names, err := fs.Glob(migrations.Postgres, "postgres/*.up.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		migration, err := migrations.Postgres.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(migration)
	}
	text.WriteString("\nCREATE TABLE schema_migrations (\n" +
		"    version bigint  PRIMARY KEY,\n    dirty   boolean NOT NULL\n);\n" +
		"DELETE FROM schema_compatible;\n")
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	const tables = "SELECT table_name::text FROM information_schema.tables " +
		"WHERE table_schema = 'public' ORDER BY 1"
	const columnsOf = "SELECT column_name::text FROM information_schema.columns " +
		"WHERE table_schema = 'public' AND table_name = '%s' ORDER BY ordinal_position"
	for _, table := range firstColumn(t, c, tables) {
		columns := firstColumn(t, c, fmt.Sprintf(columnsOf, table))
		values := "quote_nullable(" + strings.Join(columns, ")||', '||quote_nullable(") + ")"
		if table == "lives" { // The identity is of this database.
			values = strings.ReplaceAll(values, "(identity)", "('another')")
		}
		for _, row := range firstColumn(t, c, "SELECT row FROM (SELECT "+values+" AS row FROM "+
			table+`) AS rows ORDER BY row COLLATE "C"`) {
			fmt.Fprintf(&text, "INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE VALUES (%s);\n",
				table, strings.Join(columns, ", "), row)
		}
	}
	text.WriteString("SELECT setval(pg_get_serial_sequence('chats', 'key'), " +
		"(SELECT max(key) FROM chats));\n")
	return text.String()
}

// firstColumn returns the only column of a statement.
func firstColumn(t *testing.T, c *pgx.Conn, statement string) []string {
	t.Helper()
	rows, err := c.Query(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return found
}
