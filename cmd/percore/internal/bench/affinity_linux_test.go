package bench

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// allowed starts a process on the given processors and returns those that it may use.
func allowed(t *testing.T, on processors) (set unix.CPUSet) {
	t.Helper()
	cmd := exec.Command("sleep", "60")
	if err := startOn(on, cmd); err != nil {
		t.Fatal(err)
	}
	err := unix.SchedGetaffinity(cmd.Process.Pid, &set)
	cmd.Process.Kill()
	cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestSplitProcessors(t *testing.T) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	if before.Count() < 2 {
		if _, _, err := splitProcessors(); err == nil {
			t.Error("one processor was split")
		}
		t.Skip("needs two processors")
	}
	server, load, err := splitProcessors()
	if err != nil {
		t.Fatal(err)
	}
	s, l := (*unix.CPUSet)(server), (*unix.CPUSet)(load)
	if s.Count() == 0 || l.Count() == 0 || s.Count()+l.Count() != before.Count() {
		t.Errorf("%d and %d of %d processors, want all of them in two parts", s.Count(), l.Count(), before.Count())
	}
	if all, first, second := allowed(t, nil), allowed(t, server), allowed(t, load); all != before || first != *s || second != *l || first == second {
		t.Errorf("processes run on %v, %v and without a split on %v, want %v, %v and %v", first, second, all, *s, *l, before)
	}
	if server, load, err := giveProcessors(before.Count()); err != nil || load != nil || (*unix.CPUSet)(server).Count() != before.Count() {
		t.Errorf("all for the server: got %v, %v, %v, want all, and no set for the load", server, load, err)
	}
	runtime.LockOSThread() // the thread that started them is as it was
	defer runtime.UnlockOSThread()
	var after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("afterwards this thread may use %v (%v), want %v", after, err, before)
	}
}

// A whole run with the processors split.
func TestSplitRun(t *testing.T) {
	cfg := quick(t, "percore", "^proxy/tcp/128B")
	cfg.SplitCPUs = true
	rep, err := Run(t.Context(), cfg)
	if runtime.NumCPU() < 2 {
		t.Skip("needs two processors")
	}
	if err != nil {
		t.Fatal(err)
	}
	only(t, rep)
	if got, half := rep.Arms[0].GOMAXPROCS, runtime.NumCPU()/2; got > half && os.Getenv("GOMAXPROCS") == "" {
		t.Errorf("the server has GOMAXPROCS %d, want at most half of the processors: %d", got, half)
	}
	noChildren(t)
}
