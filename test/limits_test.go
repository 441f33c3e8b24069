package test

import (
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// documented matches a row of docs/limits.md: the value of its second cell, and the code of its
// third.
var documented = regexp.MustCompile("^\\| [^|]+ \\| (\\d[\\d,]*)? ?([A-Za-z]*)[^|]* \\| " +
	"`([^`:]+): (\\w+)` \\|")

// naming matches a row of docs/limits.md that names a constant or a default.
var naming = regexp.MustCompile("^\\|.*`[a-z0-9./]+: \\w+` \\|")

// TestLimits_documented_values_are_those_of_the_code compares each row of docs/limits.md that names
// a constant or a default with its value.
func TestLimits_documented_values_are_those_of_the_code(t *testing.T) {
	page, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	compared, named := 0, 0
	for line := range strings.Lines(string(page)) {
		if naming.MatchString(line) {
			named++
		}
		row := documented.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		values := valuesOf(t, row[3], row[4])
		if row[1] == "" { // the row has no value of its own
			if len(values) == 0 {
				t.Errorf("%s has no %s", row[3], row[4])
			}
			compared++
			continue
		}
		want, err := strconv.ParseInt(strings.ReplaceAll(row[1], ",", ""), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		switch row[2] {
		case "KiB":
			want <<= 10
		case "MiB":
			want <<= 20
		case "ms":
			want *= int64(time.Millisecond)
		case "s":
			want *= int64(time.Second)
		case "min":
			want *= int64(time.Minute)
		case "h":
			want *= int64(time.Hour)
		}
		if len(values) != 1 || !values[want] {
			t.Errorf("docs/limits.md says that %s: %s is %s %s (%d); the code has %v",
				row[3], row[4], row[1], row[2], want, values)
		}
		compared++
	}
	if compared != named || compared < 40 {
		t.Errorf("%d rows were compared, %d name something in the code", compared, named)
	}
}

// valuesOf returns the values of a name in the files of a package: of its constant, or of the
// defaults of a Config.
func valuesOf(t *testing.T, dir, name string) map[int64]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no package %s: %v", dir, err)
	}
	given := regexp.MustCompile(`\b` + name + `(?:,|\s*=)\s*([0-9][^)/\n]*)`)
	values := map[int64]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range given.FindAllStringSubmatch(string(source), -1) {
			expression := found[1]
			for unit, ns := range map[string]time.Duration{
				"time.Millisecond": time.Millisecond, "time.Second": time.Second,
				"time.Minute": time.Minute, "time.Hour": time.Hour,
			} {
				expression = strings.ReplaceAll(expression, unit, strconv.FormatInt(int64(ns), 10))
			}
			value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expression)
			if err != nil || value.Value == nil {
				t.Fatalf("%s: %s is %q: %v", file, name, found[1], err)
			}
			n, exact := constant.Int64Val(constant.ToInt(value.Value))
			if !exact {
				t.Fatalf("%s: %s is %q, which is no integer", file, name, found[1])
			}
			values[n] = true
		}
		for unit, ns := range map[string]time.Duration{
			"time.Second": time.Second, "time.Minute": time.Minute,
		} {
			one := regexp.MustCompile(`\b` + name + `(?:,|\s*=)\s*` + regexp.QuoteMeta(unit) + `\b`)
			if one.Match(source) {
				values[int64(ns)] = true
			}
		}
	}
	return values
}
