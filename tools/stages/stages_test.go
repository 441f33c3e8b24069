package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/gotestsum/testjson"
)

// TestMain runs the program instead of the tests if runStages starts it as `stages stage`.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stage" {
		os.Exit(command(context.Background(), os.Args[1:]))
	}
	os.Exit(m.Run())
}

func TestRepeat_is_ready_to_paste(t *testing.T) {
	environment := []string{
		"HOME=/h", "GOFLAGS=-trimpath -gcflags=x/...=-l", "CGO_ENABLED=1",
		"TIDEMARK_TEST_STORE=postgres", "TIDEMARK_SEED=1",
	}
	args := []string{
		"-vet=off", "-p", "3", "-race", "-timeout", "10m", "-run", "random", "./a", "./b",
	}
	for _, tc := range []struct {
		what, test string
		output     []string
		want       string
	}{
		{"a subtest", "TestA/it's (2)", nil, "CGO_ENABLED=1 TIDEMARK_SEED=1 " +
			"TIDEMARK_TEST_STORE=postgres " +
			"go test -trimpath -gcflags=x/...=-l -vet=off -race -timeout 10m " +
			`-run '^TestA$/^it'\''s \(2\)$' ./a`},
		{"a seed that was printed", "TestA", []string{"run it with TIDEMARK_SEED=7 again\n"},
			"CGO_ENABLED=1 TIDEMARK_SEED=7 TIDEMARK_TEST_STORE=postgres " +
				"go test -trimpath -gcflags=x/...=-l -vet=off -race -timeout 10m -run '^TestA$' " +
				"./a"},
		{"a seed of rapid", "TestA", []string{"specify -run=\"TestA\" -rapid.seed=12\n"},
			"CGO_ENABLED=1 TIDEMARK_SEED=1 TIDEMARK_TEST_STORE=postgres go test -trimpath " +
				"-gcflags=x/...=-l -vet=off -race -timeout 10m -run '^TestA$' ./a -rapid.seed=12"},
		{"a package", "", nil, "CGO_ENABLED=1 TIDEMARK_SEED=1 TIDEMARK_TEST_STORE=postgres " +
			"go test -trimpath -gcflags=x/...=-l -vet=off -race -timeout 10m -run random ./a"},
	} {
		if got := repeat(environment, args, "./a", tc.test, tc.output); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.what, got, tc.want)
		}
	}
}

