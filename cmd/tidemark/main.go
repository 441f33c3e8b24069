// Command tidemark is the server and its tools: serve, migrate, import, copy, backup, health,
// doctor, token, api-key, bench and version.
//
// Each flag of `serve` is also an environment variable (TIDEMARK_LISTEN, TIDEMARK_STORE, …), and a
// key of the YAML file that --config names. A flag overrides the variable, the variable overrides
// the file, and the file overrides the default. Unknown variables and keys are errors.
// The exit code is 0, 1 for a failure, or 2 for a wrong use.
// Logs go to standard error. Standard output has only the result of the command.
//
// Only this package names a backend: store.go chooses it, and serve.go assembles the server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// version is set by the linker (-X main.version=…).
var version = "dev"

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// commands describes the command line.
type commands struct {
	Serve   serveCommand   `cmd:"" help:"Run the server."`
	Migrate migrateCommand `cmd:"" help:"Bring a store's schema up or down, or show its version."`
	Import  importCommand  `cmd:"" help:"Move chats of another system into the store."`
	Copy    copyCommand    `cmd:"" help:"Move all data to another store, while no server runs."`
	Backup  backupCommand  `cmd:"" help:"Copy the store to a file while the server runs."`
	Health  healthCommand  `cmd:"" help:"Check whether the server on this machine is ready."`
	Doctor  doctorCommand  `cmd:"" help:"Check the configuration of serve and all that it names, and say what to do."`
	Token   tokenCommand   `cmd:"" help:"Print a bearer token for a user, signed with TIDEMARK_JWT_SECRET."`
	APIKey  apiKeyCommand  `cmd:"" name:"api-key" help:"Print a new API key for a backend, and on standard error its line for --api-keys-file."`
	Bench   benchCommand   `cmd:"" help:"Put a running server under load, and check what arrives."`
	Version versionCommand `cmd:"" help:"Print the version."`
}

// streams are the outputs of a command.
type streams struct {
	out io.Writer
	err io.Writer
}

// usageError is the error of a wrong use, which ends the program with exitUsage.
type usageError struct{ error }

// usagef returns a usageError with a formatted text.
func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := run(ctx, hideArguments(os.Args[1:]), streams{out: os.Stdout, err: os.Stderr})
	stop()
	os.Exit(code)
}

// stopSignals returns the signals that start an orderly stop.
// SIGHUP is one of them: it means that the terminal is gone. Under nohup it stays ignored.
func stopSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// newParser returns the parser of the command line, which fills cli. It calls exit after it has
// printed the help.
func newParser(cli *commands, std streams, exit func(int)) (*kong.Kong, error) {
	return kong.New(cli,
		kong.Name("tidemark"),
		kong.Description(
			"Tidemark delivers messages, and says of each whether it is stored, delivered and "+
				"read."),
		kong.Writers(std.out, std.err),
		kong.Exit(exit),
		kong.WithBeforeResolve(useConfig),
	)
}

// run parses the arguments, runs the command, and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	var cli commands
	helped := false
	parser, err := newParser(&cli, std, func(int) { helped = true })
	if err != nil {
		fmt.Fprintln(std.err, "tidemark:", err)
		return exitFailure
	}
	command, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil { // the error may repeat an argument, which may contain a password
		fmt.Fprintf(std.err, "tidemark: %s\nSee tidemark --help.\n", hideURLs(err.Error()))
		return exitUsage
	}
	if err := checkEnvironment(command); err != nil {
		fmt.Fprintln(std.err, "tidemark:", err)
		return exitUsage
	}
	command.BindTo(ctx, (*context.Context)(nil))
	return code(command.Run(std, &cli.Migrate, arguments(args)), std)
}

// arguments are those of the command line, without the program's name.
type arguments []string

// give reports whether a flag or an environment variable has the value of a key, so that the
// configuration file does not matter.
func (a arguments) give(key string) bool {
	flag := "--" + key
	variable := variablePrefix + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
	if _, set := os.LookupEnv(variable); set {
		return true
	}
	return slices.ContainsFunc(a, func(arg string) bool {
		return arg == flag || strings.HasPrefix(arg, flag+"=")
	})
}

// parseAgain parses the arguments of a running server once more. It reads the configuration file,
// and returns what it says too. The arguments name one.
func parseAgain(args arguments) (*serveCommand, configFile, error) {
	var cli commands
	parser, err := newParser(&cli, streams{out: io.Discard, err: io.Discard}, func(int) {})
	if err != nil {
		return nil, nil, err
	}
	if _, err := parser.Parse(args); err != nil {
		return nil, nil, err
	}
	file, err := readConfig(cli.Serve.Config, serveKeys(parser.Model))
	return &cli.Serve, file, err
}

// code prints the error, if there is one, and returns the exit code.
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
