// Command mutate shows that the tests notice the faults they are there for. It applies each
// recorded break of the product by itself, with go test's overlay, so that no file changes. The
// test named beside the break must fail. Without a break, each of those tests must pass first.
// `make mutate` runs it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark/test/mutate/table"
)

// timeout bounds one run of go test's binary. A test that hangs under a break has noticed nothing:
// it must fail by a deadline of its own before this. Some tests wait several times without progress
// until they fail (wait.Hang).
const timeout = "180s"

const page = "docs/internals/invariants.md"

func main() {
	only := flag.String("run", "", "apply only the breaks whose name, rule or anchor matches this"+
		" regular expression, in upper or lower case")
	changed := flag.String("changed", "",
		"apply only the breaks in files that differ from this git"+
			" revision")
	parallel := flag.Int("parallel", 2, "how many breaks to apply at a time")
	write := flag.Bool("write",
		false, "apply nothing, and write the places of the anchors into "+page)
	flag.Parse()
	var err error
	if *write {
		err = writePage()
	} else {
		err = run(context.Background(), *only, *changed, *parallel)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// broken is a break and where it is applied.
type broken struct {
	table.Break
	at table.Anchor
}

// read returns all breaks and their anchors.
func read() ([]broken, error) {
	breaks, err := table.Read("test/mutate")
	if err != nil {
		return nil, fmt.Errorf("run it from the repository's root: %w", err)
	}
	anchors, err := table.Anchors(".")
	if err != nil {
		return nil, err
	}
	all := make([]broken, len(breaks))
	for i, b := range breaks {
		at, there := anchors[b.At]
		if !there {
			return nil, fmt.Errorf("the break %s names the anchor %s, which is in no file",
				b.Name, b.At)
		}
		all[i] = broken{b, at}
	}
	return all, nil
}

// choose returns the breaks that match a regular expression and whose file differs from a
// revision. An empty argument leaves nothing out. It is an error if the expression matches none.
func choose(ctx context.Context, all []broken, only, revision string) ([]broken, error) {
	expression, err := regexp.Compile("(?i)" + only)
	if err != nil {
		return nil, err
	}
	var chosen []broken
	for _, b := range all {
		if b.Matches(expression.MatchString) {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("-run %s matches no name, rule or anchor of the %d breaks",
			only, len(all))
	}
	if revision == "" {
		return chosen, nil
	}
	output, err := start(ctx, ".", "git", "diff", "--name-only", revision, "--")
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %s", revision, strings.TrimSpace(output))
	}
	differ := strings.Split(output, "\n")
	return slices.DeleteFunc(chosen, func(b broken) bool {
		return !slices.Contains(differ, b.at.File)
	}), nil
}

// writePage writes the places of the anchors into the page of the rules.
func writePage() error {
	breaks, err := table.Read("test/mutate")
	if err != nil {
		return fmt.Errorf("run it from the repository's root: %w", err)
	}
	anchors, err := table.Anchors(".")
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := table.Page(string(old), anchors, breaks)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o600)
}

func run(ctx context.Context, only, changed string, parallel int) error {
	all, err := read()
	if err != nil {
		return err
	}
	breaks, err := choose(ctx, all, only, changed)
	if err != nil {
		return err
	}
	if len(breaks) == 0 {
		fmt.Printf("no file with these breaks differs from %s: there is nothing to do\n", changed)
		return nil
	}
	dir, err := os.MkdirTemp("", "tidemark-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	began := time.Now()
	sound := baselines(ctx, breaks, dir, parallel)
	failures := len(tests(breaks)) - len(sound)
	fmt.Printf("%d tests pass without a break, %d do not (%.0f s)\n",
		len(sound), failures, time.Since(began).Seconds())

	var mu sync.Mutex
	caught := 0
	each(breaks, parallel, func(b broken) {
		start := time.Now()
		verdict, output := "its test does not pass unbroken", ""
		if sound[b.Package+" "+b.Test] {
			verdict, output = try(ctx, b, dir)
		}
		mu.Lock()
		defer mu.Unlock()
		by := b.Test
		if verdict == "" {
			by = noticed(output, by)
		}
		fmt.Printf("%-10s %-58s %5.1f s  %s %s\n",
			cmp.Or(verdict, "caught"), b.Name, time.Since(start).Seconds(), b.Package, by)
		if verdict == "" {
			caught++
			return
		}
		failures++
		if output != "" {
			fmt.Println(tail(output))
		}
	})
	fmt.Printf("%d breaks, %d caught, %d not, %.0f s\n",
		len(breaks), caught, len(breaks)-caught, time.Since(began).Seconds())
	if failures > 0 {
		return fmt.Errorf("%d failures", failures)
	}
	return nil
}

// tests returns the distinct tests of the breaks, as "package test".
func tests(breaks []broken) []string {
	var all []string
	for _, b := range breaks {
		all = append(all, b.Package+" "+b.Test)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// baselines runs each test without a break, and returns those that exist and pass. A package is
// built once for all of its tests.
func baselines(ctx context.Context, breaks []broken, dir string, parallel int) map[string]bool {
	patterns := make(map[string][]string)
	for _, test := range tests(breaks) {
		pkg, pattern, _ := strings.Cut(test, " ")
		patterns[pkg] = append(patterns[pkg], pattern)
	}
	var mu sync.Mutex
	sound := make(map[string]bool)
	each(slices.Sorted(maps.Keys(patterns)), parallel, func(pkg string) {
		binary := filepath.Join(dir, strings.NewReplacer("/", "-", ".", "").Replace(pkg)+"-test")
		output, err := start(ctx, ".", "go", "test", "-c", "-vet=off", "-o", binary, pkg)
		if err != nil {
			fmt.Printf("no build: %s\n%s\n", pkg, tail(output))
			return
		}
		for _, pattern := range patterns[pkg] {
			output, err := start(ctx, pkg, binary,
				"-test.v", "-test.timeout", timeout, "-test.run", pattern)
			mu.Lock()
			switch {
			case err != nil:
				fmt.Printf("fails without a break: %s %s\n%s\n", pkg, pattern, tail(output))
			case !ran(output, pattern):
				fmt.Printf("no such test: %s %s\n", pkg, pattern)
			default:
				sound[pkg+" "+pattern] = true
			}
			mu.Unlock()
		}
	})
	return sound
}

// ran reports whether a test ran at the depth that the pattern names. go test does not report a
// subtest that does not exist.
func ran(output, pattern string) bool {
	depth := strings.Count(pattern, "/")
	for line := range strings.SplitSeq(output, "\n") {
		name, found := strings.CutPrefix(line, "=== RUN ")
		if found && strings.Count(name, "/") >= depth {
			return true
		}
	}
	return false
}

// noticed returns the first test that failed, or else the pattern by which it was chosen.
func noticed(output, pattern string) string {
	_, rest, found := strings.Cut(output, "--- FAIL: ")
	if name, _, ok := strings.Cut(rest, " "); found && ok {
		return name
	}
	return pattern
}

// try applies one break. It returns "" if the test failed, else what happened instead; and the
// output.
func try(ctx context.Context, b broken, dir string) (verdict, output string) {
	path, err := filepath.Abs(b.at.File)
	if err != nil {
		return "error", err.Error()
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "error", err.Error()
	}
	text, err := b.Apply(string(source), b.at.Line)
	if err != nil {
		return "error", err.Error()
	}
	overlay, err := write(dir, b.Name, path, text)
	if err != nil {
		return "error", err.Error()
	}
	// Tests that build the program build it with the break, too.
	output, err = start(ctx, ".", "env", "TIDEMARK_OVERLAY="+overlay, "go", "test", "-count=1",
		"-vet=off", "-v", "-timeout", timeout, "-run", b.Test, "-overlay", overlay, b.Package)
	switch {
	case err == nil:
		return "SURVIVED", output
	case strings.Contains(output, "[build failed]"), strings.Contains(output, "[setup failed]"):
		return "no build", output
	case strings.Contains(output, "panic: test timed out"):
		return "hangs", output
	case !strings.Contains(output, "--- FAIL") && !strings.Contains(output, "panic: ") &&
		!strings.Contains(output, "fatal error: "):
		return "error", output
	}
	return "", output
}

// write stores a broken file, and the overlay that puts it in the place of the good one.
func write(dir, name, path, text string) (overlay string, err error) {
	file := filepath.Join(dir, name+".go")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, name+".json")
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

// start runs a command in a directory and returns what it said.
func start(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out bytes.Buffer
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &out, &out
	err := command.Run()
	return out.String(), err
}

// each calls f for every item, so many at a time, and returns when all calls have.
func each[T any](items []T, parallel int, f func(T)) {
	var running sync.WaitGroup
	next := make(chan T)
	for range parallel {
		running.Go(func() {
			for item := range next {
				f(item)
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	running.Wait()
}

func tail(output string) string {
	const most = 1500
	if len(output) > most {
		output = "…" + output[len(output)-most:]
	}
	return output
}
