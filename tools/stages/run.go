package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mostRed is how many stages may fail before the rest is left out. A run goes on after a failure,
// because one failure seldom explains another; after three the tree is at fault.
const mostRed = 3

// stage is one target of the Makefile, and what it showed.
type stage struct {
	Name     string
	OK       bool
	Left     bool // was not run
	Spent    spent
	Outcomes []outcome
	// Said is the end of the output of a stage that failed without a test that did.
	Said []string
}

// runStages makes the stages in turn, prints the summary, and reports whether all passed.
// A stage may have several runs of tests; their names begin with the stage's.
func runStages(ctx context.Context, names []string) (bool, error) {
	if err := adopt(); err != nil {
		return false, err
	}
	results, err := os.MkdirTemp("", "stages")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(results)
	var stages []stage
	red := 0
	for _, name := range names {
		if red == mostRed || ctx.Err() != nil {
			stages = append(stages, stage{Name: name, Left: true})
			continue
		}
		s, err := runStage(name, results)
		if err != nil {
			return false, err
		}
		if !s.OK {
			red++
		}
		stages = append(stages, s)
	}
	printSummary(os.Stdout, stages)
	return !slices.ContainsFunc(stages, func(s stage) bool { return !s.OK }), nil
}

func runStage(name, results string) (stage, error) {
	fmt.Printf("\n== %s\n", name)
	began := time.Now()
	command := exec.Command("make", "--no-print-directory", name)
	command.Env = append(os.Environ(), resultsVariable+"="+results)
	pipe, err := piped(command, true)
	if err != nil {
		return stage{}, err
	}
	defer pipe.Close()
	log, err := create(name + ".log")
	if err != nil {
		return stage{}, err
	}
	defer log.Close()
	var said []string
	for lines := bufio.NewReader(pipe); ; {
		line, err := lines.ReadString('\n')
		fmt.Print(line)
		fmt.Fprint(log, line)
		if said = append(said, line); len(said) > 2*kept {
			said = said[kept:]
		}
		if err != nil {
			break
		}
	}
	took, status, err := finish(command, began)
	if err != nil {
		return stage{}, err
	}
	s := stage{Name: name, OK: status == 0, Spent: took}
	if s.Outcomes, err = collect(name, results); err != nil {
		return stage{}, err
	}
	failures := 0
	for _, o := range s.Outcomes {
		failures += len(o.Failures)
	}
	if !s.OK && failures == 0 {
		s.Said = plainly(said[max(0, len(said)-kept):])
	}
	return s, nil
}

// create makes a file of the logs.
func create(name string) (*os.File, error) {
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	return os.Create(filepath.Join(logs, name))
}

// collect reads what the runs of a stage left, in the order of their names.
func collect(name, results string) (found []outcome, err error) {
	entries, err := os.ReadDir(results)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Name() != name+".json" && !strings.HasPrefix(entry.Name(), name+"-") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(results, entry.Name()))
		var o outcome
		if err = errors.Join(err, json.Unmarshal(text, &o)); err != nil {
			return nil, fmt.Errorf("reading the outcome of %s: %w", entry.Name(), err)
		}
		found = append(found, o)
	}
	return found, nil
}
