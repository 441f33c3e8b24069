package migrations

import (
	"fmt"
	"io/fs"
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
