package table

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// stepForm is a step of a path: the name of a part and its number, which is 1 if it is left out.
var stepForm = regexp.MustCompile(`^([a-z]+)(\d*)$`)

// isPath reports whether a word is a path: steps with dots between them.
func isPath(word string) bool {
	for step := range strings.SplitSeq(word, ".") {
		m := stepForm.FindStringSubmatch(step)
		if m == nil || !partNames[m[1]] {
			return false
		}
	}
	return true
}

var partNames = map[string]bool{
	"condition": true, "operand": true, "left": true, "right": true, "arg": true, "fun": true,
	"result": true, "element": true, "range": true, "init": true, "else": true, "body": true,
}

// parts returns the parts of a node that have a name, or none.
func parts(n ast.Node, name string) []ast.Node {
	if name == "body" {
		return body(n)
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		switch {
		case name == "condition":
			return nodes(n.Cond)
		case name == "init" && n.Init != nil:
			return nodes(n.Init)
		case name == "else" && n.Else != nil:
			return nodes(n.Else)
		}
	case *ast.ForStmt:
		switch {
		case name == "condition" && n.Cond != nil:
			return nodes(n.Cond)
		case name == "init" && n.Init != nil:
			return nodes(n.Init)
		}
	case *ast.SwitchStmt:
		switch {
		case name == "condition" && n.Tag != nil:
			return nodes(n.Tag)
		case name == "init" && n.Init != nil:
			return nodes(n.Init)
		}
	case *ast.CaseClause:
		if name == "condition" {
			return nodes(n.List...)
		}
	case *ast.RangeStmt:
		if name == "range" {
			return nodes(n.X)
		}
	case *ast.ReturnStmt:
		if name == "result" {
			return nodes(n.Results...)
		}
	case *ast.CallExpr:
		switch name {
		case "arg":
			return nodes(n.Args...)
		case "fun":
			return nodes(n.Fun)
		}
	case *ast.CompositeLit:
		if name == "element" {
			return nodes(n.Elts...)
		}
	default:
		return sides(n, name)
	}
	return nil
}

// body returns the statements of a function, of a function literal, or of an if or for.
func body(n ast.Node) []ast.Node {
	var block *ast.BlockStmt
	switch n := n.(type) {
	case *ast.FuncDecl:
		block = n.Body
	case *ast.FuncLit:
		block = n.Body
	case *ast.IfStmt:
		block = n.Body
	case *ast.ForStmt:
		block = n.Body
	case *ast.RangeStmt:
		block = n.Body
	case *ast.CaseClause:
		return nodes(n.Body...)
	}
	if block == nil {
		return nil
	}
	return nodes(block.List...)
}

// sides returns what stands left and right of an operator, and the operands of && and ||.
func sides(n ast.Node, name string) []ast.Node {
	var left, right []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		left, right = n.Lhs, n.Rhs
	case *ast.KeyValueExpr:
		left, right = []ast.Expr{n.Key}, []ast.Expr{n.Value}
	case *ast.ValueSpec:
		right = n.Values
	case *ast.BinaryExpr:
		if isLogical(n) {
			if name == "operand" {
				return nodes(operands(n, n.Op)...)
			}
			return nil
		}
		left, right = []ast.Expr{n.X}, []ast.Expr{n.Y}
	}
	switch name {
	case "left":
		return nodes(left...)
	case "right":
		return nodes(right...)
	}
	return nil
}

func isLogical(e *ast.BinaryExpr) bool { return e.Op == token.LAND || e.Op == token.LOR }

// operands returns the operands of a chain such as a && b && c.
func operands(e ast.Expr, op token.Token) []ast.Expr {
	if b, ok := ast.Unparen(e).(*ast.BinaryExpr); ok && b.Op == op {
		return append(operands(b.X, op), operands(b.Y, op)...)
	}
	return []ast.Expr{e}
}

func nodes[N ast.Node](all ...N) []ast.Node {
	list := make([]ast.Node, len(all))
	for i, n := range all {
		list[i] = n
	}
	return list
}

// resolve follows a path from a node. It returns the node at its end and the node that it is a
// part of. A step means the nearest part of that name: breadth first, without blocks.
func resolve(from ast.Node, path string) (owner, found ast.Node, err error) {
	found = from
	for step := range strings.SplitSeq(path, ".") {
		m := stepForm.FindStringSubmatch(step)
		if m == nil || !partNames[m[1]] {
			return nil, nil, fmt.Errorf("%q is no step of a path", step)
		}
		number, err := strconv.Atoi(m[2])
		if m[2] == "" {
			number, err = 1, nil
		}
		if err != nil {
			return nil, nil, err
		}
		var all []ast.Node
		owner = nearest(found, func(n ast.Node) bool {
			all = parts(n, m[1])
			return len(all) > 0
		})
		if owner == nil || number < 1 || number > len(all) {
			return nil, nil, fmt.Errorf("there is no %s", step)
		}
		found = all[number-1]
	}
	return owner, found, nil
}

// nearest returns the first node that fits, breadth first: the node itself, then its parts. It
// looks into no block, neither of a statement nor of a function.
func nearest(from ast.Node, fits func(ast.Node) bool) ast.Node {
	for level := []ast.Node{from}; len(level) > 0; {
		var next []ast.Node
		for _, n := range level {
			if fits(n) {
				return n
			}
			next = append(next, children(n)...)
		}
		level = next
	}
	return nil
}

// children returns the direct parts of a node, without blocks, bodies of clauses, and else.
func children(of ast.Node) []ast.Node {
	end := of.End()
	switch of := of.(type) {
	case *ast.CaseClause:
		end = of.Colon
	case *ast.CommClause:
		end = of.Colon
	case *ast.IfStmt:
		end = of.Body.Pos()
	}
	var all []ast.Node
	ast.Inspect(of, func(n ast.Node) bool {
		if n == of {
			return true
		}
		if _, block := n.(*ast.BlockStmt); n != nil && !block && n.End() <= end {
			all = append(all, n)
		}
		return false
	})
	return all
}

// subject returns the part that negate, always and never are about if there is no path.
func subject(n ast.Node) (string, error) {
	for _, name := range []string{"condition", "result", "right"} {
		if len(parts(n, name)) > 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("the anchored code has no condition, result or right side")
}
