package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/internal/testnet"
)

// command is the percore command running in a process of its own.
type command struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *transcript
	stderr *transcript
}

// startCommand starts percore with args. The process is killed at the end of
// the test if it still runs.
func startCommand(t *testing.T, args ...string) *command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("finding the test binary: %v", err)
	}
	c := &command{t: t, cmd: exec.Command(exe, args...), stdout: newTranscript(), stderr: newTranscript()}
	c.cmd.Env = append(os.Environ(), commandVariable+"=1",
		// The race detector would sleep for a second before every exit.
		"GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	c.cmd.Stdout, c.cmd.Stderr = c.stdout, c.stderr
	// A shell has a command that it runs in the background ignore SIGINT, and the processes which that
	// starts do, too. A signal that is caught here has its default disposition there (execve(2)).
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	err = c.cmd.Start()
	signal.Stop(interrupts)
	if err != nil {
		t.Fatalf("percore %s: %v", strings.Join(args, " "), err)
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
	c := startCommand(t, args...)
	c.wait()
	return c.stdout.String(), c.stderr.String(), c.cmd.ProcessState.ExitCode()
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
		c.t.Errorf("exit status: got %d (%v), want 0; stderr:\n%s", got, c.cmd.ProcessState, c.stderr)
	}
}

// servers is "percore serve" running in a process of its own, with clients.
type servers struct {
	*command
	dir     string // the served directory
	baseURL string
	http    *http.Client
	grpc    *grpc.ClientConn
	ctx     context.Context // for calls: done when they hang
}

// startServers starts "percore serve" on free ports and a new directory.
func startServers(t *testing.T, args ...string) *servers {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("a process can't be interrupted gently on Windows")
	}
	dir := t.TempDir()
	args = append([]string{
		"serve", "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", "", "-dir", dir,
		"-drain", testnet.HangTimeout.String(), // nothing is cut off because the machine is slow
	}, args...)
	s := &servers{command: startCommand(t, args...), dir: dir}
	s.stdout.await(t, "Ctrl-C stops")
	printed := s.stdout.String()
	s.baseURL = submatch(t, printed, `HTTP +(https?://127\.0\.0\.1:\d+)/ `)
	s.connect(submatch(t, printed, `gRPC +(127\.0\.0\.1:\d+) `))
	return s
}

// connect makes the clients, and has them closed before the process is killed.
func (s *servers) connect(grpcAddress string) {
	s.t.Helper()
	transport := new(http.Transport)
	s.http = &http.Client{Transport: transport}
	conn, err := grpc.NewClient(grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatalf("grpc.NewClient(%q): %v", grpcAddress, err)
	}
	s.grpc = conn
	ctx, cancel := context.WithTimeout(context.Background(), 5*testnet.HangTimeout) // for the whole test
	s.ctx = ctx
	s.t.Cleanup(func() {
		cancel()
		s.disconnect()
	})
}

// disconnect closes the clients' connections.
func (s *servers) disconnect() {
	s.http.CloseIdleConnections()
	_ = s.grpc.Close()
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

// keepAlive connects to the HTTP server and returns a function that makes a request on that
// connection.
func (s *servers) keepAlive() (get func(path string) (body string)) {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.baseURL, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return testnet.KeepAlive(s.t, conn)
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

// transcript is a process's output so far. It is safe for concurrent use.
type transcript struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // closed and replaced by every Write
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	close(tr.changed)
	tr.changed = make(chan struct{})
	return tr.text.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

// await waits until the transcript contains want.
func (tr *transcript) await(t *testing.T, want string) {
	t.Helper()
	hung := time.After(testnet.HangTimeout)
	for {
		tr.mu.Lock()
		text, changed := tr.text.String(), tr.changed
		tr.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-changed:
		case <-hung:
			t.Fatalf("got output\n%s\nwant it to contain %q", text, want)
		}
	}
}

// killedBy reports whether the process ended by the signal sig.
func (c *command) killedBy(sig syscall.Signal) bool {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == sig
}
