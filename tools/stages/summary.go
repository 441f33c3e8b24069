package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	// shown is how many failures the summary repeats; brief is how many lines of each.
	shown = 10
	brief = 12
)

// printSummary prints the results of a run and its wall time. Failures are at the end, where they
// are seen first.
func printSummary(out io.Writer, stages []stage, wall time.Duration) {
	fmt.Fprintf(out, "\n%-17s %-7s %8s %8s %7s\n", "stage", "result", "wall s", "CPU s", "tests")
	total := spent{Wall: wall}
	var slow []slow
	var failures []failure
	passed, failed, skipped, all := 0, 0, 0, 0
	for _, s := range stages {
		total.CPU += s.Spent.CPU
		tests := 0
		for _, o := range s.Outcomes {
			tests += o.Passed + o.Failed + o.Skipped
			passed, failed, skipped = passed+o.Passed, failed+o.Failed, skipped+o.Skipped
			slow = append(slow, o.Slowest...)
			failures = append(failures, o.Failures...)
		}
		if s.Said != nil {
			failures = append(failures, failure{
				What:   s.Name,
				Output: s.Said,
				Repeat: again(s.Name),
			})
			failed++
		}
		all += tests
		printRow(out, s.Name, result(s), s.Spent, tests)
	}
	if len(stages) > 1 {
		printRow(out, "together", "", total, all)
	}
	printSlowest(out, slow)
	for i, f := range failures {
		if i == shown {
			fmt.Fprintf(out, "\n%d more failures are above.\n", len(failures)-shown)
			break
		}
		printFailure(out, f, brief)
	}
	if passed+failed == 0 {
		return
	}
	fmt.Fprintf(out, "\n%d passed, %d failed", passed, failed)
	if skipped > 0 {
		fmt.Fprintf(out, ", %d skipped", skipped)
	}
	fmt.Fprintln(out)
}

func printRow(out io.Writer, name, result string, took spent, tests int) {
	row := fmt.Sprintf("%-17s %-7s %8.0f %8.0f",
		name, result, took.Wall.Seconds(), took.CPU.Seconds())
	if tests > 0 {
		row += fmt.Sprintf(" %7d", tests)
	}
	fmt.Fprintln(out, row)
}

func result(s stage) string {
	if s.Left {
		return "not run"
	}
	return word(s.OK)
}

func printSlowest(out io.Writer, tests []slow) {
	if len(tests) == 0 {
		return
	}
	slices.SortStableFunc(tests, func(a, b slow) int { return int(b.Elapsed - a.Elapsed) })
	fmt.Fprintln(out, "\nslowest tests")
	for _, s := range tests[:min(10, len(tests))] {
		fmt.Fprintf(out, "%8.1f s  %-17s %s\n", s.Elapsed.Seconds(), s.Stage, s.Test)
	}
}

// printFailure prints what failed, the first and the last lines of what it said, and how to repeat
// it. The first say what was wrong, the last often hold the log of a service.
func printFailure(out io.Writer, f failure, lines int) {
	fmt.Fprintf(out, "\nFAILED %s\n", f.What)
	cut := len(f.Output) - lines
	for i, line := range f.Output {
		if cut > 0 && i >= lines/2 && i < lines/2+cut {
			if i == lines/2 {
				fmt.Fprintf(out, "    … %d lines, see %s …\n", cut, logs)
			}
			continue
		}
		fmt.Fprintf(out, "    %s\n", strings.TrimSpace(line))
	}
	fmt.Fprintf(out, "  repeat it:\n    %s\n", f.Repeat)
}
