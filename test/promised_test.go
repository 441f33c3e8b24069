package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedTest matches a test that a document names.
var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// TestPromised_every_row_of_the_API_has_a_test: each row of the tables of docs/internals/api-v1.md
// names at least one test, and each of them exists.
func TestPromised_every_row_of_the_API_has_a_test(t *testing.T) {
	there, rows := tests(t), 0
	page := string(readFile(t, "../docs/internals/api-v1.md"))
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| tests |\n") {
			continue
		}
		rows++
		cells := strings.Split(strings.TrimSpace(line), " | ")
		named := namedTest.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(named) == 0 {
			t.Errorf("no test shows this row: %s", line)
		}
		for _, name := range named {
			if !there[name[1]] {
				t.Errorf("there is no %s in this tree: %s", name[1], line)
			}
		}
	}
	if rows < 40 {
		t.Errorf("only %d rows", rows)
	}
}

// tests returns the names of all test functions of the tree.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	found := map[string]bool{}
	must(t, filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != ".." {
			return filepath.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, name := range declared.FindAllStringSubmatch(string(readFile(t, path)), -1) {
			found[name[1]] = true
		}
		return nil
	}))
	return found
}
