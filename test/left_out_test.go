package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestShape_make_test_runs_what_make_check_leaves_out: each name that `make check` leaves out is
// a test of a package, and `make race` runs all tests of the packages, in their full length.
func TestShape_make_test_runs_what_make_check_leaves_out(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	must(t, err)
	makefile := strings.ReplaceAll(string(text), "\\\n", " ")
	section := func(begin string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^` + begin + `.*\n(?:\t.*\n)*`).FindString(makefile)
		if found == "" {
			t.Fatalf("the Makefile has no line that begins with %q", begin)
		}
		return found
	}
	fewer := regexp.MustCompile(` -(short|skip|run)\b`)
	race := section("race: ## stage")
	if fewer.MatchString(race) || !strings.Contains(race, "$(PACKAGES)") {
		t.Errorf("make race leaves tests out: %s", race)
	}
	if !regexp.MustCompile(`\brace\b`).MatchString(section("TOGETHER :=")) {
		t.Error("make test does not make race")
	}
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for _, pkg := range packages(t) {
		// make race leaves out DynamoDB, and the packages below test.
		if path := pkg.path(); within("test/...", path) || path == "storage/dynamodb" {
			continue
		}
		files, err := filepath.Glob("../" + pkg.path() + "/*_test.go")
		must(t, err)
		for _, file := range files {
			source, err := os.ReadFile(file)
			must(t, err)
			for _, found := range function.FindAllSubmatch(source, -1) {
				declared[string(found[1])] = true
			}
		}
	}
	_, names, _ := strings.Cut(section("SLOW_TO_WAIT_FOR :="), ":=")
	for _, name := range strings.Fields(names) {
		if !declared[name] {
			t.Errorf("no package has %s, which make check leaves out", name)
		}
	}
}
