// With runs a command beside a Postgres server of its own, which ends with it: go run ./test/services/postgres/with COMMAND ARG…
//
// The command finds an empty database by STORE_URL, and the process id of the server in STORE_PID. The lines of
// POSTGRES_SETTINGS, if there are any, are added to postgresql.conf.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/tidemark-im/tidemark/test/services/postgres"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: with COMMAND ARG…")
		os.Exit(2)
	}
	err := run(os.Args[1], os.Args[2:])
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		os.Exit(max(failed.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "with:", err)
		os.Exit(1)
	}
}

func run(name string, args []string) (err error) {
	settings := strings.Split(os.Getenv("POSTGRES_SETTINGS"), "\n")
	server, err := postgres.Serve(settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	// The command gets the signals of the terminal too, and ends first.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	command := exec.Command(name, args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "STORE_URL="+server.URL("postgres"), fmt.Sprint("STORE_PID=", server.PID()))
	return command.Run()
}
