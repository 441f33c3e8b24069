// With runs a command beside a database of its own, which ends with it: go run ./test/services/with postgres|dynamodb COMMAND ARG…
//
// The command finds an empty database by STORE_URL, and the process id of its server in STORE_PID. Postgres adds the lines of POSTGRES_SETTINGS, if
// there are any, to postgresql.conf. DynamoDB is the emulator, with its data in memory; or the one that TEST_DYNAMODB_ENDPOINT names, without a
// process id, and with tables that are dropped in the end.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/postgres"
)

func main() {
	start := map[string]func() (*database, error){"postgres": startPostgres, "dynamodb": startDynamoDB}
	if len(os.Args) < 3 || start[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: with postgres|dynamodb COMMAND ARG…")
		os.Exit(2)
	}
	err := run(start[os.Args[1]], os.Args[2], os.Args[3:])
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		os.Exit(max(failed.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "with:", err)
		os.Exit(1)
	}
}

// database is one that was started, or found.
type database struct {
	url  string
	pid  int // 0 if its process is not ours
	stop func() error
}

func startPostgres() (*database, error) {
	server, err := postgres.Serve(strings.Split(os.Getenv("POSTGRES_SETTINGS"), "\n")...)
	if err != nil {
		return nil, err
	}
	return &database{url: server.URL("postgres"), pid: server.PID(), stop: server.Close}, nil
}

func startDynamoDB() (*database, error) {
	server, err := dynamodb.SharedByMain() // it ends with us
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("with-%d-", os.Getpid())
	return &database{url: server.URL(prefix), pid: server.PID(), stop: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return server.Drop(ctx, prefix)
	}}, nil
}

func run(start func() (*database, error), name string, args []string) (err error) {
	db, err := start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	// The command gets the signals of the terminal too, and ends first.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	command := exec.Command(name, args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "STORE_URL="+db.url)
	if db.pid != 0 {
		command.Env = append(command.Env, fmt.Sprint("STORE_PID=", db.pid))
	}
	return command.Run()
}
