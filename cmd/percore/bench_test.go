package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// benchMarker is in the environment of a benchmark that a test runs, and of all
// processes that it starts.
const benchMarker = "PERCORE_TEST_BENCH"

// benchRun is a benchmark in a process of its own.
type benchRun struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	marker         string
}

// benchCommand returns "percore bench" with args, not yet started.
func benchCommand(t *testing.T, args ...string) *benchRun {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return benchWith(t, exec.Command(exe, append([]string{"bench"}, args...)...))
}

// benchWith returns a command that runs the benchmark in its own way.
func benchWith(t *testing.T, cmd *exec.Cmd) *benchRun {
	r := &benchRun{Cmd: cmd, marker: benchMarker + "=" + t.Name() + strconv.Itoa(os.Getpid())}
	// A program built with -race sleeps for a second before it exits.
	r.Env = append(os.Environ(), commandVariable+"=1", r.marker, "GORACE=atexit_sleep_ms=0")
	r.Stdout, r.Stderr = &r.stdout, &r.stderr
	return r
}

// run runs the benchmark to its end and returns its exit status.
func (r *benchRun) run(t *testing.T) int {
	t.Helper()
	var exit *exec.ExitError
	if err := r.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return r.ProcessState.ExitCode()
}

// processes counts the benchmark's processes, its own included.
func (r *benchRun) processes(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		// A process may leave while it is looked at; a dead one has none.
		if env, err := os.ReadFile(f); err == nil && bytes.Contains(append(env, 0), []byte(r.marker+"\x00")) {
			n++
		}
	}
	return n
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
		r := benchCommand(t, c.args...)
		if code := r.run(t); code != exitUsage {
			t.Errorf("bench %q: exit status %d, want %d", c.args, code, exitUsage)
		}
		said := r.stderr.String()
		if !strings.HasPrefix(said, "percore bench: ") || !strings.Contains(said, c.want) || strings.Count(said, "\n") != 1 {
			t.Errorf("bench %q: said %q, want one line with %q", c.args, said, c.want)
		}
	}
}

func TestBenchHelp(t *testing.T) {
	r := benchCommand(t, "-h")
	if code := r.run(t); code != exitOK || r.stderr.Len() > 0 {
		t.Errorf("exit status %d, stderr %q; want 0 and nothing", code, &r.stderr)
	}
	for _, want := range []string{"-quick", "-json", "docs/BENCHMARKS.md"} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("no %q in the help:\n%s", want, &r.stdout)
		}
	}
}

func TestBenchList(t *testing.T) {
	r := benchCommand(t, "-list", "-run", "^idle/http/", "-idle", "123")
	if code := r.run(t); code != exitOK || r.stdout.String() != "* idle/http/conns=123\n" {
		t.Errorf("exit status %d, stdout %q; want the one scenario", code, &r.stdout)
	}
}

// TestBench runs the real thing and writes a file.
func TestBench(t *testing.T) {
	path := filepath.Join(t.TempDir(), "json")
	r := benchCommand(t, benchQuickly("-run", "^(echo/128B|http/keepalive)/conns=1$",
		"-json", path)...)
	if code := r.run(t); code != exitOK {
		t.Fatalf("exit status %d: %s", code, &r.stderr)
	}
	for _, want := range []string{"echo/128B/conns=1\n", "http/keepalive/conns=1\n", "cpu/op", "percore / net", "percore against net:"} {
		if !strings.Contains(r.stdout.String(), want) {
			t.Errorf("no %q in the table:\n%s", want, &r.stdout)
		}
	}
	if b, err := os.ReadFile(path); err != nil || !strings.Contains(string(b), `"scenario": "echo/128B/conns=1"`) {
		t.Errorf("the file: %v, %d bytes without the scenario", err, len(b))
	}
}

// TestBenchBadOutput: a file that can't be written is found out before anything is measured.
func TestBenchBadOutput(t *testing.T) {
	r := benchCommand(t, "-json", filepath.Join(t.TempDir(), "no", "such", "directory"))
	if code := r.run(t); code != exitFailure || !strings.Contains(r.stderr.String(), "no such file") || r.stdout.Len() > 0 {
		t.Errorf("exit status %d, stderr %q, stdout %q", code, &r.stderr, &r.stdout)
	}
}

