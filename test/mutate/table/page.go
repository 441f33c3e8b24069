package table

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// keptIn is the line in a rule's section that the places of its anchors follow.
const keptIn = "Kept in:"

// Page returns docs/internals/invariants.md with the places of the anchors below each rule. A
// section begins with ### and the rule's name. Page writes the text between the lines "Kept in:"
// and "Shown by:". It lists the files, each with the functions or declarations that hold an anchor.
//
// An anchor belongs to the rule in its name, and to the rules of its breaks. A rule without an
// anchor, and an anchor without a rule, is an error.
func Page(page string, anchors map[string]Anchor, breaks []Break) (string, error) {
	rules := make(map[string][]Anchor)
	for _, a := range anchors {
		rules[a.Rule()] = append(rules[a.Rule()], a)
	}
	for _, b := range breaks {
		for _, rule := range b.Shows {
			rules[rule] = append(rules[rule], anchors[b.At])
		}
	}
	var out []string
	var wrong []error
	rule, generated := "", false
	for line := range strings.SplitSeq(page, "\n") {
		switch name, isRule := strings.CutPrefix(line, "### "); {
		case isRule:
			rule = strings.Trim(name, "`")
			generated = false
		case line == keptIn:
			out = append(out, line, "")
			out = append(out, places(rules[rule])...)
			out = append(out, "")
			if len(rules[rule]) == 0 {
				wrong = append(wrong, fmt.Errorf("the rule %s has no anchor", rule))
			}
			delete(rules, rule)
			generated = true
			continue
		case line == "Shown by:":
			generated = false
		}
		if !generated {
			out = append(out, line)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		wrong = append(wrong, fmt.Errorf("there are anchors of %s, which has no section", rule))
	}
	return strings.Join(out, "\n"), errors.Join(wrong...)
}

// places returns a list of files with the names that hold the anchors, in order.
func places(anchors []Anchor) []string {
	names := make(map[string][]string)
	for _, a := range anchors {
		names[a.File] = append(names[a.File], "`"+a.Within+"`")
	}
	var lines []string
	for _, file := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[file])
		line := "- `" + file + "`:"
		for _, name := range slices.Compact(names[file]) {
			if len(line)+len(name) > 98 {
				lines = append(lines, line)
				line = " "
			}
			line += " " + name + ","
		}
		lines = append(lines, strings.TrimSuffix(line, ","))
	}
	return lines
}
