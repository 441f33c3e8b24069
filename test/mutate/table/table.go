// Package table reads the table of breaks: small changes of the product that take a rule away, and for each the test that must notice it.
// test/mutate applies them; docs/invariants.md says which rule each of them is about.
//
// A table is a text file. A break is a paragraph:
//
//	name: append-skips-a-number
//	shows: sequence_gapless
//	file: storage/memory/messages.go
//	test: ./storage/memory ^TestStore$/^rules$/^Messages$
//	-c.Head++
//	+c.Head += 2
//
// The lines behind - are the old text, those behind + the new one, with line ends between them. The old text occurs exactly once in the file.
// Lines that begin with # are comments.
package table

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Break is one change, and who has to notice it.
type Break struct {
	// Name is unique among all tables.
	Name string
	// Shows names rows of docs/invariants.md.
	Shows []string
	// File is the path of a Go file, from the repository's root.
	File     string
	Old, New string
	// Package and Test are arguments of go test: the package's path from the root, and what follows -run.
	Package, Test string
}

// Read returns the breaks of all tables (*.txt) in a directory. It refuses what is incomplete, and a name that occurs twice.
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
		case "file":
			b.File = value
		case "test":
			b.Package, b.Test, _ = strings.Cut(value, " ")
		default:
			return b, true, fmt.Errorf("%q is no line of a break", line)
		}
	}
	b.Old, b.New = strings.Join(before, "\n"), strings.Join(after, "\n")
	switch {
	case !found:
	case b.Name == "" || len(b.Shows) == 0 || b.File == "" || b.Package == "" || b.Test == "":
		err = fmt.Errorf("a break needs name, shows, file and test: %q", paragraph)
	case b.Old == "" || b.Old == b.New:
		err = fmt.Errorf("the break %s changes nothing", b.Name)
	}
	return b, found, err
}

// Apply returns the source with the break in it. The old text must occur exactly once.
func (b Break) Apply(source string) (string, error) {
	if n := strings.Count(source, b.Old); n != 1 {
		return "", fmt.Errorf("the break %s: its old text occurs %d times in %s, want once:\n%s", b.Name, n, b.File, b.Old)
	}
	return strings.Replace(source, b.Old, b.New, 1), nil
}
