package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// beside joins the names of stages that are made side by side.
const beside = "+"

// atOnce is how many stages of a group run at a time. The tests of a stage wait for services,
// clocks and disks, so two stages do not keep two cores busy.
const atOnce = 3

// runStages makes the stages in turn, prints the summary, and reports whether all passed. Stages
// whose names are joined by "+" run side by side, so that one uses the cores while another waits.
func runStages(ctx context.Context, groups []string) (bool, error) {
	results, err := os.MkdirTemp("", "stages")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(results)
	began := time.Now()
	var stages []stage
	var red atomic.Int32
	for _, group := range groups {
		made, err := runGroup(ctx, strings.Split(group, beside), results, &red)
		if err != nil {
			return false, err
		}
		stages = append(stages, made...)
	}
	printSummary(os.Stdout, stages, time.Since(began))
	return !slices.ContainsFunc(stages, func(s stage) bool { return !s.OK }), nil
}

// runGroup makes stages side by side. They begin in the given order, and atOnce of them run at a
// time. Each has a process of its own, because finish waits for all children of its process. With
// several, each line of output begins with its stage. red counts the stages that failed. After ctx
// has ended, or mostRed have failed, no further stage begins.
func runGroup(
	ctx context.Context, names []string, results string, red *atomic.Int32,
) ([]stage, error) {
	ended := func() bool { return red.Load() >= mostRed || ctx.Err() != nil }
	if !ended() {
		fmt.Printf("\n== %s\n", strings.Join(names, ", "))
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	stages := make([]stage, len(names))
	errs := make([]error, len(names))
	var printing sync.Mutex
	var group sync.WaitGroup
	running := make(chan struct{}, atOnce)
	for i, name := range names {
		prefix := ""
		if len(names) > 1 {
			prefix = name + ": "
		}
		running <- struct{}{}
		if ended() {
			stages[i] = stage{Name: name, Left: true}
			<-running
			continue
		}
		group.Go(func() {
			defer func() { <-running }()
			stages[i], errs[i] = runProcess(program, name, results, func(line string) {
				printing.Lock()
				defer printing.Unlock()
				fmt.Print(prefix, line)
			})
			if !stages[i].OK {
				red.Add(1)
			}
		})
	}
	group.Wait()
	return stages, errors.Join(errs...)
}

// runProcess makes a stage in a process of its own, and calls show with each line of its output.
func runProcess(program, name, results string, show func(line string)) (stage, error) {
	command := exec.Command(program, "stage", name)
	command.Env = append(os.Environ(), resultsVariable+"="+results)
	pipe, err := piped(command, true)
	if err != nil {
		return stage{}, err
	}
	defer pipe.Close()
	for lines := bufio.NewReader(pipe); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			show(line)
		}
		if err != nil {
			break
		}
	}
	var s stage
	err = command.Wait()
	if err == nil {
		var text []byte
		text, err = os.ReadFile(filepath.Join(results, name+stageSuffix))
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
	}
	if err != nil {
		// The stages beside it have results that are worth a summary.
		return stage{Name: name, Said: []string{"the process of the stage: " + err.Error()}}, nil
	}
	return s, nil
}

// stageSuffix ends the names of the files that hold the results of stages.
const stageSuffix = ".stage"

// leaveStage runs a stage, and writes its result to a file for the `stages run` that started this
// process.
func leaveStage(name string) (bool, error) {
	if err := adopt(); err != nil {
		return false, err
	}
	results := os.Getenv(resultsVariable)
	if results == "" {
		return false, fmt.Errorf("%s is not set", resultsVariable)
	}
	s, err := runStage(name, results)
	if err != nil {
		return false, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return false, err
	}
	return true, os.WriteFile(filepath.Join(results, name+stageSuffix), text, 0o600)
}

func runStage(name, results string) (stage, error) {
	began := time.Now()
	command := exec.Command("make", "--no-print-directory", name)
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

// collect returns the outcome of a stage's Go tests. A stage without Go tests has none.
func collect(name, results string) ([]outcome, error) {
	text, err := os.ReadFile(filepath.Join(results, name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var o outcome
	if err = errors.Join(err, json.Unmarshal(text, &o)); err != nil {
		return nil, fmt.Errorf("reading the outcome of %s: %w", name, err)
	}
	return []outcome{o}, nil
}
