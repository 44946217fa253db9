package testnet

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// runChild runs the named helper instead of the tests and exits. It fails if the helper leaks, as
// tests do.
func (h *harness) runChild(name string) {
	run, ok := h.children[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "no helper process named %q\n", name)
		os.Exit(2)
	}
	before := takeSnapshot()
	run()
	if err := awaitNoLeak(append(h.checks, before.check)...); err != nil {
		fmt.Fprintf(os.Stderr, "helper process %s left something behind:\n%v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A ChildProcess is a helper that runs in its own process. It reads orders from its standard input
// and answers on its standard output.
type ChildProcess struct {
	Stdin  io.WriteCloser
	Stdout io.Reader
	cmd    *exec.Cmd
	errors *strings.Builder
}

// StartChild starts the helper that the package's TestMain registered under name with WithChild, with
// extra environment variables ("KEY=value"). The process is killed, if need be, when the test ends.
func StartChild(t testing.TB, name string, env ...string) *ChildProcess {
	t.Helper()
	return StartChildBy(t, name, (*exec.Cmd).Start, env...)
}

// StartChildBy is StartChild with a function that starts the process.
func StartChildBy(t testing.TB, name string, start func(*exec.Cmd) error, env ...string) *ChildProcess {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("finding the test binary: %v", err)
	}
	child := &ChildProcess{cmd: exec.Command(exe), errors: new(strings.Builder)}
	child.cmd.Env = append(append(os.Environ(), childVariable+"="+name), env...)
	child.cmd.Stderr = child.errors
	if child.Stdin, err = child.cmd.StdinPipe(); err != nil {
		t.Fatalf("helper process %s: %v", name, err)
	}
	if child.Stdout, err = child.cmd.StdoutPipe(); err != nil {
		t.Fatalf("helper process %s: %v", name, err)
	}
	if err := start(child.cmd); err != nil {
		t.Fatalf("helper process %s: %v", name, err)
	}
	t.Cleanup(func() {
		if child.cmd.ProcessState == nil {
			child.cmd.Process.Kill()
			child.cmd.Wait()
		}
	})
	return child
}

// Kill kills the process: it has no chance to do anything. Wait then returns an error.
func (c *ChildProcess) Kill() { c.cmd.Process.Kill() }

// PID returns the process's number.
func (c *ChildProcess) PID() int { return c.cmd.Process.Pid }

// Stderr returns the helper's standard error. Wait must have returned.
func (c *ChildProcess) Stderr() string { return c.errors.String() }

// Wait closes the helper's standard input, which tells it to finish, and waits for it to exit. An
// error includes the helper's standard error.
func (c *ChildProcess) Wait() error {
	c.Stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("helper process: %w: %s", err, c.errors.String())
	}
	return nil
}
