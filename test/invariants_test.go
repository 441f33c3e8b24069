package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// leastBreaks is how many breaks there were when they got anchors. A change may add some; one that
// removes a break replaces it.
const leastBreaks = 695

// TestInvariants_breaks_fit_the_code: each break applies to the code below its anchor, and changes
// it. Each anchor is used.
func TestInvariants_breaks_fit_the_code(t *testing.T) {
	all, places := breaks(t), anchors(t)
	used := make(map[string]bool)
	for _, b := range all {
		used[b.At] = true
		if _, err := applied(b, places); err != nil {
			t.Error(err)
		}
	}
	for name, at := range places {
		if !used[name] {
			t.Errorf("%s:%d: no break uses the anchor %s", at.File, at.Line-1, name)
		}
	}
	if len(all) < leastBreaks {
		t.Errorf("got %d breaks, want at least %d: none is removed without another one in its "+
			"place",
			len(all), leastBreaks)
	}
}

// applied returns the anchored file with the break in it.
func applied(b table.Break, places map[string]table.Anchor) (string, error) {
	at, there := places[b.At]
	if !there {
		return "", fmt.Errorf("the break %s names the anchor %s, which is in no file", b.Name, b.At)
	}
	source, err := os.ReadFile(filepath.Join("..", at.File))
	if err != nil {
		return "", err
	}
	return b.Apply(string(source), at.Line)
}

// TestInvariants_broken_code_compiles: a break that does not compile shows nothing. The types of
// the broken file are checked; of the other files of its package, only declarations are.
func TestInvariants_broken_code_compiles(t *testing.T) {
	all, places := breaks(t), anchors(t)
	var dirs []string
	for _, b := range all {
		dirs = append(dirs, "./"+path.Dir(places[b.At].File))
	}
	slices.Sort(dirs)
	packages := listed(t, slices.Compact(dirs))
	for _, b := range all {
		broken, err := applied(b, places)
		if err != nil {
			continue // the test above reports it
		}
		file := places[b.At].File
		if err := packages.check(file, broken); err != nil {
			t.Errorf("the break %s does not compile: %v", b.Name, err)
		}
	}
}

// TestInvariants_breaks_name_tests_that_exist: a break whose test was renamed would be reported as
// not noticed, and only when all breaks run.
func TestInvariants_breaks_name_tests_that_exist(t *testing.T) {
	names := make(map[string][]string)
	for _, b := range breaks(t) {
		if _, read := names[b.Package]; !read {
			names[b.Package] = testsOf(t, filepath.Join("..", b.Package))
		}
		top, _, _ := strings.Cut(b.Test, "/") // what follows selects subtests
		selected, err := regexp.Compile(top)
		if err != nil {
			t.Errorf("the test of the break %s: %v", b.Name, err)
			continue
		}
		if !slices.ContainsFunc(names[b.Package], selected.MatchString) {
			t.Errorf("the break %s names the test %s, and %s has none", b.Name, top, b.Package)
		}
	}
}

// testsOf returns the names of the test functions of the package in a folder.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	must(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		must(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil &&
				(strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// compiled are the packages that contain anchors, and their imports.
type compiled struct {
	set     *token.FileSet
	imports types.Importer
	// files are the Go files of each package's folder, without bodies of functions.
	files map[string]map[string]*ast.File
}

// listed compiles packages with their imports, and reads their declarations.
func listed(t *testing.T, dirs []string) *compiled {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles"},
		dirs...)
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir = ".."
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	c := &compiled{set: token.NewFileSet(), files: make(map[string]map[string]*ast.File)}
	exports := make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		var p struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
		}
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil || !slices.Contains(dirs, "./"+filepath.ToSlash(dir)) {
			continue
		}
		c.files["./"+filepath.ToSlash(dir)] = declarations(t, c.set, p.Dir, p.GoFiles)
	}
	c.imports = importer.ForCompiler(c.set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	return c
}

// declarations parses files, and removes the bodies of functions.
func declarations(
	t *testing.T, set *token.FileSet, dir string, names []string,
) map[string]*ast.File {
	t.Helper()
	files := make(map[string]*ast.File)
	for _, name := range names {
		path := filepath.Join(dir, name)
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				f.Body = nil
			}
		}
		files[name] = file
	}
	return files
}

