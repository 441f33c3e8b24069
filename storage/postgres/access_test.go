package postgres

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

const (
	// update is the environment variable with which the tests write the table instead of comparing
	// it.
	update = "TIDEMARK_UPDATE"
	// accessChats is the number of chats in the database in which the table of README.md is
	// measured.
	accessChats = 200
)

// A cost is the cost of an operation to the database.
type cost struct {
	statements, rows, blocks, bytes int64
}

// TestAccess_table measures the cost of each operation by pg_stat_statements. It compares with the
// table of README.md; TIDEMARK_UPDATE=1 writes the table. Each operation has run once before.
// Blocks and bytes are medians of three runs. The server writes no full pages, which would
// otherwise happen once after each checkpoint.
func TestAccess_table(t *testing.T) {
	server := service.Start(t, "full_page_writes = off", "autovacuum = off", "max_wal_size = 4GB",
		"checkpoint_timeout = 1h")
	server.Exec(t, "postgres", "CREATE EXTENSION pg_stat_statements")
	url := newDatabase(t, server)
	fill(t, url, 1, accessChats)
	server.Exec(t, url[strings.LastIndex(url, "/")+1:strings.Index(url, "?")], "VACUUM ANALYZE")
	meter, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer meter.Close(t.Context())

	s, w := watched(t, url)
	load := &workload{t, s}
	names := statements(t)
	used := map[string]bool{}
	operations := slices.Concat(load.writes(), load.relations(), load.annotations(),
		load.retention(), load.states(), load.blocks(), load.audits(), load.erasures(),
		load.outlets(), load.reads())
	costs, lines := make([][]cost, len(operations)), make([]string, len(operations))
	for round := range 4 {
		for i, o := range operations {
			if o.before != nil {
				if err := o.before(round); err != nil {
					t.Fatalf("before %s: %v", o.name, err)
				}
			}
			w.take()
			if _, err := meter.Exec(t.Context(), "SELECT pg_stat_statements_reset()"); err != nil {
				t.Fatal(err)
			}
			if err := o.run(round); err != nil {
				t.Fatalf("%s: %v", o.name, err)
			}
			if round == 0 {
				continue
			}
			c := costOf(t, meter, s)
			texts, trips, _ := w.take()
			which, open := shown(t, texts, names, used)
			several := slices.ContainsFunc([]string{
				"Member`", "Members`", "names", "of an edit", "of a reaction", "of a pin",
				"MarkUnread", "UpdateChat", "Settle", "Expire", "FinishImport", "DeleteChat",
				"PurgeChat", "SetReceipts", "a new direct chat", "CloseDirect", "EraseMessages",
				"EraseUser", "PutBlock", "RemoveBlock", "`Ban`", "`Unban`",
			}, func(part string) bool { return strings.Contains(o.name, part) })
			if open != several ||
				!open && trips != len(texts) {
				t.Errorf("%s takes %d round trips for %q; a transaction stays open between them: "+
					"%v", o.name, trips, texts, open)
			}
			costs[i] = append(costs[i], c)
			blocks, bytes := middle(costs[i],
				func(c cost) int64 { return c.blocks }),
				middle(costs[i], func(c cost) int64 { return c.bytes })
			lines[i] = fmt.Sprintf("| %s | %d | %d | %s | %s | %s | %s |", o.name, trips,
				c.statements, grouped(c.rows), rounded(blocks), rounded(bytes), which)
		}
	}
	table := append([]string{"| operation | round trips | statements | rows | blocks | WAL bytes " +
		"| which |", "|---|---|---|---|---|---|---|"}, lines...)
	for text, name := range names {
		if !used[text] {
			t.Errorf("the statement %s is used by no operation of the table", name)
		}
	}
	compareTable(t, table)
}

