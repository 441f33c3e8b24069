package sqlite

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage/internal/versions"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// frozen is a dump of the data of storagetest.WriteFrozen in the schema of version 1.
const frozen = "testdata/v1.sql"

// TestFrozen_v1_is_upgraded: this program upgrades data of version 1, and reads and writes them.
// `make frozen` writes the data anew.
func TestFrozen_v1_is_upgraded(t *testing.T) {
	needed, err := versions.Newest(migrations.SQLite, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if storagetest.Rewrite(t, needed) {
		writeFrozen(t)
	}
	text, err := os.ReadFile(frozen)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tidemark.db")
	db := database(t, path)
	if _, err := db.ExecContext(t.Context(), string(text)); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Migrate(path, Up); err != nil {
		t.Fatal(err)
	}
	storagetest.RunFrozen(t, openTest(t, path), storagetest.FrozenLives)
}

func database(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func writeFrozen(t *testing.T) {
	t.Helper()
	s, lives := storagetest.WriteFrozen(t, openDurable(t), restored)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text := dump(t, s.(durable).path)
	for i, life := range lives {
		text = strings.ReplaceAll(text, string(life), string(storagetest.FrozenLives[i]))
	}
	if err := os.WriteFile(frozen, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// dump returns the statements that make the database.
func dump(t *testing.T, path string) string {
	t.Helper()
	db := database(t, path)
	defer db.Close()
	var text strings.Builder
	for _, statement := range texts(t, db, "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL "+
		"ORDER BY type DESC, name") {
		text.WriteString(statement + ";\n")
	}
	for _, table := range texts(t, db,
		"SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name") {
		columns := texts(t, db, "SELECT name FROM pragma_table_info('"+table+"') ORDER BY cid")
		for _, values := range texts(t, db, "SELECT quote("+
			strings.Join(columns, ") || ', ' || quote(")+") AS row FROM "+table+" ORDER BY row") {
			text.WriteString("INSERT INTO " + table + " (" + strings.Join(columns, ", ") +
				") VALUES (" + values + ");\n")
		}
	}
	return text.String()
}

// texts returns the only column of a statement.
func texts(t *testing.T, db *sql.DB, statement string) (found []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		found = append(found, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
