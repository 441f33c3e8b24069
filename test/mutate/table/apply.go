package table

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// Operation changes anchored code. PATH leads from the code to a part of it: condition.operand2
// is the second operand in the condition. Its steps are
//
//	condition, init, else   of an if, for or switch; condition also of a case
//	left, right             of an assignment, comparison, sum, key: value, or constant
//	operand                 of a chain of && or ||
//	arg, fun                of a call
//	result                  of a return
//	element                 of a composite literal
//	range                   of a for with range
//	body                    a statement in a function, if, for, or case on one line
//
// with a number if it is not the first. A step means the nearest part of that name in the header
// of a statement. The operations are
//
//	delete [N]              N statements (1), or the anchored element or case
//	delete PATH [N]         N operands, arguments, elements, results or conditions; init, else
//	negate [PATH]           the condition, result or right side, or what PATH leads to
//	always [PATH]           it counts as true; it is still evaluated
//	never [PATH]            it counts as false; it is still evaluated
//	operator [PATH] OP      another operator in the nearest comparison, sum or chain
//	set PATH EXPRESSION     another expression, or list of them; _ is the old one
//	swap-next               the statement and the next one change places
//	return-early [RESULTS]  a return before the statement
//	insert                  + lines before the code
//	insert-after            + lines behind it
//	replace [N]             + lines in place of N statements (1)
//	text                    in a string literal: - lines, which occur once, become + lines
//
// Variables and imports that are not used any more are no obstacle.
type Operation struct {
	verb, path, argument string
	count                int
	before, after        string
}

// form says what an operation may have besides its verb.
type form struct{ path, count, argument, before, after bool }

var forms = map[string]form{
	"delete":       {path: true, count: true},
	"negate":       {path: true},
	"always":       {path: true},
	"never":        {path: true},
	"operator":     {path: true, argument: true},
	"set":          {path: true, argument: true},
	"swap-next":    {},
	"return-early": {argument: true},
	"insert":       {after: true},
	"insert-after": {after: true},
	"replace":      {count: true, after: true},
	"text":         {before: true, after: true},
}

// parseOperation reads the value of do, and the lines that began with - and +.
func parseOperation(do, before, after string) (Operation, error) {
	verb, rest, _ := strings.Cut(do, " ")
	o := Operation{verb: verb, count: 1, before: before, after: after}
	form, known := forms[verb]
	if !known {
		return o, fmt.Errorf("%q is no operation", verb)
	}
	if word, tail, _ := strings.Cut(rest, " "); form.path && isPath(word) {
		o.path, rest = word, tail
	}
	if n, err := strconv.Atoi(rest); form.count && err == nil && n > 0 {
		o.count, rest = n, ""
	}
	o.argument = rest
	switch {
	case rest != "" && !form.argument:
		return o, fmt.Errorf("%s cannot have %q", verb, rest)
	case verb == "set" && o.path == "", rest == "" && (verb == "set" || verb == "operator"):
		return o, fmt.Errorf("%q lacks a path or an argument", do)
	case form.before != (before != ""), after != "" && !form.after, form.after && after == before:
		return o, fmt.Errorf("%s has other lines with - and +", verb)
	}
	return o, nil
}

// edit replaces a part of the source.
type edit struct {
	from, to int
	text     string
}

// piece is the anchored code, in its file.
type piece struct {
	set    *token.FileSet
	source string
	node   ast.Node
	// parents are the nodes around it, the file first.
	parents []ast.Node
}

// Apply returns the source of an anchored file with the break in it. The line is the anchor's.
func (b Break) Apply(source string, line int) (string, error) {
	broken, err := b.apply(source, line)
	if err != nil {
		return "", fmt.Errorf("the break %s, at %s: %w", b.Name, b.At, err)
	}
	return broken, nil
}

func (b Break) apply(source string, line int) (string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	p := piece{set: set, source: source}
	if p.node, p.parents = at(set, file, source, line); p.node == nil {
		return "", fmt.Errorf("no code begins on line %d", line)
	}
	edits, err := b.Do.edits(p)
	if err != nil {
		return "", err
	}
	broken := change(source, edits)
	if broken == source {
		return "", errors.New("it changes nothing")
	}
	return keepCompiling(source, broken)
}

// change applies edits that do not overlap.
func change(source string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var b strings.Builder
	at := 0
	for _, e := range edits {
		b.WriteString(source[at:e.from])
		b.WriteString(e.text)
		at = e.to
	}
	b.WriteString(source[at:])
	return b.String()
}

func (p piece) offset(pos token.Pos) int { return p.set.Position(pos).Offset }

func (p piece) text(n ast.Node) string { return p.source[p.offset(n.Pos()):p.offset(n.End())] }

func (p piece) replace(n ast.Node, text string) []edit {
	return []edit{{p.offset(n.Pos()), p.offset(n.End()), text}}
}

