// Package child holds the entry points of the processes that the benchmark
// starts from its own executable.
package child

import (
	"os"

	"github.com/percore/percore/cmd/percore/internal/bench/load"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// Server runs a server under test and returns its exit status. It talks to the harness on standard
// input and output, and returns when the input ends.
func Server() int { return target.Main(os.Stdin, takeStdout()) }

// Load runs a load generator in the same way.
func Load() int { return load.Main(os.Stdin, takeStdout()) }

// takeStdout reserves standard output for the harness: everything else that this process prints
// goes to standard error.
func takeStdout() *os.File {
	out := os.Stdout
	os.Stdout = os.Stderr
	return out
}
