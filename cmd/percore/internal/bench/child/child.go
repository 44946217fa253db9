// Package child runs the two processes that the benchmark starts for each sample from its own
// executable. The harness calls their methods with net/rpc, in JSON, over pipes. Unlike sockets,
// pipes can't disturb the measurement: they are silent during a measured window. And when its parent
// dies for any reason, a process reads end-of-file and exits.
package child

import (
	"fmt"
	"io"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"

	"github.com/percore/percore/cmd/percore/internal/bench/load"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// The arguments that make an executable one of the processes.
const (
	ServerArg = "bench-server"
	LoadArg   = "bench-load"
)

// Run runs the process that the first argument names, if it names one, and returns its exit status.
func Run(args []string) (isChild bool, status int) {
	processes := map[string]any{ServerArg: new(target.Process), LoadArg: new(load.Process)}
	if len(args) == 0 || processes[args[0]] == nil {
		return false, 0
	}
	return true, Serve(processes[args[0]])
}

// Name is what the harness puts before the names of a process's methods.
const Name = "Process."

// Serve answers the harness with the methods of a Process until it closes the input, and returns the
// exit status. Everything else that this process prints goes to standard error.
func Serve(process any) int {
	out := os.Stdout
	os.Stdout = os.Stderr
	srv := rpc.NewServer()
	if err := srv.RegisterName("Process", process); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	srv.ServeCodec(jsonrpc.NewServerCodec(Pipes{os.Stdin, out}))
	return 0
}

// Pipes are one end of the channel.
type Pipes struct {
	io.Reader
	io.WriteCloser
}
