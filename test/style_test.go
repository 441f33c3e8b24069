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

// TestStyle_other_files_are_narrow_and_plain: lines of files in other languages have at most
// maxColumns, too. Users are "they" in them.
func TestStyle_other_files_are_narrow_and_plain(t *testing.T) {
	files := tracked(t, isNarrow)
	if len(files) < 50 {
		t.Fatalf("git tracks only %d files of other languages", len(files))
	}
	for name, source := range files {
		for _, line := range tooWide(name, source) {
			t.Errorf("%s, at most %d are allowed", line, maxColumns)
		}
		for _, problem := range pronouns(name, 1, string(source)) {
			t.Error(problem)
		}
	}
}

// TestStyle_other_files_are_found shows which files have narrow lines.
func TestStyle_other_files_are_found(t *testing.T) {
	for name, want := range map[string]bool{
		"openapi.yaml": true, "docs/model.pml": true, ".golangci.yml": true, "Makefile": true,
		"tools/Makefile": true, "scripts/need": true, ".ci/run": true, "web/app/src/App.tsx": true,
		"web/client/src/types.ts": true, "web/client/src/wire.gen.ts": false,
		"web/dist/sw.js":   false,
		"migrations/x.sql": true, "storage/x/testdata/v1.sql": false,
		"LICENSE": false, "cmd/run": false, "go.sum": false, "package-lock.json": false,
	} {
		if got := isNarrow(name); got != want {
			t.Errorf("isNarrow(%q) = %t, want %t", name, got, want)
		}
	}
}

// narrow are the extensions of files, besides those of Go, whose lines are bounded.
var narrow = []string{
	".mjs", ".js", ".ts", ".tsx", ".css", ".html", ".yaml", ".yml", ".pml", ".sh", ".sql",
	".conf", ".service",
}

// isNarrow reports whether a file of another language than Go has lines of at most maxColumns.
func isNarrow(name string) bool {
	extension := filepath.Ext(name)
	if extension == ".sql" && strings.Contains(name, "/testdata/") {
		return false // a dump
	}
	if strings.HasSuffix(name, ".gen.ts") || strings.HasPrefix(name, "web/dist/") {
		return false
	}
	if strings.HasPrefix(name, "scripts/") || strings.HasPrefix(name, ".ci/") {
		return extension == "" || slices.Contains(narrow, extension)
	}
	return filepath.Base(name) == "Makefile" || slices.Contains(narrow, extension)
}

// TestStyle_comments_are_plain: users are "they" in the comments of Go files.
func TestStyle_comments_are_plain(t *testing.T) {
	for name, source := range trackedGo(t) {
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, source, parser.ParseComments)
		must(t, err)
		for _, group := range file.Comments {
			for _, comment := range group.List {
				first := positions.Position(comment.Pos()).Line
				for _, problem := range pronouns(name, first, comment.Text) {
					t.Error(problem)
				}
			}
		}
	}
}

// TestStyle_pronouns_are_found shows that the check finds what it bans.
func TestStyle_pronouns_are_found(t *testing.T) {
	got := pronouns("run", 7, "# A user\n# and his chats.\n# The hero.\ngrep -hE x # Whoever.\n")
	want := []string{`run:8: "his": users are they`, `run:10: "Whoever": users are they`}
	if !slices.Equal(got, want) {
		t.Errorf("pronouns are %q, want %q", got, want)
	}
}

// option matches an option of a command, such as that of grep -hE, which is no pronoun.
var option = regexp.MustCompile(`\s-\w+`)

// pronouns returns the banned words of a text that begins at a line, each with its place.
func pronouns(name string, first int, text string) (found []string) {
	for i, line := range strings.Split(text, "\n") {
		if word := bannedWords.FindString(option.ReplaceAllString(line, "")); word != "" {
			found = append(found, fmt.Sprintf("%s:%d: %q: users are they", name, first+i, word))
		}
	}
	return found
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
		field := filepath.Ext(name) == ".go" && tagged.MatchString(line)
		if columns > maxColumns && !field {
			lines = append(lines, fmt.Sprintf("%s:%d: %d columns", name, i+1, columns))
		}
	}
	return lines
}

// trackedGo returns the Go files that git tracks and that are not generated, by their paths from
// the repository's root.
func trackedGo(t *testing.T) map[string][]byte {
	t.Helper()
	files := tracked(t, func(name string) bool { return strings.HasSuffix(name, ".go") })
	for name, source := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, source,
			parser.ParseComments|parser.PackageClauseOnly)
		must(t, err)
		if ast.IsGenerated(file) {
			delete(files, name)
		}
	}
	if len(files) < 300 {
		t.Fatalf("git tracks only %d files of Go", len(files))
	}
	return files
}

// tracked returns the files that git tracks and that are chosen, by their paths from the
// repository's root.
func tracked(t *testing.T, chosen func(name string) bool) map[string][]byte {
	t.Helper()
	names, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	must(t, err)
	files := map[string][]byte{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if !chosen(name) {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", name))
		if os.IsNotExist(err) {
			continue // about to be removed
		}
		must(t, err)
		files[name] = source
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
