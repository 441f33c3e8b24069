package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
)

// tablesWith returns the tables that have a text in any of their columns.
func (r *rival) tablesWith(text string) (tables []string) {
	r.t.Helper()
	rows, err := r.conn.Query(r.t.Context(), `SELECT relname FROM pg_class
		WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace
		ORDER BY relname COLLATE "C"`)
	if err != nil {
		r.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(all) < 10 {
		r.t.Fatalf("the tables are %v, %v", all, err)
	}
	for _, table := range all {
		search := fmt.Sprintf(`SELECT count(*) FROM %s AS t WHERE strpos(t::text, $1) > 0`,
			pgx.Identifier{table}.Sanitize())
		var n int
		if err := r.conn.QueryRow(r.t.Context(), search, text).Scan(&n); err != nil {
			r.t.Fatalf("%s: %v", search, err)
		}
		if n > 0 {
			tables = append(tables, table)
		}
	}
	return tables
}

// TestAppend_redacted_text_is_in_no_table searches all tables for what a message said. Only the
// table of mentions keeps whom it named: what was counted stays counted.
func TestAppend_redacted_text_is_in_no_table(t *testing.T) {
	s, r := withRival(t, "")
	r.do("COMMIT")
	const canary = "canary-8c41"
	said := message("c", "anna", "1", canary)
	said.Attachments = json.RawMessage(`[{"name":"` + canary + `"}]`)
	said.Metadata = json.RawMessage(`{"about":"` + canary + `"}`)
	said.Mentions = tidemark.NewMentions(false, []tidemark.UserID{canary})
	for _, test := range []struct {
		name string
		tidemark.Draft
		want []string
	}{
		{"the message", said, []string{"mentions", "messages"}},
		{"an edit", relation("c", "anna", "2", 1, "better"), []string{"mentions"}},
		{"an edit that says it again", relation("c", "anna", "3", 1, canary),
			[]string{"mentions", "messages"}},
		{"a redaction", relation("c", "anna", "4", 1, ""), []string{"mentions"}},
	} {
		appendOne(t, s, test.Draft)
		if got := r.tablesWith(canary); !slices.Equal(got, test.want) {
			t.Errorf("after %s: the text is in the tables %v, want %v", test.name, got, test.want)
		}
	}
}
