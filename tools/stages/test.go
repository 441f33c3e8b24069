package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gotest.tools/gotestsum/testjson"
)

const (
	// kept is how many lines of a failure are printed where it happens. All are in the logs.
	kept = 40
	// logs is where the output of every stage is, and every event of its tests as `go test -json`
	// writes them.
	logs = ".build/stages"
)

// outcome is what `go test` showed. It goes to `stages run` as JSON.
type outcome struct {
	Name                    string
	Passed, Failed, Skipped int
	Slowest                 []slow
	Failures                []failure
	Spent                   spent
	// OK is whether `go test` said so, and ran a test at all.
	OK bool
}

// slow is a test and its time.
type slow struct {
	Stage, Test string
	Elapsed     time.Duration
}

// failure is what failed, what it said at its end, and the command that repeats it.
type failure struct {
	What   string
	Output []string
	Repeat string
}

// runTests runs `go test` with the arguments, prints a line for each package and what failed, and
// reports whether all passed. A selection that matches no test fails.
func runTests(name string, args []string) (bool, error) {
	if err := adopt(); err != nil {
		return false, err
	}
	log, err := create(name + ".json")
	if err != nil {
		return false, err
	}
	defer log.Close()
	began := time.Now()
	command := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	pipe, err := piped(command, false)
	if err != nil {
		return false, err
	}
	defer pipe.Close()
	watch := &watcher{log: bufio.NewWriter(log), cached: make(map[string]bool)}
	execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout: pipe, Handler: watch, IgnoreNonJSONOutputLines: true,
	})
	if err != nil {
		return false, err
	}
	took, status, err := finish(command, began)
	if err != nil {
		return false, err
	}
	if err := watch.log.Flush(); err != nil {
		return false, err
	}
	out := judge(name, args, execution, status)
	out.Slowest = slowest(name, execution, watch.cached)
	out.Spent = took
	return out.OK, out.publish()
}

// judge says what an execution shows.
func judge(name string, args []string, execution *testjson.Execution, status int) outcome {
	out := outcome{Name: name, Skipped: len(execution.Skipped())}
	for _, path := range execution.Packages() {
		out.Passed += len(execution.Package(path).Passed)
	}
	for _, tc := range testjson.FilterFailedUnique(execution.Failed()) {
		whole := execution.Package(tc.Package).TestMainFailed()
		if tc.Package == "" || tc.Elapsed < 0 && whole {
			continue // a build error, which is below, or cut short by what ended the package
		}
		lines := execution.OutputLines(tc)
		out.Failures = append(out.Failures, failure{
			What:   strings.TrimSpace(fmt.Sprint(name, ": ", place(tc.Package), " ", tc.Test)),
			Output: plainly(lines),
			Repeat: repeat(os.Environ(), args, place(tc.Package), tc.Test.Name(), lines),
		})
	}
	out.Failed = len(out.Failures)
	if errors := execution.Errors(); len(errors) > 0 {
		out.Failures = append(out.Failures, failure{
			What: name + ": the build", Output: plainly(errors), Repeat: again(name),
		})
	}
	out.OK = status == 0 && len(out.Failures) == 0 && out.Passed > 0
	if !out.OK && len(out.Failures) == 0 {
		what := fmt.Sprintf("%s: go test ended with status %d", name, status)
		if status == 0 {
			what = name + ": the selection matches no test"
		}
		out.Failures = append(out.Failures, failure{What: what, Repeat: again(name)})
	}
	return out
}

// again is the command that repeats a stage.
func again(name string) string { return "make " + name }

// publish prints the outcome: to `stages run`, if that waits for it, and otherwise as a summary.
func (o outcome) publish() error {
	directory := os.Getenv(resultsVariable)
	if directory == "" {
		one := stage{Name: o.Name, OK: o.OK, Spent: o.Spent, Outcomes: []outcome{o}}
		printSummary(os.Stdout, []stage{one}, o.Spent.Wall)
		return nil
	}
	for _, f := range o.Failures {
		printFailure(os.Stdout, f, kept)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, o.Name+".json"), text, 0o600)
}

// slowest returns the ten slowest tests that ran, and did not come from Go's cache. A test with
// a subtest that took at least half of its time is left out for the subtest.
func slowest(
	name string, execution *testjson.Execution, cached map[string]bool,
) (found []slow) {
	for _, path := range execution.Packages() {
		if cached[path] {
			continue
		}
		within := make(map[string]time.Duration)
		cases := execution.Package(path).TestCases()
		for _, tc := range cases {
			for up := tc.Test.Parent(); up != ""; up = testjson.TestName(up).Parent() {
				within[up] = max(within[up], tc.Elapsed)
			}
		}
		for _, tc := range cases {
			if 2*within[tc.Test.Name()] < tc.Elapsed {
				found = append(found, slow{name, place(path) + " " + tc.Test.Name(), tc.Elapsed})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b slow) int { return int(b.Elapsed - a.Elapsed) })
	return found[:min(10, len(found))]
}

// plainly returns the lines that say something, without those that frame tests.
func plainly(lines []string) (found []string) {
	for _, line := range lines {
		line = strings.TrimRight(line, "\n")
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.Contains(line, "--- FAIL: ") {
			found = append(found, line)
		}
	}
	return found
}

// watcher keeps every event, and prints a line when a package ends.
type watcher struct {
	log *bufio.Writer
	// cached holds the packages whose tests did not run, because nothing has changed.
	cached map[string]bool
}

var _ testjson.EventHandler = (*watcher)(nil)

// Event implements testjson.EventHandler.
func (w *watcher) Event(event testjson.TestEvent, execution *testjson.Execution) error {
	if _, err := w.log.Write(append(slices.Clone(event.Bytes()), '\n')); err != nil {
		return err
	}
	if event.PackageEvent() && strings.Contains(event.Output, "\t(cached)") {
		w.cached[event.Package] = true
	}
	if event.Package == "" || !event.PackageEvent() || !event.Action.IsTerminal() {
		return nil
	}
	p := execution.Package(event.Package)
	if event.Action == testjson.ActionSkip || event.Action == testjson.ActionPass && p.IsEmpty() {
		return nil
	}
	note := ""
	if w.cached[event.Package] {
		note = "  (cached)"
	}
	_, err := fmt.Printf("  %-4s %7.1f s %5d tests  %s%s\n",
		word(event.Action == testjson.ActionPass), event.Elapsed, p.Total,
		place(event.Package), note)
	return err
}

// Err implements testjson.EventHandler.
func (w *watcher) Err(text string) error {
	_, err := io.WriteString(os.Stderr, text+"\n")
	return err
}

func word(ok bool) string {
	if ok {
		return "ok"
	}
	return "FAIL"
}
