// Command percore shows the library at work.
//
//	percore serve     run an HTTP and a gRPC server on percore listeners
//	percore bench     compare percore with the net package on this machine
//	percore try       compare your own program on both, without changing it
//	percore help      explain a command
//	percore version   print the version
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/percore/percore/cmd/percore/internal/bench/child"
)

// The exit statuses of every command.
const (
	exitOK      = 0
	exitFailure = 1 // the command did not work
	exitUsage   = 2 // the command makes no sense
)

const usage = `percore runs unchanged Go servers on a per-core epoll engine.

Usage: percore COMMAND [flags]

  serve     serve a directory over HTTP and an echo service over gRPC
  bench     compare percore with the net package on this machine
  try       compare your own program on both, without changing it
  help      explain a command: percore help serve
  version   print the version

percore COMMAND -h lists a command's flags.
`

func main() {
	// The processes that bench starts from its own binary have a first argument that isn't a
	// command for people.
	if isChild, status := child.Run(os.Args[1:]); isChild {
		os.Exit(status)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// commands are those with flags. They print to stdout what was asked for.
var commands = map[string]func(args []string, stdout, stderr io.Writer) error{
	"serve": runServe, "bench": runBench, "try": runTry,
}

// usageError says that a command line makes no sense.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// run carries out the command line and returns the exit status. Requested output goes to stdout,
// complaints go to stderr.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	name, args := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(args) == 0 || args[0] == "help" || args[0] == "version" {
			fmt.Fprint(stdout, usage)
			return exitOK
		}
		name, args = args[0], []string{"-h"}
	case "version", "-version", "--version":
		fmt.Fprintln(stdout, version())
		return exitOK
	}
	command := commands[name]
	if command == nil {
		fmt.Fprintf(stderr, "percore: unknown command %q (percore help lists the commands)\n", name)
		return exitUsage
	}
	err := command(args, stdout, stderr)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	fmt.Fprintf(stderr, "percore %s: %v\n", name, err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// untilInterrupt returns a context that SIGINT and SIGTERM end. The second of them ends the program at
// once.
func untilInterrupt() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// parseFlags reads the command line of a command. If the user asks for help it prints that, with the
// flags, and returns flag.ErrHelp.
func parseFlags(flags *flag.FlagSet, args []string, stdout io.Writer, help string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, help)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
	}
	return err
}

func version() string {
	module := "(unknown version)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		module = info.Main.Version
	}
	return fmt.Sprintf("percore %s %s %s/%s", module, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