func (o Operation) edits(p piece) ([]edit, error) {
	switch o.verb {
	case "delete":
		if o.path != "" {
			return o.deletePart(p)
		}
		return p.replaceSome(o.count, "")
	case "replace":
		return p.replaceSome(o.count, o.after)
	case "insert":
		at := p.offset(p.node.Pos())
		return []edit{{at, at, o.after + p.separator()}}, nil
	case "insert-after":
		at := p.offset(p.node.End())
		return []edit{{at, at, p.separator() + o.after}}, nil
	case "return-early":
		at := p.offset(p.node.Pos())
		return []edit{{at, at, "return " + o.argument + "\n"}}, nil
	case "swap-next":
		list := p.siblings()
		if len(list) < 2 {
			return nil, errors.New("nothing follows")
		}
		return append(p.replace(list[0], p.text(list[1])),
			p.replace(list[1], p.text(list[0]))...), nil
	case "text":
		return o.changeText(p)
	}
	return o.changeExpression(p)
}

// separator is what stands between the anchored code and its neighbour.
func (p piece) separator() string {
	if _, isExpr := p.node.(ast.Expr); isExpr {
		return ","
	}
	return "\n"
}

// siblings returns the anchored node and those that follow it in the same list.
func (p piece) siblings() []ast.Node {
	var list []ast.Node
	switch parent := p.parents[len(p.parents)-1].(type) {
	case *ast.BlockStmt:
		list = nodes(parent.List...)
	case *ast.CaseClause:
		list = nodes(parent.Body...)
	case *ast.CommClause:
		list = nodes(parent.Body...)
	case *ast.CompositeLit:
		list = nodes(parent.Elts...)
	case *ast.CallExpr:
		list = nodes(parent.Args...)
	}
	if i := slices.Index(list, p.node); i >= 0 {
		return list[i:]
	}
	return []ast.Node{p.node}
}

// replaceSome puts a text in the place of the anchored node and of those that follow it.
func (p piece) replaceSome(count int, text string) ([]edit, error) {
	list := p.siblings()
	if count > len(list) {
		return nil, fmt.Errorf("%d nodes are wanted, there are %d", count, len(list))
	}
	e := edit{p.offset(p.node.Pos()), p.offset(list[count-1].End()), text}
	if _, isExpr := p.node.(ast.Expr); isExpr && text == "" {
		e.to += len(p.source[e.to:]) - len(strings.TrimPrefix(p.source[e.to:], ","))
	}
	return []edit{e}, nil
}

func (o Operation) deletePart(p piece) ([]edit, error) {
	owner, part, err := resolve(p.node, o.path)
	if err != nil {
		return nil, err
	}
	var list []ast.Node
	switch owner := owner.(type) {
	case *ast.BinaryExpr:
		return p.deleteOperands(owner, part, o.count)
	case *ast.IfStmt:
		switch part {
		case owner.Else:
			return p.deleteFrom(owner.Body.End(), part.End()), nil
		case owner.Init:
			return p.deleteFrom(part.Pos(), owner.Cond.Pos()), nil
		}
	case *ast.CallExpr:
		list = nodes(owner.Args...)
	case *ast.CompositeLit:
		list = nodes(owner.Elts...)
	case *ast.ReturnStmt:
		list = nodes(owner.Results...)
	case *ast.CaseClause:
		list = nodes(owner.List...)
	}
	if _, statement := part.(ast.Stmt); statement {
		return p.deleteFrom(part.Pos(), part.End()), nil
	}
	from := slices.Index(list, part)
	to := from + o.count
	switch {
	case from < 0 || to > len(list):
		return nil, fmt.Errorf("%s cannot be deleted", o.path)
	case to < len(list):
		return p.deleteFrom(part.Pos(), list[to].Pos()), nil
	case from > 0:
		return p.deleteFrom(list[from-1].End(), list[to-1].End()), nil
	}
	return p.deleteFrom(part.Pos(), list[to-1].End()), nil
}

func (p piece) deleteFrom(from, to token.Pos) []edit {
	return []edit{{p.offset(from), p.offset(to), ""}}
}

// deleteOperands takes some operands out of a chain.
func (p piece) deleteOperands(chain *ast.BinaryExpr, first ast.Node, count int) ([]edit, error) {
	all := nodes(operands(chain, chain.Op)...)
	from := slices.Index(all, first)
	if from < 0 || from+count > len(all) || count == len(all) {
		return nil, fmt.Errorf("there are %d operands", len(all))
	}
	var left []string
	for _, operand := range slices.Delete(all, from, from+count) {
		left = append(left, p.text(operand))
	}
	return p.replace(chain, strings.Join(left, " "+chain.Op.String()+" ")), nil
}

