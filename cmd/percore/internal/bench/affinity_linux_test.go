package bench

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// allowed starts a process on the given processors and returns the ones that it says it
// may use: Cpus_allowed_list of proc(5).
func allowed(t *testing.T, on processors) string {
	t.Helper()
	var out strings.Builder
	cmd := exec.Command("cat", "/proc/self/status")
	cmd.Stdout = &out
	if err := startOn(on, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`Cpus_allowed_list:\s*(\S+)`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("no Cpus_allowed_list in %q", out.String())
	}
	return m[1]
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
	for cpu := range 1024 {
		if s.IsSet(cpu) && l.IsSet(cpu) {
			t.Errorf("processor %d is in both halves", cpu)
		}
	}
	all, first, second := allowed(t, nil), allowed(t, server), allowed(t, load)
	if first == second || first == all || second == all {
		t.Errorf("processes run on %s, %s and without a split on %s, want three different sets", first, second, all)
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
		if err == nil {
			t.Error("one processor was split")
		}
		return
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
