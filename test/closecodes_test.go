package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// closeCodes returns the close codes that the server may send, by the names of their constants.
// They are the exported ones of transports/websocket, and those of the refusals that its receiver
// makes.
func closeCodes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../transports/websocket/*.go")
	must(t, err)
	values, sent := map[string]string{}, map[string]string{}
	var refusals []string
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, value := range n.Values {
					if number, is := value.(*ast.BasicLit); is && number.Kind == token.INT {
						values[n.Names[i].Name] = number.Value
					}
				}
			case *ast.CompositeLit:
				name, is := n.Type.(*ast.Ident)
				if is && name.Name == "refusal" && len(n.Elts) > 0 {
					code, is := n.Elts[0].(*ast.Ident)
					if !is {
						t.Errorf("%s: a refusal whose code is no constant", path)
						return true
					}
					refusals = append(refusals, code.Name)
				}
			}
			return true
		})
	}
	for name, value := range values {
		if strings.HasPrefix(name, "Close") || slices.Contains(refusals, name) {
			sent[name] = value
		}
	}
	return sent
}

// TestDocs_list_all_close_codes compares the lists of docs/api.md and of openapi.yaml with the
// close codes that the server may send. Those that are never sent are 1000 and 1006.
func TestDocs_list_all_close_codes(t *testing.T) {
	codes := closeCodes(t)
	if len(codes) < 13 {
		t.Fatalf("only %d close codes were found: %v", len(codes), codes)
	}
	want := slices.Sorted(maps.Values(codes))
	for _, list := range []struct{ path, begin, end string }{
		{"../docs/api.md", "| WebSocket close |", "\n\n"},
		{"../openapi.yaml", "then closes with its code:", "The reason"},
	} {
		page, err := os.ReadFile(list.path)
		must(t, err)
		_, text, found := strings.Cut(string(page), list.begin)
		text, _, ended := strings.Cut(text, list.end)
		if !found || !ended {
			t.Fatalf("%s has no list of close codes", list.path)
		}
		if list.path == "../docs/api.md" { // the first cells
			var first strings.Builder
			for row := range strings.Lines(text) {
				cell, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
				first.WriteString(cell + "\n")
			}
			text = first.String()
		}
		got := regexp.MustCompile(`\b[14]\d{3}\b`).FindAllString(text, -1)
		got = slices.DeleteFunc(got, func(c string) bool { return c == "1000" || c == "1006" })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %v, and the server sends %v", list.path, got, want)
		}
	}
}
