// Command mutate shows that the tests notice what they are there for: it applies each recorded break of the product by itself, with go test's overlay, so
// that no file changes, and demands that the test named beside it fails. Before that, each of those tests has to pass without any break. `make mutate` runs it.
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

// timeout bounds one run of go test's binary. A test that hangs under a break has noticed nothing: it has to fail by a deadline of its own before this.
const timeout = "60s"

func main() {
	only := flag.String("run", "", "a regular expression: apply only the breaks whose names match")
	parallel := flag.Int("parallel", 2, "how many to apply at a time")
	flag.Parse()
	if err := run(context.Background(), *only, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, parallel int) error {
	breaks, err := table.Read("test/mutate")
	if err != nil {
		return fmt.Errorf("run it from the repository's root: %w", err)
	}
	selected, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	breaks = slices.DeleteFunc(breaks, func(b table.Break) bool { return !selected.MatchString(b.Name) })
	dir, err := os.MkdirTemp("", "tidemark-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	began := time.Now()
	sound := baselines(ctx, breaks, dir, parallel)
	fmt.Printf("%d tests pass without a break, %d do not (%.0f s)\n", len(sound), len(tests(breaks))-len(sound), time.Since(began).Seconds())
	failures := len(tests(breaks)) - len(sound)

	var mu sync.Mutex
	caught := 0
	each(breaks, parallel, func(b table.Break) {
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
		fmt.Printf("%-10s %-58s %5.1f s  %s %s\n", cmp.Or(verdict, "caught"), b.Name, time.Since(start).Seconds(), b.Package, by)
		if verdict == "" {
			caught++
			return
		}
		failures++
		if output != "" {
			fmt.Println(tail(output))
		}
	})
	fmt.Printf("%d breaks, %d caught, %d not, %.0f s\n", len(breaks), caught, len(breaks)-caught, time.Since(began).Seconds())
	if failures > 0 {
		return fmt.Errorf("%d failures", failures)
	}
	return nil
}

// tests returns the distinct tests of the breaks, as "package test".
func tests(breaks []table.Break) []string {
	var all []string
	for _, b := range breaks {
		all = append(all, b.Package+" "+b.Test)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// baselines runs each test without a break, and returns those that pass and are there. A package is built once for all of its tests.
func baselines(ctx context.Context, breaks []table.Break, dir string, parallel int) map[string]bool {
	patterns := make(map[string][]string)
	for _, test := range tests(breaks) {
		pkg, pattern, _ := strings.Cut(test, " ")
		patterns[pkg] = append(patterns[pkg], pattern)
	}
	var mu sync.Mutex
	sound := make(map[string]bool)
	each(slices.Sorted(maps.Keys(patterns)), parallel, func(pkg string) {
		binary := filepath.Join(dir, strings.NewReplacer("/", "-", ".", "").Replace(pkg)+"-test")
		if output, err := start(ctx, ".", "go", "test", "-c", "-vet=off", "-o", binary, pkg); err != nil {
			fmt.Printf("no build: %s\n%s\n", pkg, tail(output))
			return
		}
		for _, pattern := range patterns[pkg] {
			output, err := start(ctx, pkg, binary, "-test.v", "-test.timeout", timeout, "-test.run", pattern)
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

// ran reports whether a test ran at the depth that the pattern names: go test says nothing of a subtest that is not there.
func ran(output, pattern string) bool {
	depth := strings.Count(pattern, "/")
	for line := range strings.SplitSeq(output, "\n") {
		if name, found := strings.CutPrefix(line, "=== RUN "); found && strings.Count(name, "/") >= depth {
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

// try applies one break. It returns "" if the test failed of it, else what happened instead; and the output.
func try(ctx context.Context, b table.Break, dir string) (verdict, output string) {
	path, err := filepath.Abs(b.File)
	if err != nil {
		return "error", err.Error()
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return "error", err.Error()
	}
	broken, err := b.Apply(string(source))
	if err != nil {
		return "error", err.Error()
	}
	overlay, err := write(dir, b.Name, path, broken)
	if err != nil {
		return "error", err.Error()
	}
	output, err = start(ctx, ".", "go", "test", "-count=1", "-vet=off", "-v", "-timeout", timeout, "-run", b.Test, "-overlay", overlay, b.Package)
	switch {
	case err == nil:
		return "SURVIVED", output
	case strings.Contains(output, "[build failed]"), strings.Contains(output, "[setup failed]"):
		return "no build", output
	case strings.Contains(output, "panic: test timed out"):
		return "hangs", output
	case !strings.Contains(output, "--- FAIL") && !strings.Contains(output, "panic: ") && !strings.Contains(output, "fatal error: "):
		return "error", output
	}
	return "", output
}

// write stores a broken file, and the overlay that puts it in the place of the good one.
func write(dir, name, path, broken string) (overlay string, err error) {
	file := filepath.Join(dir, name+".go")
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
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
