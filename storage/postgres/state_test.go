package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestPurgeChat_deleted_is_gone_from_all_tables: the chat has only its own row afterwards.
func TestPurgeChat_deleted_is_gone_from_all_tables(t *testing.T) {
	s := openNew(t).(durable)
	url := s.url
	storagetest.Purged(t, s, "c")
	tables := strings.Fields(single(t, url, `SELECT string_agg(table_name, ' ' ORDER BY table_name)
		FROM information_schema.columns
		WHERE column_name = 'chat' AND table_schema = current_schema()`))
	if len(tables) < 9 {
		t.Errorf("only the tables %q have a column for the chat", tables)
	}
	for _, table := range tables {
		if n := single(t, url, `SELECT count(*)::text FROM `+table); n != "0" {
			t.Errorf("the table %s has %s rows of the chat", table, n)
		}
	}
	for _, statement := range []string{
		`SELECT count(*)::text FROM pending_deliveries WHERE chat_id = 'c'`,
		`SELECT (count(*) - 1)::text FROM chats`,
	} {
		if n := single(t, url, statement); n != "0" {
			t.Errorf("%s: got %s, want 0", statement, n)
		}
	}
}

// TestExpire_annotations_counted_leave_no_rows: those of messages that have expired are removed.
func TestExpire_annotations_counted_leave_no_rows(t *testing.T) {
	s := openNew(t).(durable)
	storagetest.Annotated(t, s, "c")
	if _, err := s.Expire(t.Context(), "c", time.Now().Add(-storage.MinAge), 1); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"reactions", "pins"} {
		got := single(t, s.url, `SELECT string_agg(target::text, ' ') FROM `+table)
		if got != "2" {
			t.Errorf("the table %s has rows of the messages %q, want message 2", table, got)
		}
	}
}
