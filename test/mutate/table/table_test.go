package table_test

import (
	"go/format"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// TestRead_refuses_what_no_break_can_be: a misread table would show nothing and report success.
func TestRead_refuses_what_no_break_can_be(t *testing.T) {
	const good = "name: a\nshows: x y\nat: x.b\ndo: set right2 0\ntest: . ^TestX$/^y z$\n"
	for what, text := range map[string]string{
		"no breaks":             "# nothing\n",
		"a name twice":          good + "\n" + good,
		"no test":               "name: a\nshows: x\nat: x.b\ndo: delete\n",
		"no regexp":             "name: a\nshows: x\nat: x.b\ndo: delete\ntest: .\n",
		"no rule":               "name: a\nat: x.b\ndo: delete\ntest: . X\n",
		"no anchor":             "name: a\nshows: x\ndo: delete\ntest: . X\n",
		"no operation":          "name: a\nshows: x\nat: x.b\ntest: . X\n",
		"an unknown operation":  "name: a\nshows: x\nat: x.b\ndo: destroy\ntest: . X\n",
		"no expression":         "name: a\nshows: x\nat: x.b\ndo: set right\ntest: . X\n",
		"an unknown part":       "name: a\nshows: x\nat: x.b\ndo: set middle 0\ntest: . X\n",
		"no number":             "name: a\nshows: x\nat: x.b\ndo: delete 0\ntest: . X\n",
		"too much":              "name: a\nshows: x\nat: x.b\ndo: swap-next 2\ntest: . X\n",
		"lines of no use":       "name: a\nshows: x\nat: x.b\ndo: delete\ntest: . X\n+b()\n",
		"no new lines":          "name: a\nshows: x\nat: x.b\ndo: insert\ntest: . X\n",
		"old code":              "name: a\nshows: x\nat: x.b\ndo: replace\ntest: . X\n-a()\n+b()\n",
		"no old text":           "name: a\nshows: x\nat: x.b\ndo: text\ntest: . X\n+new\n",
		"the same text":         "name: a\nshows: x\nat: x.b\ndo: text\ntest: . X\n-old\n+old\n",
		"a key that is unknown": good + "tset: . X\n",
	} {
		if breaks, err := read(t, text); err == nil {
			t.Errorf("%s: got %+v, want an error", what, breaks)
		}
	}
	breaks, err := read(t,
		good+"\n# a comment\n\nname: b\nshows: z\nat: z.c\ndo: delete\ntest: . X\n")
	if err != nil || len(breaks) != 2 {
		t.Fatalf("got %+v, %v, want two breaks", breaks, err)
	}
	b := breaks[0]
	if b.At != "x.b" || b.Package != "." || b.Test != "^TestX$/^y z$" || len(b.Shows) != 2 {
		t.Errorf("got %+v", b)
	}
}

// TestApply_operations: each operation, on the line below the anchor.
func TestApply_operations(t *testing.T) {
	for _, c := range []struct{ code, do, want string }{
		{"a()\nb()", "delete", "b()"},
		{"a()\nb()\nc()", "delete 2", "c()"},
		{"x := a()\nb(x)", "delete 2", ""},
		{"a()\nb()", "swap-next", "b()\na()"},
		{"a()", "return-early", "return\na()"},
		{"a()", "return-early nil, 0", "return nil, 0\na()"},
		{"a()\nb()", "insert\n+c()", "c()\na()\nb()"},
		{"a()\nb()", "insert-after\n+c()", "a()\nc()\nb()"},
		{"a()\nb()\nc()", "replace 2\n+d()", "d()\nc()"},
		{"if a == b {\n}", "negate", "if a != b {\n}"},
		{"if !a {\n}", "negate", "if a {\n}"},
		{"if a && b > 1 {\n}", "negate operand2", "if a && b <= 1 {\n}"},
		{"return a && b", "negate", "return !(a && b)"},
		{"if a || b {\n}", "never", "if ((a || b) && false) {\n}"},
		{"x.y = a && b", "always", "x.y = (a && b || true)"},
		{"if a && b && c {\n}", "delete operand2", "if a && c {\n}"},
		{"if a && b && c {\n}", "delete operand2 2", "if a {\n}"},
		{"if a && (b || c) {\n}", "delete operand2.operand", "if a && (c) {\n}"},
		{"a(b, c, d)", "delete arg2 2", "a(b)"},
		{"a(b, c, d)", "delete arg", "a(c, d)"},
		{"if x := a(); x {\n}", "delete init", "if x {\n}"},
		{"if a {\n} else {\n\tb()\n}", "delete else", "if a {\n}"},
		{"if a < b {\n}", "operator >=", "if a >= b {\n}"},
		{"if a < b && c == d {\n}", "operator operand2 !=", "if a < b && c != d {\n}"},
		{"x.y = x.z + 1", "set right _ + 2", "x.y = (x.z + 1) + 2"},
		{"x.y = x.z + 1", "set right.right 2", "x.y = x.z + 2"},
		{"x.y = 2 * f", "set right.right a + b", "x.y = 2 * (a + b)"},
		{"a(b, c)", "set arg2 _, d", "a(b, c, d)"},
		{"a(b(c), d)", "set arg.arg nil", "a(b(nil), d)"},
		{"a(T{b: c})", "set element _, d: e", "a(T{b: c, d: e})"},
		{"a(b)", "set fun c.d", "c.d(b)"},
		{"for range a {\n}", "set range _[:0]", "for range a[:0] {\n}"},
		{"if err := a(b); err != nil {\n}", "set init.arg c", "if err := a(c); err != nil {\n}"},
		{"a(`SELECT x FROM y`)", "text\n-x FROM\n+z FROM", "a(`SELECT z FROM y`)"},
		{"x := 1\nif y := a(); y {\n\tb(x)\n}", "delete 2", ""},
		{
			"if y := a(); y {\n\tb()\n}",
			"set condition true", "if y := a(); true {\n\t_ = y\n\tb()\n}",
		},
		{
			"for i, j := range a {\n\tb(i, j)\n}",
			"set range c", "for i, j := range c {\n\tb(i, j)\n}",
		},
	} {
		got, err := apply(t, c.code, c.do)
		if err != nil {
			t.Errorf("%s: %s: %v", c.code, c.do, err)
			continue
		}
		if want := source(t, c.want); got != want {
			t.Errorf("%s: %s: got\n%s, want\n%s", c.code, c.do, got, want)
		}
	}
}

func TestApply_refuses_what_does_not_fit(t *testing.T) {
	for _, c := range []struct{ code, do string }{
		{"a()", "swap-next"},
		{"a()", "delete 2"},
		{"a()", "negate"},
		{"a()", "set arg 1"},
		{"a(b)", "set arg2 1"},
		{"a(b)", "set arg b"},
		{"a(b)", "set arg +"},
		{"if a {\n}", "delete operand"},
		{"if a && b {\n}", "delete operand 2"},
		{"a(`b b`)", "text\n-b\n+c"},
		{"a(`b`)", "text\n-c\n+d"},
		{"a()", "replace\n+if {"},
	} {
		if got, err := apply(t, c.code, c.do); err == nil {
			t.Errorf("%s: %s: got\n%s, want an error", c.code, c.do, got)
		}
	}
}

// TestApply_keeps_the_file_compiling: what a break leaves unused is no obstacle.
func TestApply_keeps_the_file_compiling(t *testing.T) {
	const before = "package p\n\nimport (\n\t\"math/rand/v2\"\n\t\"os\"\n)\n\nfunc f() int {\n" +
		"\tx, y := rand.Int(), 2\n\tfor i, v := range []int{1} {\n\t\t//rule:r.a\n" +
		"\t\tos.Exit(x + i + v)\n\t}\n\treturn y\n}\n"
	const after = "package p\n\nimport (\n\t\"math/rand/v2\"\n\t_ \"os\"\n)\n\nfunc f() int {\n" +
		"\tx, y := rand.Int(), 2\n\t_ = x\n\tfor i, v := range []int{1} {\n\t\t_ = i\n\t\t_ = v\n" +
		"\t\t//rule:r.a\n\t}\n\treturn y\n}\n"
	anchors := anchorsIn(t, map[string]string{"f.go": before})
	got, err := breakOf(t, "delete").Apply(before, anchors["r.a"].Line)
	if err != nil {
		t.Fatal(err)
	}
	if formatted := formatted(t, got); formatted != after {
		t.Errorf("got\n%s, want\n%s", formatted, after)
	}
}

func TestAnchors(t *testing.T) {
	const file = "package p\n\n// A is a constant.\n//\n//rule:one.a\nconst A = 1\n\n" +
		"var b = []int{\n" +
		"\t//rule:one.b\n\t2,\n}\n\n// rule:R_TWO.c\nvar c = 3\n\nfunc d() {\n\tswitch {\n" +
		"\t//rule:one.d-e\n\tcase A > 1:\n\t\t// A reason.\n\t\t//rule:one.f\n\t\tb = nil\n\t}\n}\n"
	got := anchorsIn(t, map[string]string{"sub/p.go": file, "p_test.go": "package p\n\n//rule:x\n"})
	want := map[string]table.Anchor{
		"one.a":   {Name: "one.a", File: "sub/p.go", Line: 6, Within: "A"},
		"one.b":   {Name: "one.b", File: "sub/p.go", Line: 10, Within: "b"},
		"R_TWO.c": {Name: "R_TWO.c", File: "sub/p.go", Line: 14, Within: "c"},
		"one.d-e": {Name: "one.d-e", File: "sub/p.go", Line: 19, Within: "d"},
		"one.f":   {Name: "one.f", File: "sub/p.go", Line: 22, Within: "d"},
	}
	if len(got) != len(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: got %+v, want %+v", name, got[name], w)
		}
	}
}

