package table

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Anchor is a named piece of Go code: what begins on the line below the comment.
type Anchor struct {
	// Name is a rule and what the code does for it: R_MIN.lower-start.
	Name string
	// File is a path from the repository's root.
	File string
	// Line is the first line of the anchored code.
	Line int
	// Within is the name of the function, or of the declaration, that holds the code.
	Within string
}

// Rule returns the rule that the anchor is named for.
func (a Anchor) Rule() string {
	rule, _, _ := strings.Cut(a.Name, ".")
	return rule
}

// Above a declaration gofmt puts a space before what begins with a capital letter.
var anchorForm = regexp.MustCompile(`^// ?rule:(.*)$`)

var nameForm = regexp.MustCompile(`^[A-Za-z]+(_[A-Za-z]+)*\.[a-z0-9]+(-[a-z0-9]+)*$`)

// Anchors returns all anchors of the product's Go files below root, by name. It refuses a name
// that occurs twice, a malformed name, and an anchor above nothing.
func Anchors(root string) (map[string]Anchor, error) {
	all := make(map[string]Anchor)
	var wrong []error
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (name == "node_modules" || name[0] == '.'):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") ||
			strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found, err := anchorsOf(filepath.ToSlash(file), source)
		wrong = append(wrong, err)
		for _, a := range found {
			if other, twice := all[a.Name]; twice {
				wrong = append(wrong, fmt.Errorf("the anchor %s is in %s:%d and in %s:%d",
					a.Name, other.File, other.Line, a.File, a.Line))
			}
			all[a.Name] = a
		}
		return nil
	})
	return all, errors.Join(append(wrong, err)...)
}

func anchorsOf(path string, source []byte) ([]Anchor, error) {
	if !bytes.Contains(source, []byte("rule:")) {
		return nil, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source,
		parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []Anchor
	var wrong []error
	for _, group := range file.Comments {
		for _, comment := range group.List {
			m := anchorForm.FindStringSubmatch(comment.Text)
			if m == nil {
				continue
			}
			a := Anchor{Name: m[1], File: path, Line: set.Position(group.End()).Line + 1}
			node, parents := at(set, file, source, a.Line)
			if node == nil || !nameForm.MatchString(a.Name) {
				wrong = append(wrong,
					fmt.Errorf("%s: %s is no anchor: it needs the form rule.label"+
						" and code on the next line", set.Position(comment.Pos()), comment.Text))
				continue
			}
			a.Within = within(append(parents, node))
			all = append(all, a)
		}
	}
	return all, errors.Join(wrong...)
}

// at returns the outermost node that begins with the first token of a line, and the nodes around
// it, the file first. There is none if the line begins in the midst of something.
func at[S []byte | string](set *token.FileSet, file *ast.File, source S, line int) (
	found ast.Node, parents []ast.Node,
) {
	var around []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		if p := set.Position(n.Pos()); found == nil && p.Line == line && len(around) > 0 {
			indent := source[p.Offset-p.Column+1 : p.Offset]
			if strings.TrimSpace(string(indent)) == "" {
				found, parents = n, slices.Clone(around)
			}
		}
		around = append(around, n)
		return true
	})
	return found, parents
}

// within returns the name of the innermost declaration at the top of the file.
func within(nodes []ast.Node) string {
	name := ""
	for _, n := range nodes {
		switch n := n.(type) {
		case *ast.FuncDecl:
			return n.Name.Name
		case *ast.GenDecl:
			if len(n.Specs) == 0 {
				continue
			}
			switch spec := n.Specs[0].(type) {
			case *ast.ValueSpec:
				name = spec.Names[0].Name
			case *ast.TypeSpec:
				name = spec.Name.Name
			}
		case *ast.ValueSpec:
			return n.Names[0].Name
		case *ast.TypeSpec:
			return n.Name.Name
		}
	}
	return name
}
