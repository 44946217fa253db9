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

// startRestarts starts "percore serve", which processes take over from each other, with a program that
// runs it, and further arguments.
func startRestarts(t *testing.T, program []string, args ...string) *testnet.Restarts {
	t.Helper()
	line := append(program, serveArguments(t.TempDir(), args...)...)
	return testnet.StartRestartsOf(t, exec.Command(line[0], line[1:]...), commandVariable+"=1")
}

// keepAliveClient is a client with one connection for all its requests.
type keepAliveClient struct {
	net.Conn
	reader   *bufio.Reader
	id, made int // made are its requests
}

func newKeepAliveClient(t *testing.T, address string, id int) *keepAliveClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("client %d: %v", id, err)
	}
	t.Cleanup(func() { conn.Close() })
	return &keepAliveClient{Conn: conn, reader: bufio.NewReaderSize(conn, 1024), id: id}
}

// request makes a request, and fails unless it is answered on the same connection, by its own answer.
func (c *keepAliveClient) request() error {
	c.made++
	target := fmt.Sprintf("/echo?client=%d&request=%d", c.id, c.made)
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: percore\r\n\r\n", target); err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	resp, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return fmt.Errorf("%s: %w", target, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Close || !strings.HasPrefix(string(body), "GET "+target+" HTTP/1.1\r\n") {
		return fmt.Errorf("%s: got %s, %v, Connection: close %t, and %q", target, resp.Status, err, resp.Close, body)
	}
	return nil
}

// A process that is started by nohup outlives its terminal.
func TestServeNohup(t *testing.T) {
	r := startRestarts(t, []string{"nohup", os.Args[0]})
	_ = syscall.Kill(r.PID, syscall.SIGHUP)
	if err := newKeepAliveClient(t, r.Address, 1).request(); err != nil {
		t.Error(err)
	}
	r.Stop()
	if r.Log.Has("a successor") {
		t.Error("got a successor, want SIGHUP to be ignored")
	}
}

// The successor is the program that has taken the place of the running one: the one that a symbolic link
// leads to by then, and one that was installed over it.
func TestServeRestartReplaced(t *testing.T) {
	releases := t.TempDir()
	place := func(release string) string { return filepath.Join(releases, release, "percore") }
	install := func(release string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(place(release)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(os.Args[0], place(release)); err != nil {
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
	r := startRestarts(t, []string{place("current")}, "-any-parent")
	link("v2")
	for range 2 {
		r.Restart()
		if got, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", r.PID)); got != place("v2") {
			t.Errorf("the successor runs %q, %v, want %q", got, err, place("v2"))
		}
		if err := os.Remove(place("v2")); err != nil {
			t.Fatal(err)
		}
		install("v2")
	}
	r.Stop()
}

// TestServeRestartsUnderLoad is the promise of the whole: clients that keep their connections, and send
// requests at times of their own, notice nothing of the server's restarts. PERCORE_TEST_CLIENTS and
// PERCORE_TEST_RESTARTS are its size.
func TestServeRestartsUnderLoad(t *testing.T) {
	clients, count := sizeOf(t, "PERCORE_TEST_CLIENTS", 300, 50), sizeOf(t, "PERCORE_TEST_RESTARTS", 4, 2)
	interval := time.Duration(clients) * time.Second / 1500 // between two requests of one client
	if race.Enabled {
		interval *= 5
	}
	r := startRestarts(t, []string{os.Args[0]}, "-any-parent")
	var stop atomic.Bool
	var made atomic.Int64
	var all sync.WaitGroup
	begun := make([]*keepAliveClient, clients)
	for i := range begun {
		begun[i] = newKeepAliveClient(t, r.Address, i)
		if err := begun[i].request(); err != nil {
			t.Fatal(err)
		}
		made.Add(1)
	}
	open := descriptors(t, r.PID)
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
	for n := range count + 1 {
		before := made.Load()
		testnet.Eventually(t, "requests", func() bool { return made.Load() >= before+int64(clients) || t.Failed() })
		if n < count {
			r.Restart()
		}
	}
	// Each has a few more or less at the moment: pipes, and the runtime's and the loops' epoll sets.
	testnet.Eventually(t, fmt.Sprintf("the last process having as few descriptors as the first, which had %d", open), func() bool {
		return descriptors(t, r.PID) <= open+10
	})
	stop.Store(true)
	all.Wait()
	r.Stop()
	served := int64(0)
	for _, m := range regexp.MustCompile(`requests +(\d+) over HTTP/1.1`).FindAllStringSubmatch(r.Log.String(), -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		served += n
	}
	if served != made.Load() {
		t.Errorf("the processes have had %d requests, and the clients made %d", served, made.Load())
	}
	for _, bad := range []string{"failed", "panic", "cut off"} {
		if r.Log.Has(bad) {
			t.Errorf("the processes say %q", bad)
		}
	}
}

// descriptors returns how many descriptors a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatalf("counting the process's descriptors: %v", err)
	}
	return len(entries)
}

// sizeOf returns the value of a variable, or the usual one.
func sizeOf(t *testing.T, variable string, usual, short int) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	if testing.Short() {
		return short
	}
	return usual
}
