package table

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"strconv"
)

// keepCompiling adds uses of unused variables, and drops the names of unused imports. So the file
// still compiles. The lines keep their numbers.
func keepCompiling(sound, broken string) (string, error) {
	before, err := parser.ParseFile(token.NewFileSet(), "", sound, 0)
	if err != nil {
		return "", err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", broken, 0)
	if err != nil {
		return "", err
	}
	offset := func(pos token.Pos) int { return set.Position(pos).Offset }
	used := usedVariables(file)
	var edits []edit
	var around []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		for _, name := range declared(n) {
			if name.Name == "_" || name.Obj == nil || used[name.Obj.Pos()] {
				continue
			}
			at, text := useAt(n, around, name.Name)
			if at.IsValid() {
				edits = append(edits, edit{offset(at), offset(at), text})
			}
		}
		around = append(around, n)
		return true
	})
	seemed := unusedImports(before)
	for where, spec := range unusedImports(file) {
		if seemed[where] != nil {
			continue
		}
		at := offset(spec.Path.Pos())
		e := edit{at, at, "_ "}
		if spec.Name != nil {
			e.from = offset(spec.Name.Pos())
		}
		edits = append(edits, e)
	}
	return change(broken, edits), nil
}

// declared returns the local variables that a statement declares.
func declared(n ast.Node) (names []*ast.Ident) {
	add := func(all ...ast.Expr) {
		for _, e := range all {
			if name, ok := e.(*ast.Ident); ok && name.Obj != nil && name.Obj.Pos() == name.Pos() {
				names = append(names, name)
			}
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			add(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			add(n.Key, n.Value)
		}
	case *ast.DeclStmt:
		for _, spec := range n.Decl.(*ast.GenDecl).Specs {
			if v, ok := spec.(*ast.ValueSpec); ok && n.Decl.(*ast.GenDecl).Tok == token.VAR {
				for _, name := range v.Names {
					add(name)
				}
			}
		}
	}
	return names
}

// usedVariables returns the places where the used variables are declared. A variable is used if it
// is named anywhere except where it is declared or assigned to.
func usedVariables(file *ast.File) map[token.Pos]bool {
	assigned := make(map[*ast.Ident]bool)
	used := make(map[token.Pos]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if name, ok := e.(*ast.Ident); ok {
					assigned[name] = true
				}
			}
		case *ast.Ident:
			if n.Obj != nil && !assigned[n] && n.Obj.Pos() != n.Pos() {
				used[n.Obj.Pos()] = true
			}
		}
		return true
	})
	return used
}

// useAt returns where a statement that uses a variable can stand, and its text.
func useAt(n ast.Node, around []ast.Node, name string) (token.Pos, string) {
	inside := "_ = " + name + ";"
	var body *ast.BlockStmt
	switch n := n.(type) {
	case *ast.RangeStmt:
		body = n.Body
	default:
		switch parent := around[len(around)-1].(type) {
		case *ast.IfStmt:
			body = parent.Body
		case *ast.ForStmt:
			body = parent.Body
		case *ast.SwitchStmt:
			body = parent.Body
		case *ast.TypeSwitchStmt:
			body = parent.Body
		case *ast.CommClause:
			if parent.Comm == n {
				return parent.Colon + 1, inside
			}
		}
	}
	if body == nil {
		return n.End(), "; _ = " + name
	}
	if len(body.List) > 0 {
		if clause, ok := body.List[0].(*ast.CaseClause); ok {
			return clause.Colon + 1, inside
		}
	}
	return body.Lbrace + 1, inside
}

// unusedImports returns the imports whose names occur nowhere in the file, by path. The name is
// guessed from the path, so a used import may be among them.
func unusedImports(file *ast.File) map[string]*ast.ImportSpec {
	names := make(map[string]bool)
	for _, name := range file.Unresolved {
		names[name.Name] = true
	}
	all := make(map[string]*ast.ImportSpec)
	for _, spec := range file.Imports {
		where, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(where)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name != "_" && !names[name] {
			all[where] = spec
		}
	}
	return all
}
