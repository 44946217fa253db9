package testnet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// Restarts runs a program that replaces itself at SIGHUP. Each of its processes says on standard error,
// when it serves, "process 123 serves http://127.0.0.1:4567".
type Restarts struct {
	PID     int    // of the process that serves now
	Address string // where it listens

	t     testing.TB
	first *exec.Cmd
	log   *bufio.Scanner
}

// StartRestarts starts the test binary with the arguments and a variable ("KEY=value") by which its
// TestMain knows that it is to be the program, and waits until it serves. The process that serves when
// the test ends is killed.
func StartRestarts(t testing.TB, variable string, args ...string) *Restarts {
	t.Helper()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	r := &Restarts{t: t, first: exec.Command(os.Args[0], args...), log: bufio.NewScanner(in)}
	r.first.Env = append(os.Environ(), variable)
	r.first.Stderr = out
	CatchSIGHUP()
	err = r.first.Start()
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.PID != 0 {
			_ = syscall.Kill(r.PID, syscall.SIGKILL)
		}
	})
	r.awaitServing()
	return r
}

// Restart sends SIGHUP, and waits until the successor serves.
func (r *Restarts) Restart() {
	r.t.Helper()
	before := r.PID
	if err := syscall.Kill(before, syscall.SIGHUP); err != nil {
		r.t.Fatalf("SIGHUP: %v", err)
	}
	if r.awaitServing(); r.PID == before {
		r.t.Fatal("the same process again")
	}
}

// WaitFirst waits until the first process has ended, and returns how.
func (r *Restarts) WaitFirst() error { return r.first.Wait() }

func (r *Restarts) awaitServing() {
	r.t.Helper()
	for r.log.Scan() {
		_, line, _ := strings.Cut(strings.Replace(r.log.Text(), "https://", "http://", 1), "process ")
		if _, err := fmt.Sscanf(line, "%d serves http://%s", &r.PID, &r.Address); err == nil {
			return
		}
		r.t.Log(r.log.Text())
	}
	r.t.Fatal("the processes have ended")
}

// CatchSIGHUP lets processes that are started from now on catch or die of SIGHUP. A signal that the
// tests' own parent ignores, as nohup(1) does, would be ignored by them, too; one that is caught here is
// not (execve(2)).
func CatchSIGHUP() { signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) }
