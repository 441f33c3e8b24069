package postgres

import (
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestErase_erased_nowhere_in_all_tables: no row has anything of the user.
func TestErase_erased_nowhere_in_all_tables(t *testing.T) {
	s := openNew(t).(durable)
	storagetest.Erased(t, s)
	tables := strings.Fields(single(t, s.url, `SELECT string_agg(table_name, ' ')
		FROM information_schema.tables
		WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`))
	if len(tables) < 15 {
		t.Errorf("there are only the tables %q", tables)
	}
	for _, table := range tables {
		rows := single(t, s.url, `SELECT coalesce(string_agg(r::text, ' '), '') FROM `+table+
			` AS r WHERE r::text LIKE '%`+storagetest.Canary+`%'`)
		if rows != "" {
			t.Errorf("the table %s has %s", table, rows)
		}
	}
}