// events are those of a package in which one subtest fails and another one is slow.
const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"output","Package":"p","Test":"TestA/one","Output":"    a_test.go:1: TIDEMARK_SEED=5\n"}
{"Action":"fail","Package":"p","Test":"TestA/one","Elapsed":0.2}
{"Action":"run","Package":"p","Test":"TestA/two"}
{"Action":"pass","Package":"p","Test":"TestA/two","Elapsed":3}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":3.5}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":1}
{"Action":"fail","Package":"p","Elapsed":4.5}
`

func scan(t *testing.T, events string) *testjson.Execution {
	t.Helper()
	handler := &watcher{log: bufio.NewWriter(io.Discard), cached: map[string]bool{}}
	execution, err := testjson.ScanTestOutput(testjson.ScanConfig{
		Stdout: strings.NewReader(events), Handler: handler,
	})
	if err != nil {
		t.Fatal(err)
	}
	return execution
}

func TestJudge_names_what_failed_and_what_was_slow(t *testing.T) {
	t.Setenv("TIDEMARK_SEED", "1")
	execution := scan(t, events)
	got := judge("race", []string{"./p"}, execution, 1)
	if got.OK || got.Passed != 2 || got.Failed != 1 || len(got.Failures) != 1 {
		t.Fatalf("the outcome is %+v", got)
	}
	f := got.Failures[0]
	if f.What != "race: ./p TestA/one" || !strings.Contains(f.Repeat, "TIDEMARK_SEED=5 ") ||
		len(f.Output) != 1 {
		t.Errorf("the failure is %+v", f)
	}
	var tests []string
	for _, s := range slowest("race", execution, map[string]bool{}) {
		tests = append(tests, s.Test)
	}
	ordered, want := strings.Join(tests, ", "), "./p TestA/two, ./p TestB, ./p TestA/one"
	if ordered != want {
		t.Errorf("slowest are %s, want %s", ordered, want)
	}
	if got := slowest("race", execution, map[string]bool{"p": true}); len(got) != 0 {
		t.Errorf("of a package that Go kept from before, slowest are %v", got)
	}
}

// TestJudge_a_timeout_is_one_failure: running and waiting tests do not count as failures.
func TestJudge_a_timeout_is_one_failure(t *testing.T) {
	events := `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out after 1s\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"running tests: TestA, TestB\n"}
{"Action":"fail","Package":"p","Test":"TestB","Elapsed":1}
{"Action":"fail","Package":"p","Elapsed":1}
`
	got := judge("suites", []string{"-timeout", "1s", "./p"}, scan(t, events), 1)
	if got.OK || len(got.Failures) != 2 || got.Failures[0].What != "suites: ./p" ||
		got.Failures[0].Output[0] != "panic: test timed out after 1s" {
		t.Errorf("the outcome is %+v", got)
	}
}

func TestJudge_a_selection_without_a_test_fails(t *testing.T) {
	got := judge("resume", nil, scan(t, `{"Action":"pass","Package":"p","Elapsed":0}`+"\n"), 0)
	if got.OK || len(got.Failures) != 1 || got.Failures[0].Repeat != "make resume" {
		t.Errorf("the outcome is %+v", got)
	}
}

func TestPrintSummary_what_failed_is_at_the_end(t *testing.T) {
	var out bytes.Buffer
	printSummary(&out, []stage{
		{Name: "static", OK: true, Spent: spent{Wall: 2 * time.Second, CPU: 3 * time.Second}},
		{Name: "race", Spent: spent{Wall: time.Second, CPU: time.Second}, Outcomes: []outcome{{
			Passed: 4, Failed: 1, Slowest: []slow{{"race", "./p TestB", time.Second}},
			Failures: []failure{{"race: ./p TestA", []string{"one", "two"}, "go test ./p"}},
		}}},
		{Name: "verify", Said: []string{"no spin"}},
		{Name: "suites", Left: true},
	}, 2*time.Second)
	want := `
stage             result    wall s    CPU s   tests
static            ok             2        3
race              FAIL           1        1       5
verify            FAIL           0        0
suites            not run        0        0
together                         2        4       5

slowest tests
     1.0 s  race              ./p TestB

FAILED race: ./p TestA
    one
    two
  repeat it:
    go test ./p

FAILED verify
    no spin
  repeat it:
    make verify

