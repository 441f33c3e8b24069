package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// tabColumns is the width of a tab.
const tabColumns = 4

// TestStyle_lines_of_Go_are_narrow: each line of Go that is not generated has at most maxColumns
// columns. A field with a tag may have more, since a tag cannot be divided.
func TestStyle_lines_of_Go_are_narrow(t *testing.T) {
	for name, source := range trackedGo(t) {
		for _, line := range tooWide(name, source) {
			t.Errorf("%s, at most %d are allowed", line, maxColumns)
		}
	}
}

// TestStyle_lines_are_measured_in_columns: a tab has four columns, and a character one.
func TestStyle_lines_are_measured_in_columns(t *testing.T) {
	source := "\t" + strings.Repeat("é", maxColumns-tabColumns) + "\n\t\t" +
		strings.Repeat("x", maxColumns-2*tabColumns+1) + "\n" +
		"F int `help:\"" + strings.Repeat("x", maxColumns) + "\"`\n"
	if got := tooWide("p.go", []byte(source)); !slices.Equal(got, []string{"p.go:2: 101 columns"}) {
		t.Errorf("too wide are %q, want the second line", got)
	}
}

// tagged matches a field of a struct that ends with a tag.
var tagged = regexp.MustCompile("`\\w+:\".*\"`$")

// tooWide returns the lines above maxColumns, each with its place and its width.
func tooWide(name string, source []byte) (lines []string) {
	for i, line := range strings.Split(string(source), "\n") {
		columns := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
		if columns > maxColumns && !tagged.MatchString(line) {
			lines = append(lines, fmt.Sprintf("%s:%d: %d columns", name, i+1, columns))
		}
	}
	return lines
}

// trackedGo returns the Go files that git tracks and that are not generated, by their paths from
// the repository's root.
func trackedGo(t *testing.T) map[string][]byte {
	t.Helper()
	names, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z",
		"*.go").Output()
	must(t, err)
	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		source, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // about to be removed
		}
		must(t, err)
		file, err := parser.ParseFile(token.NewFileSet(), name, source,
			parser.ParseComments|parser.PackageClauseOnly)
		must(t, err)
		if !ast.IsGenerated(file) {
			files[name] = source
		}
	}
	if len(files) < 300 {
		t.Fatalf("git tracks only %d files of Go", len(files))
	}
	return files
}

// TestStyle_tests_sleep_in_bubbles_only: a test that sleeps by the real clock is slow on a fast
// machine and fails on a slow one.
func TestStyle_tests_sleep_in_bubbles_only(t *testing.T) {
	const sleep = "time." + "Sleep("
	checked := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		checked++
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(source), sleep) && !importsSynctest(t, path, source) {
			t.Errorf("%s sleeps, and is not about a testing/synctest bubble: poll with a "+
				"deadline instead", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 10 {
		t.Fatalf("only %d test files were found", checked)
	}
}

func importsSynctest(t *testing.T, path string, source []byte) bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, imported := range file.Imports {
		if imported.Path.Value == `"testing/synctest"` {
			return true
		}
	}
	return false
}
