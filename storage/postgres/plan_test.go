package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// A node is a step of an executed plan.
type node struct {
	Type      string  `json:"Node Type"`
	Operation string  `json:"Operation"`
	Relation  string  `json:"Relation Name"`
	Index     string  `json:"Index Name"`
	Name      string  `json:"Subplan Name"`
	CTE       string  `json:"CTE Name"`
	Condition string  `json:"Index Cond"`
	Recheck   string  `json:"Recheck Cond"`
	TID       string  `json:"TID Cond"`
	Filter    string  `json:"Filter"`
	Rows      float64 `json:"Actual Rows"` // for each loop, as all numbers of rows
	Loops     float64 `json:"Actual Loops"`
	Removed   float64 `json:"Rows Removed by Filter"`
	Rechecked float64 `json:"Rows Removed by Index Recheck"`
	Unjoined  float64 `json:"Rows Removed by Join Filter"`
	Hit       float64 `json:"Shared Hit Blocks"` // in all loops
	Read      float64 `json:"Shared Read Blocks"`
	Plans     []node  `json:"Plans"`
}

// A plan is a plan that auto_explain reported.
type plan struct {
	Text string `json:"Query Text"`
	Plan node   `json:"Plan"`
}

// readPlan reads a notice of auto_explain.
func readPlan(t *testing.T, notice string) (p plan) {
	t.Helper()
	_, text, ok := strings.Cut(notice, "plan:")
	if !ok {
		t.Fatalf("the notice is no plan: %s", notice)
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

// each calls do for the node and those below it.
func (n *node) each(do func(n *node, depth int), depth int) {
	do(n, depth)
	for i := range n.Plans {
		n.Plans[i].each(do, depth+1)
	}
}

// yield is the number of rows that a statement is about. It is the largest of the rows it returns,
// writes, or is asked for.
func (n *node) yield() float64 {
	most := max(1, n.Rows)
	n.each(func(n *node, _ int) {
		switch n.Type {
		case "Function Scan":
			most = max(most, n.Rows+n.Removed)
		case "ModifyTable":
			most = max(most, n.Plans[0].Rows*n.Plans[0].Loops)
		}
	}, 0)
	return most
}

// The limits of a plan. No node scans a table. No node reads or compares more than ten rows for
// each row that the statement is about (yield). For an aggregate, the caller says how many rows it
// counts.
//
// A scan reads at most a few pages for each look-up and row. That finds an index that is used
// without its first column. The statement reads at most 30 pages for each row that it is about.
const (
	mostRows      = 10
	pagesPerLoop  = 12
	pagesPerRow   = 4
	pagesPerYield = 30
)

// faults returns the violations of the limits in a plan.
func (n *node) faults(counted float64) (bad []string) {
	about := max(n.yield(), counted)
	n.each(func(n *node, _ int) {
		read := (n.Rows + n.Removed + n.Rechecked) * n.Loops
		pages := n.Hit + n.Read
		for i := range n.Plans { // Those below are checked by themselves.
			pages -= n.Plans[i].Hit + n.Plans[i].Read
		}
		switch {
		case n.Type == "Seq Scan":
			bad = append(bad, "scans "+n.Relation)
		case n.Unjoined*n.Loops > mostRows*about:
			bad = append(bad,
				fmt.Sprintf("%s drops %.0f rows of a join for %.0f", n.Type, n.Unjoined*n.Loops,
					about))
		case n.Relation == "" || n.Type == "ModifyTable":
		case read > mostRows*about:
			bad = append(bad,
				fmt.Sprintf("%s on %s reads %.0f rows for %.0f", n.Type, n.Relation, read, about))
		// The pages of such a step include those of the look-ups that its filter waits for.
		case strings.Contains(n.Condition+n.Recheck, "= ANY ("):
		case pages > pagesPerLoop*n.Loops+pagesPerRow*read:
			bad = append(bad,
				fmt.Sprintf("%s on %s looks at %.0f pages in %.0f loops for %.0f rows", n.Type,
					n.Relation, pages, n.Loops, read))
		}
	}, 0)
	if pages := n.Hit + n.Read; pages > pagesPerYield*(about+1) {
		bad = append(bad, fmt.Sprintf("looks at %.0f pages for %.0f rows", pages, about))
	}
	return bad
}

// unordered returns the steps of a plan that find rows in the order of their pages. Rows are locked
// as they are found, and must be locked in the order of their keys. Only a pooler may choose such
// steps.
func (n *node) unordered() (bad []string) {
	n.each(func(n *node, _ int) {
		if strings.HasPrefix(n.Type, "Bitmap") {
			bad = append(bad, n.Type+" on "+n.Relation+" has no order")
		}
	}, 0)
	return bad
}

// lines returns a plan for people to read.
func (n *node) lines() (lines []string) {
	n.each(func(n *node, depth int) {
		line := strings.Repeat("  ", depth)
		if n.Name != "" {
			line += n.Name + ": "
		}
		line += n.Type
		for _, part := range []struct{ word, value string }{{" ", n.Operation}, {" ", n.Index},
			{" on ", n.Relation}, {" on ", n.CTE}, {", ", n.Condition}, {", ", n.TID},
			{", if ", n.Filter}} {
			if part.value != "" {
				line += part.word + shortened(part.value)
			}
		}
		switch {
		case n.Loops == 0:
			line += ": never"
		case n.Loops == 1:
			line += fmt.Sprintf(": %.0f rows", n.Rows)
		default:
			line += fmt.Sprintf(": %s rows × %.0f",
				strconv.FormatFloat(n.Rows, 'g', 3, 64), n.Loops)
		}
		if n.Removed > 0 {
			line += fmt.Sprintf(", %s dropped", strconv.FormatFloat(n.Removed, 'g', 3, 64))
		}
		lines = append(lines, line)
	}, 0)
	return lines
}

// shortened returns the beginning of a condition.
func shortened(text string) string {
	const most = 110
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// planVersion is the version of Postgres whose plans are in plans.md.
const planVersion = 15

// planMessages is the number of messages in the database of the plans: a million, or more by
// TIDEMARK_PLAN_MESSAGES. `make check` uses a tenth to save time.
func planMessages(t *testing.T) int {
	t.Helper()
	const least = 1_000_000
	if testing.Short() {
		return least / 10
	}
	text := os.Getenv("TIDEMARK_PLAN_MESSAGES")
	if text == "" {
		return least
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		t.Fatalf("TIDEMARK_PLAN_MESSAGES is %q, want a number of at least %d", text, least)
	}
	return n
}

// TestPlans_no_statement_reads_much_more_than_it_returns runs every method on a database of ten
// thousand chats and a million messages. It checks the executed plans, as auto_explain reports
// them:
//   - plans made while all tables were empty and known to be;
//   - plans of a server with statistics of its tables, which are in plans.md;
//   - plans of a pooler, where each run has a plan of its own, before and after the statistics.
//
// TIDEMARK_UPDATE=1 writes plans.md. Another database, a tenth as large, grows out of a small one
// with statistics.
func TestPlans_no_statement_reads_much_more_than_it_returns(t *testing.T) {
	server := service.Start(t, "shared_preload_libraries = 'auto_explain'",
		"auto_explain.log_min_duration = 0", "auto_explain.log_analyze = on",
		"auto_explain.log_buffers = on",
		"auto_explain.log_timing = off", "auto_explain.log_format = json",
		"auto_explain.log_level = notice",
		"autovacuum = off", "max_wal_size = 4GB", "checkpoint_timeout = 1h",
		"shared_buffers = 256MB")
	names := statements(t)
	analyze := func(url string) {
		server.Exec(t, url[strings.LastIndex(url, "/")+1:strings.Index(url, "?")], "ANALYZE")
	}
	total := planMessages(t) / perChat

	small := newDatabase(t, server)
	fill(t, small, 1, 200)
	analyze(small)
	check := planned(t, small, names)
	fill(t, small, 201, total/10)
	t.Run("made on small tables", check)

	url := newDatabase(t, server)
	analyze(url)
	check = planned(t, url, names)
	naive := newNaive(t, url)
	fill(t, url, 1, total)
	t.Run("made on empty tables", func(t *testing.T) {
		check(t)
		// The bad plan that the statements must avoid does occur here.
		if bad := naive(t); len(bad) == 0 {
			t.Error("a plan of a naive statement that was made on empty tables is good")
		}
	})
	pooled := func(round int) func(t *testing.T) {
		return func(t *testing.T) {
			s, w := watched(t, url+"&pgbouncer=true")
			checkPlans(t, s, w, round, names)
		}
	}
	// If each run has a plan of its own, the best plan for a small table may be a scan.
	short := testing.Short()
	if !short {
		t.Run("through a pooler, tables unknown", pooled(1))
	}
	analyze(url)
	t.Run("tables known", func(t *testing.T) {
		s, w := watched(t, url)
		found := checkPlans(t, s, w, 2, names)
		var version int
		err := s.readers.QueryRow(t.Context(),
			"SELECT current_setting('server_version_num')::int / 10000").Scan(&version)
		if err != nil {
			t.Fatal(err)
		}
		// Other versions may choose or describe some steps differently. The limits still hold.
		if version == planVersion {
			compare(t, found, names)
		}
	})
	if !short {
		t.Run("through a pooler, tables known", pooled(3))
	}
}

// planned lets a store make its plans now. It returns the check of these plans, to call later.
func planned(t *testing.T, url string, names map[string]string) func(t *testing.T) {
	t.Helper()
	s, w := watched(t, url)
	for _, pool := range []*pgxpool.Pool{s.writers, s.readers} {
		err := once(t.Context(), pool, 0,
			func(ctx context.Context, c *conn) error { return plansOf(ctx, c, names) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, _, plans := w.take(); len(plans) < 2*(len(names)-10) {
		t.Fatalf("%d plans were made of %d statements", len(plans), len(names))
	}
	return func(t *testing.T) {
		t.Helper()
		checkPlans(t, s, w, 0, names)
		for _, pool := range []*pgxpool.Pool{s.writers, s.readers} {
			if n := pool.Stat().NewConnsCount(); n != 1 {
				t.Errorf("there were %d connections, so that the plans are not those that were "+
					"made first", n)
			}
		}
	}
}

// plansOf runs each statement without values, so that the connection keeps its plan.
func plansOf(ctx context.Context, c *conn, names map[string]string) error {
	for text := range names {
		if strings.HasPrefix(text, "BEGIN") {
			continue
		}
		described, err := c.Prepare(ctx, "", text)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		rows, err := c.Query(ctx, text, make([]any, len(described.ParamOIDs))...)
		if err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		rows.Close()
		if err := rows.Err(); err != nil && class(err) != "23" { // a NULL violates a constraint
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// newNaive prepares a look-up by the primary key on the empty table, without the store's settings.
// It returns a function that runs it again, and returns the faults of its plan.
func newNaive(t *testing.T, url string) func(t *testing.T) (bad []string) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{}
	config.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		w.notices = append(w.notices, n.Message)
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	run := func(t *testing.T) []string {
		t.Helper()
		_, err := c.Exec(t.Context(),
			"SELECT content FROM messages WHERE chat = $1 AND sequence = $2", 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		_, _, notices := w.take()
		p := readPlan(t, notices[len(notices)-1])
		return p.Plan.faults(0)
	}
	run(t)
	return run
}

// checkPlans runs every method, and reports bad plans. For each statement it returns the plan about
// the most rows.
func checkPlans(
	t *testing.T, s *Store, w *watch, round int, names map[string]string,
) map[string]plan {
	t.Helper()
	load := &workload{t, s}
	counted := map[string]float64{
		"`Summary`, 100 members": 100, "`Summary`, 1,000 members": 1000,
		"`Advance`, read as well, between own messages": perChat, "`MarkUnread`": perChat,
		"`Unread` of 50": 50 * perChat, "`UnreadOf`, 100 chats": 100 * perChat,
		"`UnreadOf`, 1,000 chats": 1000,
		"`ChatsOf`, 20 of 100":    20 * perChat / 2,
	}
	found := map[string]plan{}
	for _, o := range slices.Concat(load.writes(), load.relations(), load.annotations(),
		load.retention(), load.states(), load.blocks(), load.audits(), load.erasures(),
		load.outlets(), load.reads()) {
		if o.before != nil {
			if err := o.before(round); err != nil {
				t.Fatalf("before %s: %v", o.name, err)
			}
		}
		w.take()
		if err := o.run(round); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		_, _, notices := w.take()
		for _, notice := range notices {
			p := readPlan(t, notice)
			name := names[p.Text]
			bad := p.Plan.faults(counted[o.name])
			if s.writers.Config().ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeExec {
				bad = append(bad, p.Plan.unordered()...)
			}
			for _, bad := range bad {
				t.Errorf("%s: %s %s\n%s", o.name, name, bad, strings.Join(p.Plan.lines(), "\n"))
			}
			if before, known := found[name]; !known || before.Plan.yield() < p.Plan.yield() {
				found[name] = p
			}
		}
	}
	for text, name := range names {
		if _, ran := found[name]; !ran && !strings.HasPrefix(text, "BEGIN") {
			t.Errorf("there is no plan of %s", name)
		}
	}
	return found
}

// compare compares plans with plans.md.
func compare(t *testing.T, found map[string]plan, names map[string]string) {
	t.Helper()
	const file = "plans.md"
	text := fmt.Sprintf("# The plans of the statements\n\n"+
		"For people who change this package: the plans of Postgres %d on ten thousand chats and "+
		"a million\n"+
		"messages. Each step has the number of rows that it returned, and of its loops. Of "+
		"several runs of a\n"+
		"statement, the one with most rows is shown. Estimates and times are left out.\n\n"+
		"A test writes this page: `TIDEMARK_UPDATE=1 go test -run Plans ./storage/postgres`.\n",
		planVersion)
	for _, name := range slices.Sorted(maps.Values(names)) {
		p, ran := found[name]
		if ran && p.Plan.Type != "Result" {
			text += "\n## " + name + "\n\n```\n" + strings.Join(p.Plan.lines(), "\n") + "\n```\n"
		}
	}
	if os.Getenv(update) != "" {
		//nolint:gosec // Everybody may read the page.
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(text, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(expected)) {
		if got[i] != expected[i] {
			t.Fatalf("line %d of %s is\n%s\nbut the plan is\n%s\n%s=1 writes what is",
				i+1, file, expected[i], got[i], update)
		}
	}
	if len(got) != len(expected) {
		t.Fatalf("%s has %d lines, want %d", file, len(expected), len(got))
	}
}
