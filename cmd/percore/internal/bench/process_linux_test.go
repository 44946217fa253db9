package bench

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// allowed starts a process on the given processors and returns those that it may use.
func allowed(t *testing.T, on *cpuSet) (set cpuSet) {
	t.Helper()
	p := newProcess("sleep", "sleep", []string{"60"}, nil, func(cmd *exec.Cmd) error { return cmd.Process.Kill() })
	if err := p.start(on, false, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if err := unix.SchedGetaffinity(p.cmd.Process.Pid, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

func TestGiveProcessors(t *testing.T) {
	all := allowed(t, nil)
	n := processorCount()
	if all.Count() != n {
		t.Errorf("a process may use %d of %d processors", all.Count(), n)
	}
	if server, load, err := giveProcessors(n); err != nil || load != nil || *server != all {
		t.Errorf("all for the server: got %v, %v, %v, want all, and no set for the load", server, load, err)
	}
	if n < 2 {
		t.Skip("one processor can't be divided: run it where this process may use two")
	}
	server, load, err := giveProcessors(n / 2)
	if err != nil {
		t.Fatal(err)
	}
	if server.Count() != n/2 || load.Count() != n-n/2 {
		t.Errorf("%d and %d of %d processors, want all of them in two parts", server.Count(), load.Count(), n)
	}
	if first, second := allowed(t, server), allowed(t, load); first != *server || second != *load || first == second {
		t.Errorf("processes run on %v and %v, want %v and %v", first, second, *server, *load)
	}
}

// A whole run with the processors split.
func TestSplitRun(t *testing.T) {
	cfg := quick(t, "percore", "^proxy/tcp/128B")
	cfg.SplitCPUs = true
	rep, err := Run(t.Context(), cfg)
	if processorCount() < 2 {
		if err == nil {
			t.Error("one processor was split")
		}
		t.Skip("one processor can't be divided: run it where this process may use two")
	}
	if err != nil {
		t.Fatal(err)
	}
	only(t, rep)
	if got, half := rep.Arms[0].GOMAXPROCS, processorCount()/2; got > half && os.Getenv("GOMAXPROCS") == "" {
		t.Errorf("the server has GOMAXPROCS %d, want at most half of the processors: %d", got, half)
	}
	noChildren(t)
}
