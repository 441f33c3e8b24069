package test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// declaredTests returns the names of all tests, and of those here.
func declaredTests(t *testing.T) (declared, here map[string]bool) {
	t.Helper()
	declared, here = map[string]bool{}, map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() &&
			slices.Contains([]string{".git", ".build", "node_modules"}, entry.Name()):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, found := range function.FindAllSubmatch(source, -1) {
			declared[string(found[1])] = true
			here[string(found[1])] = filepath.Dir(path) == "../test"
		}
		return err
	}))
	return declared, here
}

// TestCluster_table_names_tests_that_exist: each row of the table of faults in docs/cluster.md
// names a test.
func TestCluster_table_names_tests_that_exist(t *testing.T) {
	page, err := os.ReadFile("../docs/cluster.md")
	must(t, err)
	declared, _ := declaredTests(t)
	_, table, _ := strings.Cut(string(page), "## What breaks")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := 0
	for line := range strings.SplitSeq(table, "\n") {
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| what breaks") ||
			strings.HasPrefix(line, "|---") {
			continue
		}
		rows++
		found := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(line, -1)
		for _, n := range found {
			if !declared[n[1]] {
				t.Errorf("docs/cluster.md names %s, and there is no such test", n[1])
			}
		}
		if len(found) == 0 {
			t.Errorf("nobody tried what this row of docs/cluster.md says: %s", line)
		}
	}
	if rows < 12 {
		t.Errorf("docs/cluster.md has %d rows of what breaks", rows)
	}
}

// TestFault_table_names_tests_that_exist compares docs/faults.md and docs/internals/chaos.md with
// the tests. Each row names a test, each named test exists, and each test of a fault under the real
// server is named.
func TestFault_table_names_tests_that_exist(t *testing.T) {
	page := guide(t, "faults.md") + guide(t, "internals/chaos.md")
	declared, here := declaredTests(t)
	named := map[string]bool{}
	rows := 0
	name := regexp.MustCompile("`(Test\\w+)`")
	for line := range strings.SplitSeq(page, "\n") {
		found := name.FindAllStringSubmatch(line, -1)
		for _, n := range found {
			if named[n[1]] = true; !declared[n[1]] {
				t.Errorf("docs/faults.md names %s, and there is no such test", n[1])
			}
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| fault") ||
			strings.HasPrefix(line, "|---") {
			continue
		}
		if rows++; len(found) == 0 {
			t.Errorf("docs/faults.md has a row without a test: %s", line)
		}
	}
	if rows < 15 {
		t.Errorf("docs/faults.md has %d rows", rows)
	}
	for n, isHere := range here {
		if isHere && strings.HasPrefix(n, "TestFault_") && n != t.Name() && !named[n] {
			t.Errorf("docs/faults.md does not name %s", n)
		}
	}
}
