package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// marker is in the environment of a command that a test runs, and of all processes that it starts.
const marker = "PERCORE_TEST_MARKER"

// processes counts the command's processes, its own included.
func (c *command) processes() (n int) {
	c.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, f := range files {
		// A process may leave while it is looked at; a dead one has none.
		if env, err := os.ReadFile(f); err == nil && bytes.Contains(append(env, 0), []byte(marker+"="+c.t.Name()+"\x00")) {
			n++
		}
	}
	return n
}

// runBenchmark runs "percore bench" to its end.
func runBenchmark(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return runCommand(t, append([]string{"bench"}, args...)...)
}

// benchQuickly is flags that make a sample take no time to speak of.
func benchQuickly(args ...string) []string {
	return append([]string{"-rounds", "1", "-duration", "50ms", "-warmup", "10ms", "-idle", "20", "-settle", "10ms"}, args...)
}

func TestBenchUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-fast"}, "flag provided but not defined: -fast"},
		{[]string{"http"}, `unexpected argument "http"`},
		{[]string{"-arms", "evio"}, `unknown arm "evio"`},
		{[]string{"-run", "("}, "bad -run"},
		{[]string{"-env", "nobody:A=b"}, `no arm is called "nobody"`},
		{[]string{"-exe", "percore"}, "want ARM:PATH"},
		{[]string{"-against", "/nonexistent"}, "/nonexistent: no such file"},
		{[]string{"-rounds", "many"}, "invalid value"},
		{[]string{"-rounds", "0"}, "0 rounds: need at least one"},
		{[]string{"-duration", "0s"}, "durations must be positive"},
		{[]string{"-idle", "-1"}, "-1 idle connections: need at least one"},
		{[]string{"-run", "gopher"}, `no scenario matches "gopher"`},
		{[]string{"-list", "-run", "gopher"}, `no scenario matches "gopher"`},
	} {
		_, said, code := runBenchmark(t, c.args...)
		if code != exitUsage {
			t.Errorf("bench %q: exit status %d, want %d", c.args, code, exitUsage)
		}
		if !strings.HasPrefix(said, "percore bench: ") || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("bench %q: said %q, want one line with %q", c.args, said, c.want)
		}
	}
}

func TestBenchHelp(t *testing.T) {
	stdout, stderr, code := runBenchmark(t, "-h")
	if code != exitOK || stderr != "" {
		t.Errorf("exit status %d, stderr %q; want 0 and nothing", code, stderr)
	}
	for _, want := range []string{"-quick", "-json", "docs/BENCHMARKS.md"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in the help:\n%s", want, stdout)
		}
	}
}

func TestBenchList(t *testing.T) {
	stdout, _, code := runBenchmark(t, "-list", "-run", "^idle/http/", "-idle", "123")
	if code != exitOK || stdout != "* idle/http/conns=123\n" {
		t.Errorf("exit status %d, stdout %q; want the one scenario", code, stdout)
	}
}

// TestBench runs the real thing and writes a file.
func TestBench(t *testing.T) {
	path := filepath.Join(t.TempDir(), "json")
	stdout, stderr, code := runBenchmark(t, benchQuickly("-run", "^(echo/128B|http/keepalive)/conns=1$", "-json", path)...)
	if code != exitOK {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	for _, want := range []string{"echo/128B/conns=1\n", "http/keepalive/conns=1\n", "cpu/op", "percore / net", "percore against net:"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in the table:\n%s", want, stdout)
		}
	}
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), `"scenario": "echo/128B/conns=1"`) {
		t.Errorf("the file: %v, %d bytes without the scenario", err, len(b))
	}
}

// TestBenchBadOutput: a file that can't be written is found out before anything is measured.
func TestBenchBadOutput(t *testing.T) {
	stdout, stderr, code := runBenchmark(t, "-json", filepath.Join(t.TempDir(), "no", "such", "directory"))
	if code != exitFailure || !strings.Contains(stderr, "no such file") || stdout != "" {
		t.Errorf("exit status %d, stderr %q, stdout %q", code, stderr, stdout)
	}
}

