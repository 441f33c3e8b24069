// Package table reads and applies the recorded breaks. A break is a small change of the product
// that removes a rule, with the test that must notice it. The command test/mutate runs them.
// docs/internals/invariants.md lists the rules and explains how to add a break.
//
// A table is a text file. A break is a paragraph:
//
//	name: append-skips-a-number
//	shows: sequence_gapless
//	at: sequence_gapless.next-number
//	do: set right _ + 2
//	test: ./storage/memory ^TestStore$/^rules$/^Messages$
//
// `at` names an anchor: a comment //rule:sequence_gapless.next-number above a piece of Go code.
// `do` is an operation on that piece; see Operation. Lines that begin with - or + belong to the
// operation. Lines that begin with # are comments.
package table

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Break is one change, and the test that must notice it.
type Break struct {
	// Name is unique among all tables.
	Name string
	// Shows names rules of docs/internals/invariants.md.
	Shows []string
	// At is the name of an anchor.
	At string
	// Do is what happens to the anchored code.
	Do Operation
	// Package and Test are arguments of go test: the package's path from the root, and what
	// follows -run.
	Package, Test string
}

// Read returns the breaks of all tables (*.txt) in a directory. It refuses an incomplete break
// and a name that occurs twice.
func Read(dir string) ([]Break, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []Break
	seen := make(map[string]bool)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		breaks, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, b := range breaks {
			if seen[b.Name] {
				return nil, fmt.Errorf("%s: the name %s occurs twice", path, b.Name)
			}
			seen[b.Name] = true
		}
		all = append(all, breaks...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no breaks in %s", dir)
	}
	return all, nil
}

func parse(text string) ([]Break, error) {
	var breaks []Break
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		b, found, err := parseBreak(paragraph)
		if err != nil {
			return nil, err
		}
		if found {
			breaks = append(breaks, b)
		}
	}
	return breaks, nil
}

// parseBreak reads a paragraph; found is false if it holds comments only.
func parseBreak(paragraph string) (b Break, found bool, err error) {
	var do string
	var before, after []string
	for line := range strings.SplitSeq(paragraph, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		found = true
		if line[0] == '-' {
			before = append(before, line[1:])
			continue
		}
		if line[0] == '+' {
			after = append(after, line[1:])
			continue
		}
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "name":
			b.Name = value
		case "shows":
			b.Shows = strings.Fields(value)
		case "at":
			b.At = value
		case "do":
			do = value
		case "test":
			b.Package, b.Test, _ = strings.Cut(value, " ")
		default:
			return b, true, fmt.Errorf("%q is no line of a break", line)
		}
	}
	if !found {
		return b, false, nil
	}
	for _, value := range []string{b.Name, strings.Join(b.Shows, ""), b.At, do, b.Package, b.Test} {
		if value == "" {
			return b, true, fmt.Errorf("a break needs name, shows, at, do and test: %q", paragraph)
		}
	}
	b.Do, err = parseOperation(do, strings.Join(before, "\n"), strings.Join(after, "\n"))
	if err != nil {
		err = fmt.Errorf("the break %s: %w", b.Name, err)
	}
	return b, true, err
}

// Matches reports whether a part of the break's name, rules, or anchor fits a regular expression.
func (b Break) Matches(fits func(string) bool) bool {
	for _, word := range append([]string{b.Name, b.At}, b.Shows...) {
		if fits(word) {
			return true
		}
	}
	return false
}
