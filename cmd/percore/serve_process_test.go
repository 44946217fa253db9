package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/internal/testnet"
)

// command is the percore command running in a process of its own.
type command struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr testnet.Log // also of a successor; wait waits for the end of all
}

// startCommand starts percore with args. The process is killed at the end of the test if it still runs.
func startCommand(t *testing.T, args ...string) *command {
	t.Helper()
	return startProgram(t, exec.Command(os.Args[0], args...))
}

// startProgram starts a command that runs percore in its own way.
func startProgram(t *testing.T, cmd *exec.Cmd) *command {
	t.Helper()
	c := &command{t: t, cmd: cmd}
	c.cmd.Env = append(os.Environ(), commandVariable+"=1", marker+"="+t.Name(),
		// The race detector would sleep for a second before every exit.
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	c.cmd.Stdout, c.cmd.Stderr = &c.stdout, &c.stderr
	// A shell has a command that it runs in the background ignore SIGINT, and the processes which that
	// starts do, too. A signal that is caught here has its default disposition there (execve(2)).
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	err := c.cmd.Start()
	signal.Stop(interrupts)
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// runCommand runs percore to its end.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return runProgram(t, exec.Command(os.Args[0], args...))
}

// runProgram runs a command of startProgram to its end.
func runProgram(t *testing.T, cmd *exec.Cmd) (stdout, stderr string, status int) {
	t.Helper()
	c := startProgram(t, cmd)
	_ = c.cmd.Wait() // without a limit: a benchmark starts dozens of processes
	return c.stdout.String(), c.stderr.String(), c.cmd.ProcessState.ExitCode()
}

// await waits until the process has printed text on standard output.
func (c *command) await(text string) {
	c.t.Helper()
	testnet.Eventually(c.t, "output with "+text, func() bool { return c.stdout.Has(text) })
}

// signal sends sig.
func (c *command) signal(sig os.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("sending %v: %v", sig, err)
	}
}

// wait waits for the process's end.
func (c *command) wait() {
	c.t.Helper()
	testnet.Within(c.t, "waiting for the process to exit", func() { _ = c.cmd.Wait() })
}

// stop interrupts the process and demands an orderly end.
func (c *command) stop() {
	c.t.Helper()
	c.signal(os.Interrupt)
	c.waitOrderly()
}

// waitOrderly waits for the process's end and demands exit status 0. (The race
// detector would make it 66.)
func (c *command) waitOrderly() {
	c.t.Helper()
	c.wait()
	if got := c.cmd.ProcessState.ExitCode(); got != exitOK {
		c.t.Errorf("exit status: got %d (%v), want 0; stderr:\n%s", got, c.cmd.ProcessState, &c.stderr)
	}
}

// servers is "percore serve" running in a process of its own, with clients.
type servers struct {
	*command
	dir               string // the served directory
	baseURL, adminURL string
	http              *http.Client
	grpc              *grpc.ClientConn
	ctx               context.Context // for calls: done when they hang
}

// serveArguments are those of "percore serve" on free ports. Nothing is cut off because the machine is
// slow.
func serveArguments(dir string, args ...string) []string {
	return append([]string{
		"serve", "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", "127.0.0.1:0", "-dir", dir, "-drain", testnet.HangTimeout.String(),
	}, args...)
}

// startServers starts "percore serve" with a new directory, and makes clients, which are closed before
// the process is killed.
func startServers(t *testing.T, args ...string) *servers {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process can't be interrupted gently on Windows")
	}
	dir := t.TempDir()
	s := &servers{command: startCommand(t, serveArguments(dir, args...)...), dir: dir, http: &http.Client{Transport: new(http.Transport)}}
	s.await("Ctrl-C stops")
	s.baseURL = submatch(t, s.stdout.String(), `HTTP +(https?://127\.0\.0\.1:\d+)/ `)
	s.adminURL = submatch(t, s.stdout.String(), `admin +(http://127\.0\.0\.1:\d+)/metrics `)
	address := submatch(t, s.stdout.String(), `gRPC +(127\.0\.0\.1:\d+) `)
	var err error
	if s.grpc, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatalf("grpc.NewClient(%q): %v", address, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*testnet.HangTimeout) // for the whole test
	s.ctx = ctx
	t.Cleanup(func() {
		cancel()
		s.http.CloseIdleConnections()
		_ = s.grpc.Close()
	})
	return s
}

// do sends a request and returns the response. The test closes its body.
func (s *servers) do(method, path string, header http.Header, body io.Reader) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.ctx, method, s.baseURL+path, body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	if header != nil {
		req.Header = header
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// fetch sends a request and reads the whole response.
func (s *servers) fetch(method, path string, header http.Header, body io.Reader) (*http.Response, string) {
	s.t.Helper()
	resp := s.do(method, path, header, body)
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: reading the response: %v", method, path, err)
	}
	return resp, string(content)
}

// submatch returns the match of the parentheses of pattern in s.
func submatch(t *testing.T, s, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(s)
	if m == nil {
		t.Fatalf("got output\n%s\nwant something that matches %q", s, pattern)
	}
	return m[1]
}
