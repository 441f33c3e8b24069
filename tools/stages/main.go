// Stages runs the stages of `make test` and prints a summary. It has the result,
// the seconds and the tests of each stage, the ten slowest tests, and for each failure a command
// that repeats it.
//
//	stages run STAGE...      runs the stages in turn, those of A+B side by side, for `make test`
//	stages stage NAME        makes one stage; `stages run` calls it
//	stages test NAME ARGS... runs `go test ARGS...`; each stage with Go tests calls it
//
// A stage is a target of the Makefile. `stages test` prints its own summary when it was not
// started by `stages run`, so `make race` on its own also ends with one.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// resultsVariable names the directory where `stages test` leaves its results for `stages run`.
const resultsVariable = "STAGES_RESULTS"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// command runs the command line, and returns the exit status.
func command(ctx context.Context, args []string) int {
	var ok bool
	var err error
	switch {
	case len(args) >= 2 && args[0] == "run":
		ok, err = runStages(ctx, args[1:])
	case len(args) == 2 && args[0] == "stage":
		ok, err = leaveStage(args[1])
	case len(args) >= 3 && args[0] == "test":
		ok, err = runTests(args[1], args[2:])
	default:
		err = fmt.Errorf("use: stages run STAGE... or stages test NAME ARGS")
	}
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "stages:", err)
		return 2
	case !ok:
		return 1
	}
	return 0
}
