package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestStyle_tests_sleep_in_bubbles_only: a test that sleeps by the real clock is slow on a fast machine and fails on a slow one.
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