func TestAnchors_refuses_what_names_nothing(t *testing.T) {
	for what, code := range map[string]string{
		"twice":             "//rule:x.a\na()\n//rule:x.a\nb()",
		"above a brace":     "if a {\n//rule:x.a\n}",
		"above a gap":       "//rule:x.a\n\na()",
		"no label":          "//rule:x\na()",
		"a label in mixed":  "//rule:x.Ab\na()",
		"two dots":          "//rule:x.a.b\na()",
		"behind a bracket":  "a(\nb,\n//rule:x.a\n)",
		"spaces in a label": "//rule:x.a b\na()",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "f.go"), "package p\n\nfunc f() {\n"+code+"\n}\n")
		if got, err := table.Anchors(dir); err == nil {
			t.Errorf("%s: got %+v, want an error", what, got)
		}
	}
}

// TestPage_lists_the_places: an anchor belongs to its own rule and to the rules of its breaks.
func TestPage_lists_the_places(t *testing.T) {
	const head, tail = "# Page\n\n### `x`\n\nA rule.\n\nKept in:\n\n", "\n\nShown by:\n\n- `T`\n"
	anchors := map[string]table.Anchor{
		"x.a": {Name: "x.a", File: "b.go", Within: "f"},
		"x.b": {Name: "x.b", File: "a.go", Within: "g"},
		"y.c": {Name: "y.c", File: "a.go", Within: "e"},
	}
	breaks := []table.Break{{At: "y.c", Shows: []string{"x"}}}
	page := head + "- old" + tail + "\n### y\n\nKept in:\n" + tail
	got, err := table.Page(page, anchors, breaks)
	want := head + "- `a.go`: `e`, `g`\n- `b.go`: `f`" + tail +
		"\n### y\n\nKept in:\n\n- `a.go`: `e`" + tail
	if err != nil || got != want {
		t.Errorf("got %v,\n%s, want\n%s", err, got, want)
	}
	if again, err := table.Page(got, anchors, breaks); err != nil || again != got {
		t.Errorf("again: got %v,\n%s, want\n%s", err, again, got)
	}
	if _, err := table.Page(page, map[string]table.Anchor{"x.a": {Name: "x.a"}}, nil); err == nil {
		t.Error("a rule without an anchor: got no error")
	}
	anchors["z.d"] = table.Anchor{Name: "z.d"}
	if _, err := table.Page(page, anchors, breaks); err == nil {
		t.Error("an anchor without a rule: got no error")
	}
}

