package sqlite

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestPurgeChat_deleted_is_gone_from_all_tables: the chat has only its own row afterwards.
func TestPurgeChat_deleted_is_gone_from_all_tables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := openTest(t, path)
	storagetest.Purged(t, s, "c")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db := database(t, path)
	defer db.Close()
	tables := texts(t, db, `SELECT t.name FROM sqlite_schema AS t, pragma_table_info(t.name) AS c
		WHERE t.type = 'table' AND c.name = 'chat' ORDER BY t.name`)
	if len(tables) < 8 {
		t.Errorf("only the tables %q have a column for the chat", tables)
	}
	for _, table := range tables {
		if n := texts(t, db, `SELECT count(*) FROM `+table)[0]; n != "0" {
			t.Errorf("the table %s has %s rows of the chat", table, n)
		}
	}
	for _, statement := range []string{
		`SELECT count(*) FROM pending_deliveries WHERE chat_id = 'c'`,
		`SELECT count(*) - 1 FROM chats`,
	} {
		if n := texts(t, db, statement)[0]; n != "0" {
			t.Errorf("%s: got %s, want 0", statement, n)
		}
	}
}

// TestExpire_annotations_counted_leave_no_rows: those of messages that have expired are removed.
func TestExpire_annotations_counted_leave_no_rows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	s := openTest(t, path)
	storagetest.Annotated(t, s, "c")
	_, err := s.Expire(t.Context(), "c", time.Now().Add(-storage.MinAge), 1)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	db := database(t, path)
	defer db.Close()
	for _, table := range []string{"reactions", "pins"} {
		if got := texts(t, db, `SELECT target FROM `+table); !slices.Equal(got, []string{"2"}) {
			t.Errorf("the table %s has rows of the messages %q, want message 2", table, got)
		}
	}
}
