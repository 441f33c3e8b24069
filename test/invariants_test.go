package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// TestInvariants_breaks_fit_the_code: a break whose old text is gone, or is there twice, would break nothing, or something else.
func TestInvariants_breaks_fit_the_code(t *testing.T) {
	for _, b := range breaks(t) {
		source, err := os.ReadFile(filepath.Join("..", b.File))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := b.Apply(string(source)); err != nil {
			t.Error(err)
		}
	}
}

func breaks(t *testing.T) []table.Break {
	t.Helper()
	all, err := table.Read("mutate")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestInvariants_every_rule_is_mapped: what the documents and the model name has a row in docs/invariants.md, and each row has a test that bears its name, and a break.
func TestInvariants_every_rule_is_mapped(t *testing.T) {
	rows, shown := mapped(t), testNames(t)
	broken := make(map[string]bool)
	for _, b := range breaks(t) {
		for _, rule := range b.Shows {
			broken[rule] = true
			if _, there := rows[rule]; !there {
				t.Errorf("the break %s shows %s, which has no row in docs/invariants.md", b.Name, rule)
			}
		}
	}
	for rule := range rows {
		if !broken[rule] {
			t.Errorf("%s has no recorded break", rule)
		}
	}
	named := rules(t)
	for rule := range named {
		if _, there := rows[rule]; !there {
			t.Errorf("%s has no row in docs/invariants.md", rule)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(shown)), func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(rule)) }) {
			t.Errorf("no test bears the name %s", rule)
		}
	}
	if len(named) != 11+13+10 {
		t.Errorf("%d rules were found, want the 11 of the model, 13 of Appendix E and 10 of delivery.md §5", len(named))
	}
}

// TestInvariants_the_map_is_true: every function and every test that docs/invariants.md names exists.
func TestInvariants_the_map_is_true(t *testing.T) {
	shown := testNames(t)
	for rule, row := range mapped(t) {
		for _, place := range row.keptIn {
			path, function, _ := strings.Cut(place, ":")
			source, err := os.ReadFile(filepath.Join("..", path))
			if err != nil {
				t.Errorf("%s: %v", rule, err)
				continue
			}
			if _, there := functions(t, path, source)[function]; !there {
				t.Errorf("%s: there is no function %s in %s", rule, function, path)
			}
		}
		for _, name := range row.shownBy {
			if !shown[name] {
				t.Errorf("%s: there is no test %s", rule, name)
			}
		}
		if len(row.keptIn) == 0 || len(row.shownBy) == 0 {
			t.Errorf("%s: got %+v, want functions and tests", rule, row)
		}
	}
}

// mapping is a row of docs/invariants.md.
type mapping struct{ keptIn, shownBy []string }

func mapped(t *testing.T) map[string]mapping {
	t.Helper()
	code := regexp.MustCompile("`([^`]+)`")
	words := func(cell string) (all []string) {
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	rows := make(map[string]mapping)
	for _, cells := range tableRows(t, "../docs/invariants.md") {
		if name := words(cells[0]); len(name) == 1 {
			rows[name[0]] = mapping{keptIn: words(cells[len(cells)-2]), shownBy: words(cells[len(cells)-1])}
		}
	}
	return rows
}

// rules are the names of delivery.md §§4 and 5, of ADR-008's Appendix E and of the model.
func rules(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	model, err := os.ReadFile("../docs/verification/delivery.pml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`#ifndef (R_\w+)`).FindAllStringSubmatch(string(model), -1) {
		all[m[1]] = true
	}
	name := regexp.MustCompile("^(R_[A-Z]+|`[a-z]+(_[a-z]+)+`)$")
	for _, path := range []string{"../docs/delivery.md", "../docs/adr-008.md"} {
		for _, cells := range tableRows(t, path) {
			if name.MatchString(cells[0]) {
				all[strings.Trim(cells[0], "`")] = true
			}
		}
	}
	return all
}

// tableRows returns the cells of all tables of a page.
func tableRows(t *testing.T, path string) [][]string {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(page)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| ") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// testNames are the names of the tests: functions, and those that the suites give to their cases.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		suite := strings.HasSuffix(filepath.Dir(path), "test")
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "node_modules" || strings.HasPrefix(name, ".") && name != ".."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || !strings.HasSuffix(name, "_test.go") && !suite:
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") {
				names[f.Name.Name] = true
			}
		}
		if suite {
			ast.Inspect(file, func(n ast.Node) bool {
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						names[text] = true
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
