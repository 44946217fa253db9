package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	entry "github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/internal/testnet"
)

// argFake makes the test binary a fake, whose mistake follows.
const argFake = "bench-fake"

func TestMain(m *testing.M) {
	if isChild, status := entry.Run(os.Args[1:]); isChild {
		os.Exit(status)
	}
	if len(os.Args) > 2 && os.Args[1] == argFake {
		os.Exit(fakeServer(os.Args[2]))
	}
	// A program built with -race sleeps for a second before it exits; there are hundreds here.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testnet.Main(m)
}

// The orders that a fakeServer understands.
const (
	fakeKnown    = "known"     // answer after fakeLatency, and account fakeCost for each request
	fakeRefuse   = "refuse"    // refuse to start
	fakeNobody   = "nobody"    // name an address without a listener
	fakeMute     = "mute"      // never answer the harness
	fakeBabble   = "babble"    // answer the harness with something else
	fakeDie      = "die"       // end in the middle of the load
	fakeHang     = "hang"      // stop answering in the middle of the load
	fakeWrong    = "wrong"     // answer requests with an error
	fakeHangUp   = "hang-up"   // close all connections when asked for its memory once more
	fakeLastWord = "I give up" // a dying fake's last words
)

// The figures of a fakeServer.
const (
	fakeLatency = 20 * time.Millisecond
	fakeCost    = 3 * time.Millisecond // in user space; a third as much in the kernel
	fakeAfter   = 12                   // requests that go well before anything happens
	fakePerConn = 5000                 // bytes that a connection costs it
)

// fake is a server whose cost and latency are known, because it makes them up.
type fake struct {
	how      string
	requests atomic.Int64
	conns    atomic.Int64
	dying    sync.Once

	srv    *http.Server
	looked bool        // the harness has asked for the memory
	open   []io.Closer // fakeNobody's: they hold the address
}

// fakeServer is the process of a fake and returns its exit status.
func fakeServer(how string) int {
	f := &fake{how: how}
	switch how {
	case fakeMute:
		io.Copy(io.Discard, os.Stdin)
		return 0
	case fakeBabble:
		fmt.Println("hello, who is there?")
		io.Copy(io.Discard, os.Stdin)
		return 0
	}
	return entry.Serve(f)
}

// Usage is Process.Usage of package target, and so are the other methods.
func (f *fake) Usage(_ scenario.None, u *scenario.Usage) error {
	n := time.Duration(f.requests.Load())
	*u = scenario.Usage{
		User: time.Hour + n*fakeCost, System: n * fakeCost / 3,
		Switches: 1000 + 5*int64(n), Mallocs: 7 * uint64(n), AllocBytes: 64 * uint64(n),
	}
	return nil
}

func (f *fake) Memory(_ scenario.None, m *scenario.Memory) error {
	n := f.conns.Load()
	if f.looked && f.how == fakeHangUp {
		f.srv.Close()
	}
	f.looked = true
	*m = scenario.Memory{Resident: 1e9 + n*fakePerConn, Heap: n * fakePerConn / 2, Stack: n * 100, Goroutines: 10 + n}
	return nil
}

func (f *fake) Start(_ scenario.Order, started *scenario.Started) error {
	if f.how == fakeRefuse {
		return errors.New("not today")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if f.how == fakeNobody {
		// A client's port refuses connections, and no other program can get it, as it could a closed
		// listener's.
		c, err := net.Dial("tcp", l.Addr().String())
		f.open = []io.Closer{l, c}
		started.Addr = c.LocalAddr().String()
		return err
	}
	f.srv = &http.Server{Handler: f, ConnState: f.connState}
	go f.srv.Serve(l)
	*started = scenario.Started{Addr: l.Addr().String(), GOMAXPROCS: 3}
	return nil
}

// connState counts the open connections.
func (f *fake) connState(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		f.conns.Add(1)
	case http.StateClosed:
		f.conns.Add(-1)
	}
}

// ServeHTTP answers one request, in its own way.
func (f *fake) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n := f.requests.Add(1)
	if n > fakeAfter {
		switch f.how {
		case fakeDie:
			f.dying.Do(func() {
				fmt.Fprintln(os.Stderr, fakeLastWord)
				os.Exit(3)
			})
		case fakeHang:
			select {}
		case fakeWrong:
			http.Error(w, "no", http.StatusTeapot)
			return
		}
	}
	time.Sleep(fakeLatency)
	io.WriteString(w, "hello")
}
