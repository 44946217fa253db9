//go:build !percore_net

package percore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// limitDescriptors lets the process open n more descriptors.
func limitDescriptors(n int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		exitChild("getrlimit", err)
	}
	// The limit is one more than the highest number that may be allocated.
	for limit.Cur = 0; n > 0; limit.Cur++ {
		if _, err := unix.FcntlInt(uintptr(limit.Cur), unix.F_GETFD, 0); err == unix.EBADF {
			n--
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		exitChild("setrlimit", err)
	}
}

// starvedStatus is the report of TestOutOfDescriptors' helper.
type starvedStatus struct {
	Accepted, Backoffs uint64
	Reports            int32  // calls of OnAcceptError
	Report             string // the last one's error
	Errno              int
	Elapsed, CPU       time.Duration
}

// acceptGoroutines is how many goroutines accept in that helper, and serverDescriptors is how many
// descriptors it has left for connections.
const (
	acceptGoroutines  = 2
	serverDescriptors = 10
)

func init() {
	// An echo server that can open only a few more descriptors. It answers each line on its
	// standard input with a status.
	children["out of descriptors"] = starvedServer
	children["out of descriptors, patient"] = func() {
		backoffMin, backoffMax = time.Hour, time.Hour
		starvedServer()
	}
}

// starvedServer is TestOutOfDescriptors' helper.
func starvedServer() {
	var reports atomic.Int32
	var report atomic.Pointer[error]
	lc := ListenConfig{OnAcceptError: func(err error) {
		reports.Add(1)
		report.Store(&err)
	}}
	ln, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	if err != nil {
		exitChild("listening", err)
	}
	limitDescriptors(serverDescriptors)
	for range acceptGoroutines {
		go serveEcho(ln)
	}
	fmt.Println(ln.Addr())
	begin := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		s := ln.(*Listener).Stats()
		status := starvedStatus{
			Accepted: s.Accepted, Backoffs: s.Backoffs, Reports: reports.Load(),
			Elapsed: time.Since(begin), CPU: testnet.CPUTime(),
		}
		if err := report.Load(); err != nil {
			status.Report = (*err).Error()
			var errno syscall.Errno
			if errors.As(*err, &errno) {
				status.Errno = int(errno)
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(status); err != nil {
			exitChild("reporting", err)
		}
	}
	ln.Close()
}

// TestAcceptWarning: the warning that programs get without an OnAcceptError names
// the listener and the error, in one line.
func TestAcceptWarning(t *testing.T) {
	log := captureLog(t)
	network, address := testnet.Address(t, testnet.TCP4)
	ln, err := Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ln.(*Listener).listener.report(syscall.EMFILE)
	got := log.String()
	if strings.Count(got, "\n") != 1 {
		t.Errorf("got %q, want one line", got)
	}
	for _, want := range []string{"level=WARN", "network=" + network + " ", "address=" + ln.Addr().String() + " ", `error="` + syscall.EMFILE.Error() + `"`} {
		if !strings.Contains(got, want) {
			t.Errorf("got the warning %q, want one with %s", got, want)
		}
	}
}

// starvingClients dials a server that has too few descriptors for all of them.
func starvingClients(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		t.Cleanup(func() { c.Close() })
		conns[i] = c
	}
	return conns
}

// wantAllServed has each client get its echo, and leave.
func wantAllServed(t *testing.T, conns []net.Conn) {
	t.Helper()
	var all sync.WaitGroup
	for i, c := range conns {
		all.Go(func() {
			text := "client " + strconv.Itoa(i)
			if got, err := roundTrip(c, text); got != text || err != nil {
				t.Errorf("%s: got %q, %v", text, got, err)
			}
			c.Close()
		})
	}
	testnet.Within(t, "serving all", all.Wait)
}