// changeText changes a string literal of the anchored code.
func (o Operation) changeText(p piece) ([]edit, error) {
	var edits []edit
	count := 0
	ast.Inspect(p.node, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			count += strings.Count(l.Value, o.before)
			edits = append(edits, p.replace(l, strings.Replace(l.Value, o.before, o.after, 1))...)
		}
		return true
	})
	if count != 1 {
		return nil, fmt.Errorf("the text occurs %d times in the anchored code, want once: %s",
			count, o.before)
	}
	return edits, nil
}

// changeExpression does negate, always, never, operator and set.
func (o Operation) changeExpression(p piece) ([]edit, error) {
	path := o.path
	if path == "" && o.verb != "operator" {
		var err error
		if path, err = subject(p.node); err != nil {
			return nil, err
		}
	}
	part := p.node
	if path != "" {
		var err error
		if _, part, err = resolve(p.node, path); err != nil {
			return nil, err
		}
	}
	if statement, ok := part.(ast.Stmt); ok && o.verb == "set" {
		return p.replace(statement, o.argument), nil
	}
	old, isExpr := part.(ast.Expr)
	switch {
	case o.verb == "operator":
		return o.changeOperator(p, part)
	case !isExpr:
		return nil, fmt.Errorf("%s is no expression", path)
	case o.verb == "negate":
		return p.replace(old, p.negated(old)), nil
	case o.verb == "always":
		return p.replace(old, "("+p.text(old)+" || true)"), nil
	case o.verb == "never":
		return p.replace(old, "(("+p.text(old)+") && false)"), nil
	}
	return p.setTo(old, o.argument)
}

func (o Operation) changeOperator(p piece, part ast.Node) ([]edit, error) {
	found := nearest(part, func(n ast.Node) bool { _, ok := n.(*ast.BinaryExpr); return ok })
	if found == nil {
		return nil, errors.New("there is no operator")
	}
	e := found.(*ast.BinaryExpr)
	at := p.offset(e.OpPos)
	return []edit{{at, at + len(e.Op.String()), o.argument}}, nil
}

// setTo puts an expression, or a list of them, in the place of another. Each _ in it is the old
// one.
func (p piece) setTo(old ast.Expr, argument string) ([]edit, error) {
	const head = "_("
	parsed, err := parser.ParseExpr(head + argument + ")")
	if err != nil {
		parsed, err = parser.ParseExpr("_{" + argument + "}")
	}
	if err != nil {
		return nil, fmt.Errorf("%q is no expression: %w", argument, err)
	}
	before := p.text(old)
	if !isSimple(old) {
		before = "(" + before + ")"
	}
	var edits []edit
	single := false
	switch parsed := parsed.(type) {
	case *ast.CallExpr:
		single = len(parsed.Args) == 1
		for _, a := range parsed.Args {
			edits = append(edits, placeholders(a, before, len(head)+1)...)
		}
	case *ast.CompositeLit:
		for _, e := range parsed.Elts {
			edits = append(edits, placeholders(e, before, len(head)+1)...)
		}
	}
	text := change(argument, edits)
	expression, err := parser.ParseExpr(argument)
	if single && err == nil && !isSimple(expression) {
		text = p.bracketed(old, text)
	}
	return p.replace(old, text), nil
}

// bracketed puts an expression into brackets if it stands in a larger one.
func (p piece) bracketed(old ast.Expr, text string) string {
	larger := false
	ast.Inspect(p.parents[0], func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			larger = larger || n.X == old || n.Y == old
		case *ast.UnaryExpr:
			larger = larger || n.X == old
		case *ast.SelectorExpr:
			larger = larger || n.X == old
		}
		return true
	})
	if larger {
		return "(" + text + ")"
	}
	return text
}

// placeholders returns edits that put the old expression in the place of each _.
func placeholders(in ast.Expr, before string, shift int) []edit {
	var edits []edit
	ast.Inspect(in, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok {
			for _, right := range a.Rhs {
				edits = append(edits, placeholders(right, before, shift)...)
			}
			return false
		}
		if name, ok := n.(*ast.Ident); ok && name.Name == "_" {
			at := int(name.Pos()) - shift
			edits = append(edits, edit{at, at + 1, before})
		}
		return true
	})
	return edits
}

func isSimple(e ast.Expr) bool {
	switch e.(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr, *ast.StarExpr, *ast.FuncLit:
		return false
	}
	return true
}

var opposite = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS,
	token.GTR: token.LEQ, token.LEQ: token.GTR,
}

func (p piece) negated(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return p.text(e.X)
		}
	case *ast.BinaryExpr:
		if op, ok := opposite[e.Op]; ok {
			return p.text(e.X) + " " + op.String() + " " + p.text(e.Y)
		}
	}
	return "!(" + p.text(e) + ")"
}