// check returns the first error in a broken file.
func (c *compiled) check(file, source string) error {
	const name = "broken.go"
	broken, err := parser.ParseFile(c.set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	all := []*ast.File{broken}
	for other, parsed := range c.files["./"+path.Dir(file)] {
		if other != path.Base(file) {
			all = append(all, parsed)
		}
	}
	var first error
	config := types.Config{Importer: c.imports, Error: func(err error) {
		if e, ok := errors.AsType[types.Error](err); ok && first == nil &&
			c.set.Position(e.Pos).Filename == name {
			first = err
		}
	}}
	_, _ = config.Check(path.Dir(file), c.set, all, nil) // without bodies the others have errors
	return first
}

func breaks(t *testing.T) []table.Break {
	t.Helper()
	all, err := table.Read("mutate")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func anchors(t *testing.T) map[string]table.Anchor {
	t.Helper()
	all, err := table.Anchors("..")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestInvariants_every_rule_is_mapped: a rule of the documents or of the model has a section in
// docs/internals/invariants.md and a test with its name. Each section has a break.
func TestInvariants_every_rule_is_mapped(t *testing.T) {
	sections, shown := mapped(t), testNames(t)
	broken := make(map[string]bool)
	for _, b := range breaks(t) {
		for _, rule := range b.Shows {
			broken[rule] = true
			if _, there := sections[rule]; !there {
				t.Errorf("the break %s shows %s, which has no section in "+
					"docs/internals/invariants.md", b.Name, rule)
			}
		}
	}
	for rule := range sections {
		if !broken[rule] {
			t.Errorf("%s has no recorded break", rule)
		}
	}
	named := rules(t)
	for rule := range named {
		if _, there := sections[rule]; !there {
			t.Errorf("%s has no section in docs/internals/invariants.md", rule)
		}
		bears := func(name string) bool {
			return strings.Contains(strings.ToLower(name), strings.ToLower(rule))
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(shown)), bears) {
			t.Errorf("no test bears the name %s", rule)
		}
	}
	if len(named) != 14+8+13+26 {
		t.Errorf("got %d rules, want 14 of the hand-over, 8 of transfers, 13 of Appendix E and 26 "+
			"of delivery.md §5", len(named))
	}
}

// TestInvariants_the_map_is_true: every test that docs/internals/invariants.md names exists.
func TestInvariants_the_map_is_true(t *testing.T) {
	shown := testNames(t)
	for rule, tests := range mapped(t) {
		for _, name := range tests {
			if !shown[name] {
				t.Errorf("%s: there is no test %s", rule, name)
			}
		}
		if len(tests) == 0 {
			t.Errorf("%s names no test", rule)
		}
	}
}

// mapped returns the tests that docs/internals/invariants.md names for each rule.
func mapped(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/internals/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := make(map[string][]string)
	rule, shown := "", false
	for line := range strings.SplitSeq(string(page), "\n") {
		switch {
		case strings.HasPrefix(line, "### "):
			rule, shown = strings.Trim(line, "# `"), false
			tests[rule] = nil
		case strings.HasPrefix(line, "## "):
			shown = false
		case line == "Shown by:":
			shown = true
		case shown && strings.HasPrefix(line, "- "):
			tests[rule] = append(tests[rule], strings.Trim(line, "- `"))
		}
	}
	return tests
}

// rules returns the names of delivery.md §§4 and 5, of ADR-008's Appendix E and of the model.
func rules(t *testing.T) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	model, err := os.ReadFile("../docs/internals/verification/delivery.pml")
	if err != nil {
		t.Fatal(err)
	}
	guards := regexp.MustCompile(`#ifndef (R_\w+)`)
	for _, m := range guards.FindAllStringSubmatch(string(model), -1) {
		all[m[1]] = true
	}
	name := regexp.MustCompile("^(R_[A-Z]+|`[a-z]+(_[a-z]+)+`)$")
	// The last table of adr-008.md maps names that are no rules.
	appendix, _, _ := strings.Cut(guide(t, "internals/adr-008.md"), "\n## Other names")
	for _, page := range []string{guide(t, "internals/delivery.md"), appendix} {
		for _, cells := range tableRows(page) {
			if name.MatchString(cells[0]) {
				all[strings.Trim(cells[0], "`")] = true
			}
		}
	}
	return all
}

// tableRows returns the cells of all tables of a page.
func tableRows(page string) [][]string {
	var rows [][]string
	for line := range strings.Lines(page) {
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

// testNames returns the names of the tests: functions, and the cases of the suites.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		suite := strings.HasSuffix(filepath.Dir(path), "test")
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() &&
			(name == "node_modules" || strings.HasPrefix(name, ".") && name != ".."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") ||
			!strings.HasSuffix(name, "_test.go") && !suite:
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