// TestBenchLimits runs where there are too few open files for one scenario, then for all.
func TestBenchLimits(t *testing.T) {
	limited := func(match string) (stdout, stderr string, code int) {
		args := append([]string{"-c", `ulimit -n 300; exec "$@"`, "sh", os.Args[0], "bench"}, benchQuickly("-arms", "net", "-idle", "1000", "-run", match)...)
		return runProgram(t, exec.Command("sh", args...))
	}
	stdout, stderr, code := limited("^idle/http/|^echo/128B/conns=1$")
	const why = "1001 connections need 1129 open files per process, the limit is 300"
	if code != exitOK || strings.Count(stderr, why) != 1 || !strings.Contains(stdout, "not run: "+why) {
		t.Errorf("exit status %d, want the rest to run and %q explained;\nstderr %s\nstdout %s", code, why, stderr, stdout)
	}
	if _, stderr, code = limited("^idle/http/"); code != exitFailure || !strings.Contains(stderr, "nothing to run") {
		t.Errorf("exit status %d, stderr %q; want %d and nothing to run", code, stderr, exitFailure)
	}
}

// TestBenchFailure: a scenario that fails shows in the exit status, and the others
// are measured and printed all the same.
func TestBenchFailure(t *testing.T) {
	stdout, stderr, code := runBenchmark(t, benchQuickly("-arms", "net,net", "-exe", "net#2:/no/such/program", "-run", "^echo/128B/conns=1$")...)
	if code != exitFailure || !strings.Contains(stderr, "start the net#2 server") {
		t.Errorf("exit status %d, stderr %q; want %d and why the server did not start", code, stderr, exitFailure)
	}
	if !strings.Contains(stdout, "FAILED") || !strings.Contains(stdout, "cpu/op") {
		t.Errorf("stdout %q, want the failure and what was measured", stdout)
	}
}

// TestBenchDefaultArms: the adapter takes part over HTTP.
func TestBenchDefaultArms(t *testing.T) {
	stdout, stderr, code := runBenchmark(t, benchQuickly("-run", "^(echo/128B/conns=1|http/close/.*|idle/http/.*)$")...)
	if code != exitOK {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	// In the order of the scenarios: HTTP, echo, idle.
	_, tables, _ := strings.Cut(stdout, "\nhttp/close/")
	http, tables, _ := strings.Cut(tables, "\necho/128B/")
	echo, idle, _ := strings.Cut(tables, "\nidle/http/")
	for _, c := range []struct {
		name, table, pair string
		want              bool
	}{
		{"echo", echo, "percore / net", true},
		{"echo", echo, "percore+fastpath", false},
		{"http", http, "percore+fastpath / percore / net", true},
		{"idle", idle, "percore+fastpath / percore / net", true},
	} {
		if got := strings.Contains(strings.Join(strings.Fields(c.table), " "), c.pair); got != c.want {
			t.Errorf("%s compares %s: got %t, want %t, in:\n%s", c.name, c.pair, got, c.want, stdout)
		}
	}
	if !strings.Contains(stderr, "of 8 samples") {
		t.Errorf("stderr %q, want the number of samples, three arms, two and three", stderr)
	}
}

// startLong starts a benchmark of hours and waits until its second sample.
func startLong(t *testing.T) *command {
	t.Helper()
	dir := t.TempDir()
	script, starts := filepath.Join(dir, "server"), filepath.Join(dir, "starts")
	text := "#!/bin/sh\necho >>" + starts + "\nexec " + os.Args[0] + ` "$@"` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	r := startCommand(t, "bench", "-arms", "net,net", "-exe", "net:"+script, "-rounds", "100000", "-duration", "50ms", "-warmup", "10ms",
		"-run", "^echo/128B/conns=1$")
	testnet.Eventually(t, "the second round has begun", func() bool {
		lines, _ := os.ReadFile(starts)
		return len(lines) > 1
	})
	return r
}

// TestBenchInterrupt is Ctrl-C: the samples so far are printed, no process is left.
func TestBenchInterrupt(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			r := startLong(t)
			r.signal(sig)
			r.wait()
			if code := r.cmd.ProcessState.ExitCode(); code != exitFailure {
				t.Errorf("exit status %d, want %d", code, exitFailure)
			}
			for _, want := range []string{"cpu/op", "stopped before the end"} {
				if !r.stdout.Has(want) {
					t.Errorf("no %q in what was printed:\n%s", want, &r.stdout)
				}
			}
			if n := r.processes(); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

// TestBenchKilled kills the benchmark itself: its children leave by themselves.
func TestBenchKilled(t *testing.T) {
	r := startLong(t)
	testnet.Eventually(t, "a server and a load generator run", func() bool { return r.processes() == 3 })
	r.signal(os.Kill)
	r.wait()
	testnet.Eventually(t, "all processes have gone", func() bool { return r.processes() == 0 })
}
