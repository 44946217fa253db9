// Command percore shows the library at work.
//
//	percore serve     run an HTTP and a gRPC server on percore listeners
//	percore bench     compare percore with the net package on this machine
//	percore try       compare your own program on both, without changing it
//	percore help      explain a command
//	percore version   print the version
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
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
	if isChild, status := benchChild(os.Args[1:]); isChild {
		os.Exit(status)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run carries out the command line and returns the exit status. Requested output goes to stdout,
// complaints go to stderr.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	command, args := args[0], args[1:]
	switch command {
	case "serve":
		return runServe(args, stdout, stderr)
	case "bench":
		return runBench(args)
	case "try":
		return runTry(args, stdout, stderr)
	case "help", "-h", "-help", "--help":
		return runHelp(args, stdout, stderr)
	case "version", "-version", "--version":
		fmt.Fprintln(stdout, version())
		return exitOK
	}
	fmt.Fprintf(stderr, "percore: unknown command %q (percore help lists the commands)\n", command)
	return exitUsage
}

// parseFlags reads the command line of a command. If the user asks for help it prints that, with the
// flags, and returns flag.ErrHelp. The caller prints other errors, once, in a line.
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

// runHelp prints the help of the command named by args, or of percore itself.
func runHelp(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	switch args[0] {
	case "serve", "bench", "try":
		return run([]string{args[0], "-h"}, stdout, stderr)
	case "help", "version":
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	fmt.Fprintf(stderr, "percore help: unknown command %q (percore help lists the commands)\n", args[0])
	return exitUsage
}

// version returns the version of percore and of its toolchain.
func version() string {
	module := "(unknown version)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		module = info.Main.Version
	}
	return fmt.Sprintf("percore %s %s %s/%s", module, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
