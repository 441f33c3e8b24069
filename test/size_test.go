package test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The numbers of CONTRIBUTING.md, Style.
const (
	maxFileLines = 600
	maxFuncLines = 80
)

// TestSize_what_can_be_read_in_one_go bounds the lengths of files and functions. Generated code is
// left out. Of tests and conformance suites only the length of files is bounded.
func TestSize_what_can_be_read_in_one_go(t *testing.T) {
	for path, source := range trackedGo(t) {
		if n := bytes.Count(source, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d are allowed", path, n, maxFileLines)
		}
	}
	files := 0
	for path, source := range goFiles(t) {
		if strings.HasSuffix(filepath.Dir(path), "test") {
			continue
		}
		for name, n := range functions(t, path, source) {
			if n > maxFuncLines {
				t.Errorf("%s: the function %s has %d lines, at most %d are allowed",
					path, name, n, maxFuncLines)
			}
		}
		files++
	}
	if files < 100 {
		t.Errorf("only %d files were found", files)
	}
}

// TestSize_of_the_README: who looks at the project for the first time reads it whole.
func TestSize_of_the_README(t *testing.T) {
	const most = 149
	if n := bytes.Count(readFile(t, "../README.md"), []byte("\n")); n > most {
		t.Errorf("README.md has %d lines, at most %d are allowed", n, most)
	}
}

// TestSize_of_what_is_kept: the repository contains no build results, nothing that a merge left
// behind, and no links, which may lead out of it.
func TestSize_of_what_is_kept(t *testing.T) {
	const most = 304 << 10 // the types of the contract, in web/client, are the largest
	kept, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	files := strings.Split(strings.TrimSuffix(string(kept), "\x00"), "\x00")
	if len(files) < 100 {
		t.Fatalf("git knows %d files", len(files))
	}
	for _, name := range files {
		info, err := os.Lstat(filepath.Join("..", name))
		if err != nil {
			continue // about to be removed
		}
		if info.Mode()&os.ModeSymlink != 0 {
			t.Errorf("%s is a link", name)
		}
		if ext := filepath.Ext(name); ext == ".orig" || ext == ".rej" {
			t.Errorf("%s was left behind", name)
		}
		if info.Size() > most {
			t.Errorf("%s has %d bytes, at most %d are kept", name, info.Size(), most)
		}
	}
}

// TestSize_counting checks how functions are measured.
func TestSize_counting(t *testing.T) {
	source := "package p\n\nfunc (r *R[T]) F() {\n\t// nothing\n}\n\nfunc g() {}\n"
	got := functions(t, "p.go", []byte(source))
	want := map[string]int{"F": 3, "g": 1}
	if len(got) != len(want) || got["F"] != want["F"] || got["g"] != want["g"] {
		t.Errorf("functions = %v, want %v", got, want)
	}
}

// goFiles returns the repository's Go files that are neither generated nor tests.
func goFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() &&
			(name == "node_modules" || strings.HasPrefix(name, ".") && name != ".."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") ||
			strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source,
			parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		if !ast.IsGenerated(file) {
			files[path] = source
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// functions returns the lengths of the declared functions by name, from `func` to the closing
// brace. Of several with one name it returns the greatest length.
func functions(t *testing.T, path string, source []byte) map[string]int {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]int)
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1
			lines[f.Name.Name] = max(lines[f.Name.Name], n)
		}
	}
	return lines
}