// costOf returns the cost of the store's calls since the last reset.
func costOf(t *testing.T, meter *pgx.Conn, s *Store) (c cost) {
	t.Helper()
	const text = `SELECT coalesce(sum(calls), 0)::bigint, coalesce(sum(rows), 0)::bigint,
			coalesce(sum(shared_blks_hit + shared_blks_read), 0)::bigint,
			coalesce(sum(wal_bytes), 0)::bigint
		FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid WHERE d.datname = $1`
	err := meter.QueryRow(t.Context(), text, s.writers.Config().ConnConfig.Database).
		Scan(&c.statements, &c.rows, &c.blocks, &c.bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// middle returns the median of a part of the costs.
func middle(costs []cost, part func(cost) int64) int64 {
	var of []int64
	for _, c := range costs {
		of = append(of, part(c))
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// shown returns the names of statements, and whether they are in a transaction of several.
func shown(
	t *testing.T, texts []string, names map[string]string, used map[string]bool,
) (which string, open bool) {
	t.Helper()
	var list []string
	for _, text := range texts {
		used[text] = true
		switch name := names[text]; {
		case strings.HasPrefix(text, "BEGIN"):
			open = true
		case text == "commit":
		case name == "":
			t.Errorf("the sources do not have the statement %s", text)
		default:
			list = append(list, "`"+name+"`")
		}
	}
	return strings.Join(list, ", "), open
}

// rounded returns a number with two significant digits.
func rounded(n int64) string {
	unit := int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	return grouped((n + unit/2) / unit * unit)
}

// grouped writes a number with commas.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

const (
	tableBegin = "<!-- the table: TIDEMARK_UPDATE=1 go test -run Access ./storage/postgres -->\n"
	tableEnd   = "<!-- the end of the table -->\n"
)

// compareTable compares a table with README.md's. Blocks and bytes may differ by a third and a
// small amount.
func compareTable(t *testing.T, table []string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	written, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatal("README.md has no place for the table")
	}
	if os.Getenv(update) != "" {
		err := os.WriteFile("README.md",
			[]byte(before+tableBegin+strings.Join(table, "\n")+"\n"+tableEnd+after), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	want := strings.Split(strings.TrimSpace(written), "\n")
	if len(want) != len(table) {
		t.Fatalf("README.md's table has %d lines, want %d; "+update+"=1 writes them",
			len(want), len(table))
	}
	for i, line := range table {
		if !sameRow(line, want[i]) {
			t.Errorf("README.md's table says\n%s\nbut it is\n%s\n"+update+"=1 writes what is",
				want[i], line)
		}
	}
}

// sameRow reports whether two rows of the table differ at most in the columns that vary, and not by
// much.
func sameRow(a, b string) bool {
	x, y := strings.Split(a, " | "), strings.Split(b, " | ")
	return slices.EqualFunc(x, y, func(a, b string) bool { return a == b }) || len(x) == 7 &&
		len(y) == 7 &&
		slices.Equal(x[:4], y[:4]) && x[6] == y[6] && near(x[4], y[4], 6) && near(x[5], y[5], 300)
}

// near reports whether two numbers differ by at most a third, or by at most little.
func near(a, b string, little float64) bool {
	x, errA := strconv.ParseFloat(strings.ReplaceAll(a, ",", ""), 64)
	y, errB := strconv.ParseFloat(strings.ReplaceAll(b, ",", ""), 64)
	return errA == nil && errB == nil && math.Abs(x-y) <= max(little, max(x, y)/3)
}

func TestAccess_table_rows_that_differ(t *testing.T) {
	const row = "| `Append` | 1 | 1 | 1 | 20 | 1,000 | `appendDrafts` |"
	for other, want := range map[string]bool{
		row: true,
		"| `Append` | 1 | 1 | 1 | 25 | 1,400 | `appendDrafts` |": true,
		"| `Append` | 2 | 1 | 1 | 20 | 1,000 | `appendDrafts` |": false,
		"| `Append` | 1 | 1 | 2 | 20 | 1,000 | `appendDrafts` |": false,
		"| `Append` | 1 | 1 | 1 | 40 | 1,000 | `appendDrafts` |": false,
		"| `Append` | 1 | 1 | 1 | 20 | 1,900 | `appendDrafts` |": false,
		"| `Append` | 1 | 1 | 1 | 20 | 1,000 | `readUp` |":       false,
	} {
		if got := sameRow(row, other); got != want {
			t.Errorf("%s is the same as %s: %v, want %v", other, row, got, want)
		}
	}
}
