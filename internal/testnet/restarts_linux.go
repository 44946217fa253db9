package testnet

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// Restarts runs a program that replaces itself at SIGHUP. Each of its processes says, when it serves,
// "process 123 serves http://127.0.0.1:4567".
type Restarts struct {
	PID     int    // of the process that serves now
	Address string // where it listens
	Log     Log    // what all processes have written

	t     testing.TB
	first *exec.Cmd
	ended chan struct{} // closed when all have ended
}

// StartRestarts starts the test binary with the arguments and a variable ("KEY=value") by which its
// TestMain knows that it is to be the program, and waits until it serves. The process that serves when
// the test ends is killed.
func StartRestarts(t testing.TB, variable string, args ...string) *Restarts {
	t.Helper()
	return StartRestartsOf(t, exec.Command(os.Args[0], args...), variable)
}

// StartChildRestarts does the same with a function that TestMain has registered under name with
// WithChild.
func StartChildRestarts(t testing.TB, name string) *Restarts {
	t.Helper()
	return StartRestarts(t, childVariable+"="+name)
}

// StartRestartsOf does the same with a program of another name, which runs the test binary.
func StartRestartsOf(t testing.TB, cmd *exec.Cmd, variable string) *Restarts {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &Restarts{t: t, first: cmd, ended: make(chan struct{})}
	// The race detector would sleep for a second before every exit.
	cmd.Env = append(os.Environ(), variable, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cmd.Stdout, cmd.Stderr = out, out
	CatchSIGHUP()
	err = cmd.Start()
	out.Close()
	if err != nil {
		in.Close()
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		defer in.Close()
		_, _ = io.Copy(&r.Log, in)
	}()
	t.Cleanup(func() {
		if r.PID != 0 {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
		if t.Failed() {
			t.Log(r.Log.String())
		}
	})
	r.awaitServing(0)
	return r
}

// Restart sends SIGHUP, and waits until the successor serves.
func (r *Restarts) Restart() {
	r.t.Helper()
	before := len(serves.FindAllString(r.Log.String(), -1))
	if err := syscall.Kill(r.PID, syscall.SIGHUP); err != nil {
		r.t.Fatalf("SIGHUP: %v", err)
	}
	r.awaitServing(before)
}

// WaitFirst waits until the first process has ended, and returns how.
func (r *Restarts) WaitFirst() error { return r.first.Wait() }

// Stop ends the process that serves, and waits until it and all others have ended.
func (r *Restarts) Stop() {
	r.t.Helper()
	_ = syscall.Kill(r.PID, syscall.SIGTERM)
	Within(r.t, "the processes' end", func() { <-r.ended })
	r.PID = 0
	if err := r.WaitFirst(); err != nil {
		r.t.Errorf("the first process: %v", err)
	}
}

var serves = regexp.MustCompile(`process \d+ serves https?://\S+`)

// awaitServing waits for the process with that number, from 0, to serve.
func (r *Restarts) awaitServing(number int) {
	r.t.Helper()
	Eventually(r.t, "a process that serves", func() bool {
		select {
		case <-r.ended:
			r.t.Fatal("the processes have ended")
		default:
		}
		all := serves.FindAllString(r.Log.String(), -1)
		if len(all) <= number {
			return false
		}
		_, err := fmt.Sscanf(strings.Replace(all[number], "https:", "http:", 1), "process %d serves http://%s", &r.PID, &r.Address)
		return err == nil
	})
}

// CatchSIGHUP lets processes that are started from now on catch or die of SIGHUP. A signal that the
// tests' own parent ignores, as nohup(1) does, would be ignored by them, too; one that is caught here is
// not (execve(2)).
func CatchSIGHUP() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }
