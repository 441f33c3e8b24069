package main

import (
	"regexp"
	"slices"
	"strings"

	"gotest.tools/gotestsum/testjson"
)

// said finds what a test prints so that it can be repeated: a variable that holds a seed, or the
// seed of the library rapid.
var said = regexp.MustCompile(`\bTIDEMARK_[A-Z_]*SEED=[0-9]+|-rapid\.seed=[0-9]+`)

// matters reports whether a variable of the environment changes what a test does.
func matters(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return strings.HasPrefix(name, "TIDEMARK_") || strings.HasPrefix(name, "TEST_") ||
		name == "CGO_ENABLED"
}

// repeat returns the shell command that repeats one failure: a test, or its whole package if the
// name is empty. The arguments are those of the `go test` that failed, without the packages and
// without the selection.
func repeat(environment, args []string, where, test string, output []string) string {
	variables := slices.DeleteFunc(slices.Clone(environment), func(v string) bool {
		return !matters(v)
	})
	var last []string
	for _, line := range output {
		for _, found := range said.FindAllString(line, -1) {
			if strings.HasPrefix(found, "-") {
				last = []string{found}
				continue
			}
			variables = with(variables, found)
		}
	}
	slices.Sort(variables)
	words := make([]string, 0, len(variables)+len(args)+8)
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		words = append(words, name+"="+quote(value))
	}
	words = append(words, "go", "test")
	for _, flag := range flags(environment, args, test != "") {
		words = append(words, quote(flag))
	}
	if test != "" {
		words = append(words, "-run", quote(pattern(test)))
	}
	return strings.Join(append(append(words, where), last...), " ")
}

// with sets a variable.
func with(variables []string, variable string) []string {
	name, _, _ := strings.Cut(variable, "=")
	return append(slices.DeleteFunc(variables, func(v string) bool {
		return strings.HasPrefix(v, name+"=")
	}), variable)
}

// flags returns the flags of `go test`: those of GOFLAGS, which decide what is in the build cache,
// and those of the command line. Packages are left out, and with one test also the selection.
func flags(environment, args []string, one bool) (kept []string) {
	for _, variable := range environment {
		if value, is := strings.CutPrefix(variable, "GOFLAGS="); is {
			kept = strings.Fields(value)
		}
	}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, _, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-"):
			continue
		case slices.Contains([]string{"run", "skip"}, name) && one, name == "p":
			if !joined {
				i++
			}
			continue
		}
		kept = append(kept, arg)
		if !joined && takesValue(name) && i+1 < len(args) {
			i++
			kept = append(kept, args[i])
		}
	}
	return kept
}

// takesValue reports whether a flag that stages use has its value in the next word.
func takesValue(name string) bool {
	return slices.Contains([]string{"run", "skip", "timeout", "parallel", "cpu"}, name)
}

// pattern is the value of -run that selects one test.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

var plain = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote makes one word of the shell.
func quote(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// place is a package as the command line names it.
func place(path string) string {
	place := testjson.RelativePackagePath(path)
	if place == "." || strings.HasPrefix(place, "./") {
		return place
	}
	return "./" + place
}
