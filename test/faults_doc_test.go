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

// TestFault_table_names_tests_that_exist: docs/faults.md names a test in each row, every test that it names exists, and every test of a fault under the real server is named.
func TestFault_table_names_tests_that_exist(t *testing.T) {
	page, err := os.ReadFile("../docs/faults.md")
	must(t, err)
	declared, here := map[string]bool{}, map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	must(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".build", "node_modules"}, entry.Name()):
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
	named := map[string]bool{}
	rows := 0
	name := regexp.MustCompile("`(Test\\w+)`")
	for line := range strings.SplitSeq(string(page), "\n") {
		found := name.FindAllStringSubmatch(line, -1)
		for _, n := range found {
			if named[n[1]] = true; !declared[n[1]] {
				t.Errorf("docs/faults.md names %s, and there is no such test", n[1])
			}
		}
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| fault") || strings.HasPrefix(line, "|---") {
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
