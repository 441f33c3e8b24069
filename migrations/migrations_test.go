package migrations

import (
	"embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

func TestSQLite_migrations_are_numbered_and_can_be_reverted(t *testing.T) {
	ups, err := fs.Glob(SQLite, "sqlite/*.up.sql")
	if err != nil || len(ups) == 0 {
		t.Fatalf("got the migrations %v, %v, want at least one", ups, err)
	}
	files, err := fs.ReadDir(SQLite, "sqlite")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(files), 2*len(ups); got != want {
		t.Errorf("got %d files, want %d: one up and one down for each version", got, want)
	}
	for i, up := range ups {
		if want := fmt.Sprintf("sqlite/%04d_", i+1); !strings.HasPrefix(up, want) {
			t.Errorf("migration %d is called %s, want %s…", i+1, up, want)
		}
		down := strings.TrimSuffix(up, ".up.sql") + ".down.sql"
		if _, err := fs.Stat(SQLite, down); err != nil {
			t.Errorf("%s cannot be reverted: %v", up, err)
		}
	}
}

// comment is a comment of SQL, up to the end of its line.
var comment = regexp.MustCompile(`--[^\n]*`)

// TestMigrations_schema_fits_contract_steps_say_so_first: a migration that changes the oldest
// compatible program does that before all else.
func TestMigrations_schema_fits_contract_steps_say_so_first(t *testing.T) {
	for folder, files := range map[string]embed.FS{"postgres": Postgres, "sqlite": SQLite} {
		names, err := fs.Glob(files, folder+"/*.up.sql")
		if err != nil || len(names) == 0 {
			t.Fatalf("got the migrations %v, %v, want at least one", names, err)
		}
		for _, name := range names {
			text, err := files.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !saysFirst(string(text)) {
				t.Errorf("%s changes schema_compatible after another statement", name)
			}
		}
	}
	for text, want := range map[string]bool{
		"ALTER TABLE a DROP b;": true,
		"-- A line.\nUPDATE schema_compatible SET version = 2; DROP TABLE a;": true,
		"DROP TABLE a; UPDATE schema_compatible SET version = 2;":             false,
	} {
		if got := saysFirst(text); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// saysFirst reports whether a migration changes schema_compatible first, or never.
func saysFirst(text string) bool {
	const change = "UPDATE schema_compatible"
	text = strings.TrimSpace(comment.ReplaceAllString(text, ""))
	return strings.LastIndex(text, change) <= 0
}
