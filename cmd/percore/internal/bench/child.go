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
	"time"

	entry "github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// process is a process that the harness starts. One goroutine uses it.
type process struct {
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process is gone and reaped
	waitErr error         // result of Wait; valid once exited is closed
}

// newProcess returns a process that is not started yet.
func newProcess(exe string, args, env []string) process {
	p := process{cmd: exec.Command(exe, args...), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = childAttr()
	p.cmd.WaitDelay = stopGrace // for what it writes, in case a grandchild holds that
	return p
}

// reap waits for the end of the process, once it is started.
func (p *process) reap() {
	p.waitErr = p.cmd.Wait()
	close(p.exited)
}

// stopGrace is how long a process may take to end after it was asked to.
const stopGrace = 5 * time.Second

// awaitEnd is for a process that was asked to end. It kills it if it doesn't, and returns when it is
// gone.
func (p *process) awaitEnd() {
	select {
	case <-p.exited:
	case <-time.After(stopGrace):
	}
	p.end()
}

// end ends the process at once and returns when it is gone.
func (p *process) end() {
	p.cmd.Process.Kill()
	<-p.exited
}

// child is a process of package child. One goroutine uses it.
type child struct {
	process
	what     string // for messages: "the net server"
	client   *rpc.Client
	stderr   bytes.Buffer // complete once exited is closed
	counters *counters    // nil if nothing is counted
}

// startChild runs exe with args on the given processors, with counters if that is wanted. The child
// ends when its standard input ends, so it can't outlive this process. The kernel kills it, too.
func startChild(what string, on processors, count bool, exe string, args, env []string) (*child, error) {
	c := &child{process: newProcess(exe, args, env), what: what}
	c.cmd.Stderr = &c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	switch {
	case err != nil:
	case count:
		c.counters, err = startCounted(on, c.cmd, c.exited)
	default:
		err = startOn(on, c.cmd)
	}
	if err != nil {
		in.Close()
		return nil, fmt.Errorf("start %s: %w", what, err)
	}
	go c.reap()
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

// explain puts an error of a call into words.
func (c *child) explain(method string, err error) error {
	var remote rpc.ServerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &remote):
		return fmt.Errorf("%s: %w", c.what, err)
	}
	select {
	case <-c.exited:
		c.kill()
		return c.death()
	case <-time.After(dyingMax):
		c.kill()
		return fmt.Errorf("%s answered %s with something else: %w", c.what, method, err)
	}
}

// deathError says that a child died.
type deathError struct {
	what, how string
	said      string // on its standard error, maybe several lines
}

// Error returns one line. The rest of what the child said is for the report.
func (e *deathError) Error() string {
	line, _, more := strings.Cut(e.said, "\n")
	switch {
	case line == "":
		return fmt.Sprintf("%s died (%s)", e.what, e.how)
	case more:
		line += " …"
	}
	return fmt.Sprintf("%s died (%s): %s", e.what, e.how, line)
}

// wordsMax is how many bytes of a child's standard error are reported: a few lines, or the top of a
// panic.
const wordsMax = 2048

// death returns how the process ended. It waits until it has ended.
func (c *child) death() *deathError {
	<-c.exited
	how := "exit status 0"
	if c.waitErr != nil {
		how = c.waitErr.Error()
	}
	said := c.stderr.Bytes()
	return &deathError{what: c.what, how: how, said: string(bytes.TrimSpace(said[:min(wordsMax, len(said))]))}
}

// stop closes the input of the process, kills it if it doesn't end, and returns when it is gone. It
// may be called more than once.
func (c *child) stop() {
	_ = c.client.Close()
	c.awaitEnd()
}

// kill ends the process at once and returns when it is gone.
func (c *child) kill() {
	c.end()
	c.stop()
}
