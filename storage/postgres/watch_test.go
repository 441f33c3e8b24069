package postgres

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark/storage/postgres/internal/dsn"
)

// A watch records the statements of a store.
type watch struct {
	// before, if set, is called with each statement before that is sent.
	before func(text string)

	mu      sync.Mutex
	texts   []string // the statements, in their order
	trips   int      // the number of round trips
	notices []string
}

// watched opens a store with one connection that reads and one that writes, and a watch on both.
func watched(t *testing.T, url string) (*Store, *watch) {
	t.Helper()
	to, err := dsn.Parse(url, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	to.Writers, to.Readers = 1, 1
	w := &watch{}
	to.Config.ConnConfig.Tracer = w
	to.Config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notices = append(w.notices, n.Message)
	}
	dial := to.Config.ConnConfig.DialFunc
	to.Config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn,
		error) {
		c, err := dial(ctx, network, address)
		return &watchedConn{Conn: c, watch: w}, err
	}
	to.Config.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	s, err := open(t.Context(), to, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w.take()
	return s, w
}

// take returns what was recorded since the last call.
func (w *watch) take() (texts []string, trips int, notices []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts, trips, notices = w.texts, w.trips, w.notices
	w.texts, w.trips, w.notices = nil, 0, nil
	return texts, trips, notices
}

func (w *watch) saw(text string) {
	if w.before != nil {
		w.before(text)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// TraceQueryStart implements pgx.QueryTracer.
func (w *watch) TraceQueryStart(
	ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData,
) context.Context {
	w.saw(data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (w *watch) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (w *watch) TraceBatchStart(
	ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData,
) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		w.saw(q.SQL)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (w *watch) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (w *watch) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// watchedConn counts a round trip at the first write after a read.
type watchedConn struct {
	net.Conn
	watch *watch
	mu    sync.Mutex
	wrote bool
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	first := !c.wrote
	c.wrote = true
	c.mu.Unlock()
	if first {
		c.watch.mu.Lock()
		c.watch.trips++
		c.watch.mu.Unlock()
	}
	return c.Conn.Write(b)
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	c.wrote = false
	c.mu.Unlock()
	return n, err
}

// statements returns the package's statements, by their texts in the sources. The name is that of
// the constant, or of the function with the literal.
func statements(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	r := sources{constants: map[string]ast.Expr{}, parts: map[string]bool{}}
	var files []*ast.File
	for _, path := range paths {
		// No server runs the statements of a copy (storage.CopySource, CopyTarget).
		ofCopy := path == "copies.go" || path == "copying.go"
		if ofCopy || strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		ast.Inspect(file, r.constant)
	}
	names := map[string]string{}
	for name, value := range r.constants {
		if text := r.text(value); isStatement(text) && !r.parts[name] {
			names[text] = name
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			function, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(function, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && isStatement(r.text(literal)) {
					names[r.text(literal)] = function.Name.Name
				}
				return true
			})
		}
	}
	return names
}

// sources are the constants of the package.
type sources struct {
	constants map[string]ast.Expr
	parts     map[string]bool // constants that are parts of others
}

func (r *sources) constant(n ast.Node) bool {
	spec, ok := n.(*ast.ValueSpec)
	if !ok {
		return true
	}
	for i, value := range spec.Values {
		r.constants[spec.Names[i].Name] = value
		if sum, ok := value.(*ast.BinaryExpr); ok {
			ast.Inspect(sum, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					r.parts[name.Name] = true
				}
				return true
			})
		}
	}
	return true
}

// text returns the value of an expression of strings, "" of another one.
func (r *sources) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); e.Kind == token.STRING && err == nil {
			return text
		}
	case *ast.Ident:
		if value, known := r.constants[e.Name]; known {
			return r.text(value)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return r.text(e.X) + r.text(e.Y)
		}
	}
	return ""
}

func isStatement(text string) bool {
	verb, _, more := strings.Cut(text, " ")
	return more &&
		slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "BEGIN"}, verb)
}

func TestStatements_of_the_sources_are_found(t *testing.T) {
	names := statements(t)
	for text, want := range map[string]string{
		appendDrafts: "appendDrafts",
		readUp:       "readUp",
		readDown:     "readDown",
		unmark:       "unmark",
		chatByID:     "chatByID",
	} {
		if got := names[text]; got != want {
			t.Errorf("the statement %s has the name %q", want, got)
		}
	}
	if len(names) < 25 {
		t.Errorf("only %d statements were found: %s", len(names), fmt.Sprint(names))
	}
}
