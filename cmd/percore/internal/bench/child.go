package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	entry "github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// process is a process that the harness starts. One goroutine uses it.
type process struct {
	what     string // for messages: "the net server"
	cmd      *exec.Cmd
	ask      func()        // makes the process end; it is killed after stopGrace
	counters *counters     // nil if nothing is counted
	said     bytes.Buffer  // on its standard error; complete once exited is closed
	exited   chan struct{} // closed when the process is gone and reaped
	waitErr  error         // result of Wait; valid once exited is closed
}

// stopGrace is how long a process may take to end when it was asked to, and how long its own children
// may keep its output open.
const stopGrace = 5 * time.Second

// newProcess returns a process that is not started yet. cancel asks it to end.
func newProcess(what, exe string, args, env []string, cancel func(*exec.Cmd) error) *process {
	ctx, ask := context.WithCancel(context.Background())
	p := &process{what: what, cmd: exec.CommandContext(ctx, exe, args...), ask: ask, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.said
	p.cmd.Cancel = func() error { return cancel(p.cmd) }
	p.cmd.WaitDelay = stopGrace
	return p
}

// stop asks the process to end, and returns when it is gone.
func (p *process) stop() {
	p.ask()
	<-p.exited
}

// kill ends the process at once and returns when it is gone.
func (p *process) kill() {
	p.cmd.Process.Kill()
	p.stop()
}

// child is a process of package child. One goroutine uses it.
type child struct {
	*process
	client *rpc.Client
}

// startChild runs exe with args on the given processors, with counters if that is wanted. The child
// ends when its standard input ends, so it can't outlive this process. The kernel kills it, too.
func startChild(what string, on *cpuSet, count bool, exe string, args, env []string) (*child, error) {
	c := new(child)
	c.process = newProcess(what, exe, args, env, func(*exec.Cmd) error { return c.client.Close() })
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		err = c.start(on, count, syscall.SIGKILL)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	c.client = jsonrpc.NewClient(entry.Pipes{Reader: out, WriteCloser: in})
	return c, nil
}

// call calls a method of the process and waits for its reply, for ctx, or for limit, whichever comes
// first. If no reply came, the child is dead when call returns.
func (c *child) call(ctx context.Context, method string, in, out any, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s did not answer %s within %v", c.what, method, limit))
	defer cancel()
	if in == nil {
		in = scenario.None{}
	}
	if out == nil {
		out = new(scenario.None)
	}
	call := c.client.Go(entry.Name+method, in, out, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return c.explain(method, call.Error)
	case <-ctx.Done():
		c.kill()
		<-call.Done // the pipes have ended with the process
		return context.Cause(ctx)
	}
}

// dyingMax is the maximum time between a process closing its pipes or connections and its parent
// reaping it.
const dyingMax = 3 * time.Second

func (c *child) explain(method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[rpc.ServerError](err); ok {
		return fmt.Errorf("%s: %w", c.what, err)
	}
	defer c.kill()
	select {
	case <-c.exited:
		return c.death()
	case <-time.After(dyingMax):
		return fmt.Errorf("%s answered %s with something else: %w", c.what, method, err)
	}
}

// deathError says that a process died.
type deathError struct {
	what, how string
	said      string // on its standard error, maybe several lines
}

// Error returns one line. The rest of what the child said is for the report.
func (e *deathError) Error() string {
	text := fmt.Sprintf("%s died (%s)", e.what, e.how)
	line, _, more := strings.Cut(e.said, "\n")
	if line != "" {
		text += ": " + line
	}
	if more {
		text += " …"
	}
	return text
}

// wordsMax is how many bytes of standard error are reported: a few lines, or the top of a panic.
const wordsMax = 2048

// death returns how the process ended. It waits until it has ended.
func (p *process) death() *deathError {
	<-p.exited
	how := "exit status 0"
	if p.waitErr != nil {
		how = p.waitErr.Error()
	}
	said := p.said.Bytes()
	return &deathError{what: p.what, how: how, said: string(bytes.TrimSpace(said[:min(wordsMax, len(said))]))}
}