// TestBenchLimits runs where there are too few open files for one scenario, then for all.
func TestBenchLimits(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limited := func(match string) *benchRun {
		args := append([]string{"-c", `ulimit -n 300; exec "$@"`, "sh", exe, "bench"}, benchQuickly("-arms", "net", "-idle", "1000", "-run", match)...)
		return benchWith(t, exec.Command("sh", args...))
	}
	r := limited("^idle/http/|^echo/128B/conns=1$")
	const why = "1001 connections need 1129 open files per process, the limit is 300"
	if code := r.run(t); code != exitOK || strings.Count(r.stderr.String(), why) != 1 || !strings.Contains(r.stdout.String(), "not run: "+why) {
		t.Errorf("exit status %d, want the rest to run and %q explained;\nstderr %s\nstdout %s", code, why, &r.stderr, &r.stdout)
	}
	r = limited("^idle/http/")
	if code := r.run(t); code != exitFailure || !strings.Contains(r.stderr.String(), "nothing to run") {
		t.Errorf("exit status %d, stderr %q; want %d and nothing to run", code, &r.stderr, exitFailure)
	}
}

// TestBenchFailure: a scenario that fails shows in the exit status, and the others
// are measured and printed all the same.
func TestBenchFailure(t *testing.T) {
	r := benchCommand(t, benchQuickly("-arms", "net,net", "-exe", "net#2:/no/such/program", "-run", "^echo/128B/conns=1$")...)
	if code := r.run(t); code != exitFailure || !strings.Contains(r.stderr.String(), "start the net#2 server") {
		t.Errorf("exit status %d, stderr %q; want %d and why the server did not start", code, &r.stderr, exitFailure)
	}
	if !strings.Contains(r.stdout.String(), "FAILED") || !strings.Contains(r.stdout.String(), "cpu/op") {
		t.Errorf("stdout %q, want the failure and what was measured", &r.stdout)
	}
}

// TestBenchDefaultArms: the adapter takes part over HTTP.
func TestBenchDefaultArms(t *testing.T) {
	r := benchCommand(t, benchQuickly("-run", "^(echo/128B/conns=1|http/close/.*|idle/http/.*)$")...)
	if code := r.run(t); code != exitOK {
		t.Fatalf("exit status %d: %s", code, &r.stderr)
	}
	// In the order of the scenarios: HTTP, echo, idle.
	_, tables, _ := strings.Cut(r.stdout.String(), "\nhttp/close/")
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
			t.Errorf("%s compares %s: got %t, want %t, in:\n%s", c.name, c.pair, got, c.want, &r.stdout)
		}
	}
	if !strings.Contains(r.stderr.String(), "of 8 samples") {
		t.Errorf("stderr %q, want the number of samples, three arms, two and three", &r.stderr)
	}
}

// startLong starts a benchmark of hours and waits until its second sample.
func startLong(t *testing.T) *benchRun {
	t.Helper()
	dir := t.TempDir()
	script, starts := filepath.Join(dir, "server"), filepath.Join(dir, "starts")
	text := "#!/bin/sh\necho >>" + starts + "\nexec " + os.Args[0] + ` "$@"` + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	r := benchCommand(t, "-arms", "net,net", "-exe", "net:"+script, "-rounds", "100000", "-duration", "50ms", "-warmup", "10ms",
		"-run", "^echo/128B/conns=1$")
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Process.Kill() })
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
			if err := r.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			testnet.Within(t, "ending the benchmark", func() { r.Wait() })
			if code := r.ProcessState.ExitCode(); code != exitFailure {
				t.Errorf("exit status %d, want %d", code, exitFailure)
			}
			for _, want := range []string{"cpu/op", "stopped before the end"} {
				if !strings.Contains(r.stdout.String(), want) {
					t.Errorf("no %q in what was printed:\n%s", want, &r.stdout)
				}
			}
			if n := r.processes(t); n != 0 {
				t.Errorf("%d processes are left", n)
			}
		})
	}
}

// TestBenchKilled kills the benchmark itself: its children leave by themselves.
func TestBenchKilled(t *testing.T) {
	r := startLong(t)
	testnet.Eventually(t, "a server and a load generator run", func() bool { return r.processes(t) == 3 })
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.Wait()
	testnet.Eventually(t, "all processes have gone", func() bool { return r.processes(t) == 0 })
}
