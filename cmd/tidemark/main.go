// Command tidemark is the server and its tools: serve, migrate, backup, health, token, api-key, bench, version.
//
// Each flag of `serve` is also an environment variable (TIDEMARK_LISTEN, TIDEMARK_STORE, …) and a key of the YAML file given
// with --config, in that order of precedence: flag, variable, file, default. Variables and keys that nobody knows are errors. Exit codes: 0, 1 for a failure, 2 for a
// wrong use. Logs go to standard error; standard output has only what was asked for.
//
// This is the only place that names a backend: store.go chooses it, serve.go puts the server together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/tidemark-im/tidemark/cmd/tidemark/internal/flags"
)

// version is set by the linker (-X main.version=…).
var version = "dev"

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// commands is the command line.
type commands struct {
	Serve   serveCommand   `cmd:"" help:"Run the server."`
	Migrate migrateCommand `cmd:"" help:"Bring a store's schema up or down, or show where it is."`
	Backup  backupCommand  `cmd:"" help:"Copy the store to a file while the server runs."`
	Health  healthCommand  `cmd:"" help:"Ask the server on this machine whether it is ready."`
	Token   tokenCommand   `cmd:"" help:"Print a bearer token for a user, signed with TIDEMARK_JWT_SECRET."`
	APIKey  apiKeyCommand  `cmd:"" name:"api-key" help:"Make an API key for a backend: the key on standard output, its line for --api-keys-file on standard error."`
	Bench   benchCommand   `cmd:"" help:"Put a running server under load, and check what arrives."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// streams are what a command writes to.
type streams struct {
	out io.Writer
	err io.Writer
}

// usageError is a wrong use that only the command itself can see.
type usageError struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, hideArguments(os.Args[1:]), streams{out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// stopSignals are the signals that ask for an orderly stop. SIGHUP says that the terminal is gone; under nohup it stays ignored.
func stopSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// runner is a command.
type runner interface {
	Run(ctx context.Context, std streams) error
}

// newParser describes the command line.
func newParser(cli *commands) (*flags.Command, error) {
	return flags.New("tidemark", "Tidemark delivers messages, and says of each whether it is stored, delivered and read.", cli)
}

// run parses the arguments and runs the command. It returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	var cli commands
	parser, err := newParser(&cli)
	if err != nil {
		fmt.Fprintln(std.err, "tidemark:", err)
		return exitFailure
	}
	command, err := parser.Parse(args, fileOf)
	var help flags.ErrHelp
	if errors.As(err, &help) {
		err = help.Command.WriteHelp(std.out)
		return code(err, std)
	}
	if err != nil { // it may repeat an argument
		fmt.Fprintf(std.err, "tidemark: %s\nSee tidemark --help.\n", hideURLs(err.Error()))
		return exitUsage
	}
	if err := checkEnvironment(command); err != nil {
		fmt.Fprintln(std.err, "tidemark:", err)
		return exitUsage
	}
	switch c := command.Value.(type) {
	case runner:
		err = c.Run(ctx, std)
	case migration:
		err = c.migrate(ctx, &cli.Migrate, std)
	}
	return code(err, std)
}

// code says what went wrong, and returns the exit code.
func code(err error, std streams) int {
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintln(std.err, "tidemark:", err)
		return exitUsage
	default:
		fmt.Fprintln(std.err, "tidemark:", err)
		return exitFailure
	}
}

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(_ context.Context, std streams) error {
	_, err := fmt.Fprintln(std.out, "tidemark", version)
	return err
}