// TestAcceptAfterClose: when the process is out of descriptors, Accept goes on as soon as one of its
// connections is closed. In this process it would otherwise wait for an hour.
func TestAcceptAfterClose(t *testing.T) {
	testnet.NoLeaks(t)
	child := testnet.StartChild(t, "out of descriptors, patient", "GOMAXPROCS=2")
	answers := bufio.NewScanner(child.Stdout)
	if !answers.Scan() {
		t.Fatalf("the server did not start: %v", child.Wait())
	}
	conns := starvingClients(t, answers.Text(), 4*serverDescriptors)
	wantAllServed(t, conns)
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

// TestOutOfDescriptors has more clients than the server has descriptors. The server must wait
// without spinning, report it once, and serve the rest as others leave.
func TestOutOfDescriptors(t *testing.T) {
	testnet.NoLeaks(t)
	const clients = 40
	child := testnet.StartChild(t, "out of descriptors", "GOMAXPROCS=2")
	answers := bufio.NewScanner(child.Stdout)
	ask := func() (s starvedStatus) {
		t.Helper()
		io.WriteString(child.Stdin, "\n")
		if !answers.Scan() {
			t.Fatalf("the server has ended: %v", child.Wait())
		}
		if err := json.Unmarshal(answers.Bytes(), &s); err != nil {
			t.Fatalf("status %q: %v", answers.Bytes(), err)
		}
		return s
	}
	if !answers.Scan() {
		t.Fatalf("the server did not start: %v", child.Wait())
	}
	address := answers.Text()

	conns := starvingClients(t, address, clients)
	var before starvedStatus
	testnet.Eventually(t, "running out of descriptors", func() bool {
		before = ask()
		// The last connection may have been accepted but not counted yet.
		return before.Backoffs >= 3 && before.Accepted == serverDescriptors && before.Reports > 0
	})
	time.Sleep(500 * time.Millisecond) // to see how it behaves during this
	after := ask()
	if after.Accepted != before.Accepted {
		t.Errorf("got %d connections, then %d, want no more", before.Accepted, after.Accepted)
	}
	if after.Reports != 1 || after.Errno != int(syscall.EMFILE) || after.Report != "accept4: too many open files" {
		t.Errorf("got %d calls of OnAcceptError, the last with %q, want one with EMFILE", after.Reports, after.Report)
	}
	// Doubling from 5 ms to 1 s, each goroutine tries 8 times in the first second and then once a
	// second. A goroutine that spins tries a million times.
	if triesMax := uint64(acceptGoroutines * (10 + 2*int(after.Elapsed/time.Second))); after.Backoffs > triesMax {
		t.Errorf("tried %d times in %v, want at most %d", after.Backoffs, after.Elapsed, triesMax)
	}
	if used, passed := after.CPU-before.CPU, after.Elapsed-before.Elapsed; used > passed/2 {
		t.Errorf("used %v of CPU time in %v of waiting", used, passed)
	}

	wantAllServed(t, conns)
	if last := ask(); last.Accepted != clients || last.Reports != 1 {
		t.Errorf("in the end: got %+v, want %d accepted and 1 report", last, clients)
	}
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
}

func init() {
	// Tries to listen with one descriptor more each time, until it works, and prints the errors.
	children["listen with few descriptors"] = func() {
		warm, err := net.Listen("tcp4", "127.0.0.1:0") // the descriptors that the runtime opens once
		if err != nil {
			exitChild("listening", err)
		}
		warm.Close()
		before := testnet.CountFDs()
		for n := range 100 {
			limitDescriptors(n)
			ln, err := Listen("tcp4", "127.0.0.1:0") // another process may have the last port by now
			limitDescriptors(50)
			if err == nil {
				ln.Close()
				os.Stdout.WriteString("listened\n")
				return
			}
			fmt.Println(err)
			if !errors.Is(err, syscall.EMFILE) {
				exitChild("want EMFILE", err)
			}
			// A group that has started ends a little later.
			for deadline := time.Now().Add(testnet.HangTimeout); testnet.CountFDs() != before; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					exitChild(fmt.Sprintf("with %d descriptors: %d are left of a failed Listen", n, testnet.CountFDs()-before), err)
				}
			}
		}
	}
}

// TestListenOutOfDescriptors makes Listen fail at each of the descriptors that it opens. Each time
// it must return one line of error and leave nothing behind.
func TestListenOutOfDescriptors(t *testing.T) {
	testnet.NoLeaks(t)
	child := testnet.StartChild(t, "listen with few descriptors", "GOMAXPROCS=2")
	var out []byte
	testnet.Within(t, "listening", func() { out, _ = io.ReadAll(child.Stdout) })
	if err := child.Wait(); err != nil {
		t.Errorf("%v\nafter %s", err, out)
	}
	lines := bufio.NewScanner(bytes.NewReader(out))
	failures, listened := 0, false
	for lines.Scan() {
		if lines.Text() == "listened" {
			listened = true
			continue
		}
		failures++
		if ok := listenError.MatchString(lines.Text()); !ok {
			t.Errorf("got %q, want one line like %q", lines.Text(), listenError)
		}
	}
	// The sockets, the loops and the sets between them: at least one each.
	if !listened || failures < 5 {
		t.Errorf("got %d failures and listened=%t, want it to work at last, after at least 5 failures\n%s", failures, listened, out)
	}
}

var listenError = regexp.MustCompile(`^listen tcp4 127\.0\.0\.1:\d+: [^\n]*too many open files$`)
