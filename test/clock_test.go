package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// TestClock_periods_are_measured_by_the_monotonic_clock: a time from time.Now contains the
// monotonic clock, which does not jump. It loses that if anything but Add, Sub and comparisons is
// done to it (see the documentation of package time). So leases, deadlines, tickets and limits hold
// when an operator sets the clock. The exceptions show the time of day.
func TestClock_periods_are_measured_by_the_monotonic_clock(t *testing.T) {
	strips := []string{
		"UTC", "Local", "In", "Round", "Truncate", "AddDate", "Unix", "UnixMilli", "UnixNano",
		"UnixMicro", "Format", "AppendFormat",
	}
	showTheTime := []string{
		"transports/internal/stream/http.go",    // the Date of a response
		"transports/attachments/attachments.go", // when the day of a quota ends
		"transports/auth/sign.go",               // the iat of a token
	}
	calls := 0
	for path, source := range goFiles(t) {
		name, err := filepath.Rel("..", path)
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.ToSlash(name)
		if !within("server/...", filepath.ToSlash(filepath.Dir(name))) &&
			!within("transports/...",
				filepath.ToSlash(filepath.Dir(name))) || slices.Contains(showTheTime, name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		// Results of time.Now, direct or by a name, and the operations on them.
		nows := map[string]bool{}
		isNow := func(e ast.Expr) bool {
			call, ok := e.(*ast.CallExpr)
			if !ok {
				return false
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "Now" {
				return false
			}
			of, ok := selector.X.(*ast.Ident)
			return ok && of.Name == "time"
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && isNow(e) {
				calls++
			}
			if assign, ok := n.(*ast.AssignStmt); ok && len(assign.Lhs) == len(assign.Rhs) {
				for i := range assign.Rhs {
					if name, ok := assign.Lhs[i].(*ast.Ident); ok && isNow(assign.Rhs[i]) {
						nows[name.Name] = true
					}
				}
			}
			return true
		})
		ast.Inspect(file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(strips, selector.Sel.Name) {
				return true
			}
			of, named := selector.X.(*ast.Ident)
			if isNow(selector.X) || named && nows[of.Name] {
				t.Errorf("%s takes the monotonic reading off the present time by %s: a period "+
					"measured with it jumps with the clock", name, selector.Sel.Name)
			}
			return true
		})
	}
	if calls < 10 {
		t.Errorf("only %d calls of time.Now were found", calls)
	}
}