4 passed, 2 failed
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestFinish_counts_what_was_left_behind: an orphan's time is counted once it ends.
func TestFinish_counts_what_was_left_behind(t *testing.T) {
	if err := adopt(); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(t.TempDir(), "ended")
	began := time.Now()
	script := `(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; : >"$0") & exit 3`
	command := exec.Command("sh", "-c", script, mark)
	pipe, err := piped(command, true)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	took, status, err := finish(command, began)
	if err != nil || status != 3 || took.CPU < 20*time.Millisecond {
		t.Errorf("took %v, status %d, error %v", took, status, err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("it was not waited for what was left behind: %v", err)
	}
}

func TestRunStages_goes_on_after_a_failure_and_stops_at_the_third(t *testing.T) {
	t.Chdir(t.TempDir())
	makefile := "red-1 red-2 red-3:\n\t@echo $@ >>log; false\ngreen late:\n\t@echo $@ >>log\n"
	if err := os.WriteFile("Makefile", []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	ok, err := runStages(t.Context(), []string{"red-1", "green", "red-2", "red-3", "late"})
	if ok || err != nil {
		t.Errorf("runStages = %v, %v", ok, err)
	}
	log, err := os.ReadFile("log")
	if want := "red-1\ngreen\nred-2\nred-3\n"; err != nil || string(log) != want {
		t.Errorf("made were %q, error %v, want %q", log, err, want)
	}
}

// TestRunStages_stops_within_a_group_at_the_third_failure: of the six stages of a group, three run
// at a time. All fail at once, so the last one does not begin.
func TestRunStages_stops_within_a_group_at_the_third_failure(t *testing.T) {
	t.Chdir(t.TempDir())
	makefile := "red-1 red-2 red-3 red-4 red-5 late:\n\t@echo $@ >>log; false\n"
	if err := os.WriteFile("Makefile", []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	ok, err := runStages(t.Context(), []string{"red-1+red-2+red-3+red-4+red-5+late"})
	if ok || err != nil {
		t.Errorf("runStages = %v, %v", ok, err)
	}
	// When the third has failed, two others may be running.
	log, err := os.ReadFile("log")
	if n := strings.Count(string(log), "\n"); err != nil || n < mostRed || n >= mostRed+atOnce {
		t.Errorf("made were %q, error %v, want at least %d and less than %d",
			log, err, mostRed, mostRed+atOnce)
	}
}

// TestRunStages_some_are_made_side_by_side: each of two stages waits until the other has begun.
func TestRunStages_some_are_made_side_by_side(t *testing.T) {
	t.Chdir(t.TempDir())
	makefile := "one two:\n\t@echo >>$@-began; for i in `seq 500`; do " +
		"[ -e one-began -a -e two-began ] && exit 0; sleep 0.01; done; exit 1\n" +
		"last:\n\t@cat one-began two-began\nred:\n\t@false\n"
	if err := os.WriteFile("Makefile", []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := runStages(t.Context(), []string{"one+two", "last"}); !ok || err != nil {
		t.Errorf("runStages = %v, %v", ok, err)
	}
	if ok, err := runStages(t.Context(), []string{"one+red+two", "last"}); ok || err != nil {
		t.Errorf("with a red stage runStages = %v, %v", ok, err)
	}
}

// TestRunGroup_few_at_a_time: each stage writes down how many run beside it.
func TestRunGroup_few_at_a_time(t *testing.T) {
	t.Chdir(t.TempDir())
	var names []string
	for i := range 3 * atOnce {
		names = append(names, fmt.Sprintf("s%d", i))
	}
	makefile := strings.Join(names, " ") + ":\n\t@touch $@.runs; ls *.runs | wc -l >$@.seen; " +
		"sleep 0.02; rm $@.runs\n"
	if err := os.WriteFile("Makefile", []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	stages, err := runGroup(t.Context(), names, t.TempDir(), new(atomic.Int32))
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range stages {
		seen, err := os.ReadFile(names[i] + ".seen")
		n, notNumber := strconv.Atoi(strings.TrimSpace(string(seen)))
		if err = errors.Join(err, notNumber); err != nil || !s.OK || s.Name != names[i] {
			t.Fatalf("stage %s: %+v, error %v", names[i], s, err)
		}
		if n < 1 || n > atOnce {
			t.Errorf("%d stages ran at a time, want 1 to %d", n, atOnce)
		}
	}
}

func TestRunGroup_that_was_cancelled_begins_no_stage(t *testing.T) {
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stages, err := runGroup(ctx, []string{"one", "two"}, t.TempDir(), new(atomic.Int32))
	if err != nil || len(stages) != 2 || !stages[0].Left || !stages[1].Left {
		t.Errorf("runGroup = %+v, %v, want two that were left out", stages, err)
	}
}

// TestRunProcess_that_breaks_is_a_red_stage: its result is not there, and those of others count.
func TestRunProcess_that_breaks_is_a_red_stage(t *testing.T) {
	for _, program := range []string{"false", "true"} {
		path, err := exec.LookPath(program)
		if err != nil {
			t.Fatal(err)
		}
		s, err := runProcess(path, "race", t.TempDir(), func(string) {})
		if err != nil || s.OK || s.Name != "race" || len(s.Said) != 1 {
			t.Errorf("the process %s: %+v, error %v, want a red stage", program, s, err)
		}
	}
}
