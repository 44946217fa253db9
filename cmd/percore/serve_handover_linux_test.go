//go:build !percore_net

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// generations is "percore serve" with all processes that take over from each other.
type generations struct {
	t      *testing.T
	output *transcript // of all of them
	first  *exec.Cmd
	pid    int // of the one that serves
	dir    string
	exe    string // the program

	printing sync.WaitGroup // until output is complete

	httpAddress, grpcAddress string
}

// newGenerations reserves addresses, so that each process can be started with the same.
func newGenerations(t *testing.T) *generations {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("finding the test binary: %v", err)
	}
	return &generations{t: t, output: newTranscript(), dir: t.TempDir(), exe: exe, httpAddress: testnet.Reserve(t), grpcAddress: testnet.Reserve(t)}
}

// startGenerations starts the first process.
func startGenerations(t *testing.T, args ...string) *generations {
	t.Helper()
	g := newGenerations(t)
	g.startFirst(args...)
	return g
}

// startFirst starts the first process.
func (g *generations) startFirst(args ...string) {
	g.t.Helper()
	before := g.count("Ctrl-C stops")
	g.first = g.start(args...)
	g.pid = g.first.Process.Pid
	testnet.Eventually(g.t, "the first process", func() bool { return g.count("Ctrl-C stops") > before })
	g.t.Cleanup(func() {
		for _, pid := range g.pids() {
			if g.isRunning(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
}

// start starts a process. Its output, and that of its successors, goes through a pipe that is theirs, so
// that the end of the process is not that of its output.
func (g *generations) start(args ...string) *exec.Cmd {
	g.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		g.t.Fatalf("pipe: %v", err)
	}
	defer w.Close()
	g.printing.Go(func() {
		_, _ = io.Copy(g.output, r)
		r.Close()
	})
	args = append([]string{
		"serve", "-http", g.httpAddress, "-grpc", g.grpcAddress, "-admin", "", "-dir", g.dir, "-any-parent", // the tests' process is no parent that a Service knows
		"-drain", testnet.HangTimeout.String(), // nothing is cut off because the machine is slow
	}, args...)
	cmd := exec.Command(g.exe, args...)
	cmd.Env = append(os.Environ(), commandVariable+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	cmd.Stdout, cmd.Stderr = w, w
	testnet.CatchSIGHUP()
	if err := cmd.Start(); err != nil {
		g.t.Fatalf("percore serve: %v", err)
	}
	return cmd
}

var successorPid = regexp.MustCompile(`starting a successor" pid=(\d+)`)

// pids returns the processes so far, oldest first.
func (g *generations) pids() []int {
	all := []int{g.first.Process.Pid}
	for _, m := range successorPid.FindAllStringSubmatch(g.output.String(), -1) {
		if pid, err := strconv.Atoi(m[1]); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// hangUp sends SIGHUP to the process that serves and returns the pid of its successor, which may not
// be ready.
func (g *generations) hangUp() int {
	g.t.Helper()
	before := len(g.pids())
	if err := syscall.Kill(g.pid, syscall.SIGHUP); err != nil {
		g.t.Fatalf("SIGHUP: %v", err)
	}
	testnet.Eventually(g.t, "a successor", func() bool { return len(g.pids()) > before })
	return g.pids()[before]
}

// count returns how often the processes have printed text.
func (g *generations) count(text string) int { return strings.Count(g.output.String(), text) }

// descriptors returns how many descriptors the process that serves has open.
func (g *generations) descriptors() int {
	g.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.pid))
	if err != nil {
		g.t.Fatalf("counting the process's descriptors: %v", err)
	}
	return len(entries)
}

// restart replaces the newest process by another one, and returns when that has everything.
func (g *generations) restart() {
	g.t.Helper()
	before := g.count("stops the servers")
	g.pid = g.hangUp()
	testnet.Eventually(g.t, "the successor", func() bool { return g.count("stops the servers") > before })
}

// requests returns how many HTTP requests the processes have had that have ended.
func (g *generations) requests() (sum int) {
	for _, m := range regexp.MustCompile(`requests +\d+ \((\d+) HTTP`).FindAllStringSubmatch(g.output.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		sum += n
	}
	return sum
}

// stop ends the process that serves, and waits until it and all others are gone, and have been heard.
func (g *generations) stop() {
	g.t.Helper()
	_ = syscall.Kill(g.pid, syscall.SIGTERM)
	_ = waitFor(g.t, g.first)
	testnet.Eventually(g.t, "the end of all processes", func() bool {
		return !slices.ContainsFunc(g.pids(), g.isRunning)
	})
	testnet.Within(g.t, "reading the processes' output", g.printing.Wait)
}

// waitFor is cmd.Wait for a process that ends by itself.
func waitFor(t *testing.T, cmd *exec.Cmd) (err error) {
	t.Helper()
	testnet.Within(t, "waiting for a process to exit", func() { err = cmd.Wait() })
	return err
}

// isRunning reports whether there is such a process of this test's, and not a zombie only. The pid may
// be another program's by now, or, if the processes have namespaces of their own, have ever been.
func (g *generations) isRunning(pid int) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
	return err == nil && strings.Contains(string(cmdline), "\x00"+g.httpAddress+"\x00")
}

// keepAliveClient is a client with one connection for all its requests.
type keepAliveClient struct {
	conn   net.Conn
	reader *bufio.Reader
	id     int
	made   int // requests
}

func newKeepAliveClient(t *testing.T, address string, id int) *keepAliveClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("client %d: %v", id, err)
	}
	t.Cleanup(func() { conn.Close() })
	return &keepAliveClient{conn: conn, reader: bufio.NewReaderSize(conn, 1024), id: id}
}

// request makes a request, and fails unless it is answered on the same connection, by its own answer.
func (c *keepAliveClient) request() error {
	c.made++
	target := fmt.Sprintf("/echo?client=%d&request=%d", c.id, c.made)
	if _, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: percore\r\n\r\n", target); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s: body: %w", target, err)
	case resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "GET "+target+" HTTP/1.1\r\n"):
		return fmt.Errorf("%s: got %s and %q", target, resp.Status, body)
	case resp.Close:
		return fmt.Errorf("%s: the server says Connection: close", target)
	}
	return nil
}