func TestMatches(t *testing.T) {
	b := table.Break{Name: "send-again", Shows: []string{"R_MIN", "x"}, At: "R_MIN.lower-start"}
	for word, want := range map[string]bool{
		"again": true, "R_MI": true, "lower": true, "tests": false,
	} {
		if got := b.Matches(func(s string) bool { return strings.Contains(s, word) }); got != want {
			t.Errorf("%s: got %v, want %v", word, got, want)
		}
	}
}

// apply does an operation on the first of some statements, and returns the formatted file.
func apply(t *testing.T, code, do string) (string, error) {
	t.Helper()
	before := "package p\n\nfunc f() {\n" + code + "\n}\n"
	got, err := breakOf(t, do).Apply(before, 4)
	if err != nil {
		return "", err
	}
	return formatted(t, strings.ReplaceAll(got, "; _ = x", "")), nil
}

// source returns a formatted file with some statements.
func source(t *testing.T, code string) string {
	t.Helper()
	return formatted(t, "package p\n\nfunc f() {\n"+code+"\n}\n")
}

// formatted returns a file without the empty lines that a deletion leaves.
func formatted(t *testing.T, code string) string {
	t.Helper()
	text, err := format.Source([]byte(code))
	if err != nil {
		t.Fatalf("%v:\n%s", err, code)
	}
	return strings.ReplaceAll(string(text), "\n\n\t", "\n\t")
}

// breakOf returns a break with an operation, which may have lines.
func breakOf(t *testing.T, do string) table.Break {
	t.Helper()
	do, lines, _ := strings.Cut(do, "\n")
	breaks, err := read(t, "name: a\nshows: x\nat: x.b\ndo: "+do+"\ntest: . X\n"+lines+"\n")
	if err != nil {
		t.Fatal(err)
	}
	return breaks[0]
}

func read(t *testing.T, text string) ([]table.Break, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "t.txt"), text)
	return table.Read(dir)
}

func anchorsIn(t *testing.T, files map[string]string) map[string]table.Anchor {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	anchors, err := table.Anchors(dir)
	if err != nil {
		t.Fatal(err)
	}
	return anchors
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