// A process that is started by nohup outlives its terminal.
func TestServeNohup(t *testing.T) {
	output := newTranscript()
	cmd := exec.Command("nohup", os.Args[0], "serve", "-http", "127.0.0.1:0", "-grpc", "127.0.0.1:0", "-admin", "", "-dir", t.TempDir())
	cmd.Env = append(os.Environ(), commandVariable+"=1")
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Skipf("nohup, of coreutils, must be in PATH: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	output.await(t, "stops the servers")
	_ = cmd.Process.Signal(syscall.SIGHUP)
	address := submatch(t, output.String(), `HTTP +http://(127\.0\.0\.1:\d+)/ `)
	if err := newKeepAliveClient(t, address, 1).request(); err != nil {
		t.Error(err)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if err := waitFor(t, cmd); err != nil {
		t.Errorf("the process: %v", err)
	}
	if got := output.String(); strings.Contains(got, "a successor") {
		t.Errorf("got output\n%s\nwant SIGHUP to be ignored", got)
	}
}

// The successor is the program that has taken the place of the running one: the one that a symbolic link
// leads to by then, and one that was installed over it.
func TestServeRestartReplaced(t *testing.T) {
	g := newGenerations(t)
	releases, test := t.TempDir(), g.exe
	place := func(release string) string { return filepath.Join(releases, release, "percore") }
	install := func(release string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(place(release)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(test, place(release)); err != nil {
			t.Skip("set TMPDIR and GOTMPDIR to folders of one file system: ", err)
		}
	}
	link := func(release string) {
		t.Helper()
		next := filepath.Join(releases, "next")
		if err := errors.Join(os.Symlink(release, next), os.Rename(next, filepath.Join(releases, "current"))); err != nil {
			t.Fatal(err)
		}
	}
	install("v1")
	install("v2")
	link("v1")
	g.exe = place("current")
	g.startFirst()
	link("v2")
	for range 2 {
		g.restart()
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", g.pid)); got != place("v2") {
			t.Errorf("the successor runs %q, %v, want %q", got, err, place("v2"))
		}
		if err := os.Remove(place("v2")); err != nil {
			t.Fatal(err)
		}
		install("v2")
	}
	g.stop()
}

// TestServeRestartsUnderLoad is the promise of the whole: clients that keep their connections, and send
// requests at times of their own, notice nothing of the server's restarts. PERCORE_TEST_CLIENTS and
// PERCORE_TEST_RESTARTS are its size.
func TestServeRestartsUnderLoad(t *testing.T) {
	clients, restarts := sizeOf(t, "PERCORE_TEST_CLIENTS", 300, 50), sizeOf(t, "PERCORE_TEST_RESTARTS", 4, 2)
	perSecond := 1500 // requests of all clients together
	if race.Enabled {
		perSecond = 300
	}
	g := startGenerations(t)
	var stop atomic.Bool
	var made atomic.Int64
	var all sync.WaitGroup
	interval := time.Duration(clients) * time.Second / time.Duration(perSecond)
	begun := make([]*keepAliveClient, clients)
	for i := range begun {
		begun[i] = newKeepAliveClient(t, g.httpAddress, i)
		if err := begun[i].request(); err != nil {
			t.Fatal(err)
		}
		made.Add(1)
	}
	open := g.descriptors()
	for _, c := range begun {
		all.Go(func() {
			// An open loop: a request has its time, whether the one before was answered late or not.
			due := time.Now().Add(rand.N(interval))
			for ; !stop.Load(); due = due.Add(interval/2 + rand.N(interval)) {
				time.Sleep(time.Until(due))
				made.Add(1)
				if err := c.request(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	// load waits for as many requests as there are clients, of the process that serves.
	load := func() {
		t.Helper()
		before := made.Load()
		testnet.Eventually(t, "requests", func() bool { return made.Load() >= before+int64(clients) || t.Failed() })
	}
	for range restarts {
		load()
		g.restart()
	}
	load()
	// Each has a few more or less at the moment: pipes, and the runtime's and the loops' epoll sets.
	testnet.Eventually(t, fmt.Sprintf("the last process having as few descriptors as the first, which had %d", open), func() bool {
		return g.descriptors() <= open+10
	})
	stop.Store(true)
	all.Wait()
	g.stop()
	if got, want := g.requests(), int(made.Load()); got != want {
		t.Errorf("the processes have had %d requests, and the clients made %d:\n%s", got, want, g.output)
	}
	if n := len(g.pids()); n != restarts+1 {
		t.Errorf("%d processes, want %d", n, restarts+1)
	}
	for _, bad := range []string{"failed", "panic", "cut off"} {
		if g.count(bad) > 0 {
			t.Errorf("the processes say %q:\n%s", bad, g.output)
		}
	}
}

// sizeOf returns the value of a variable, or the usual one.
func sizeOf(t *testing.T, variable string, usual, short int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}
	if testing.Short() {
		return short
	}
	return usual
}
