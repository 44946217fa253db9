package httpadapter

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/workers"
	"github.com/percore/percore/loop"
)

// oneProcessor makes the test run on a single processor.
func oneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// flood sends a request on each of n connections. The path is the connection's number.
func (f *fixture) flood(n int) (clients []*client) {
	f.Helper()
	for range n {
		clients = append(clients, f.dial())
	}
	f.awaitWaiting(n)
	for i, c := range clients {
		c.send(request(fmt.Sprint("/", i)))
	}
	return clients
}

// Each waiting handler has a worker, and there are no more workers.
func TestWorkersFollowRequests(t *testing.T) {
	const n = 200
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(procs), func(t *testing.T) {
			before := runtime.GOMAXPROCS(procs)
			t.Cleanup(func() { runtime.GOMAXPROCS(before) })
			arrived, release := make(chan bool, n), make(chan bool)
			f := startOurs(t, func(http.ResponseWriter, *http.Request) {
				arrived <- true
				<-release
			}, nil)
			clients := f.flood(n)
			for range n {
				testnet.Receive(t, "a request", arrived)
			}
			if got := workersLeft(); got != n {
				t.Errorf("got %d workers for %d requests", got, n)
			}
			if got := f.server.Stats().Serving; got != n {
				t.Errorf("got %d connections being served, want %d", got, n)
			}
			close(release)
			for _, c := range clients {
				c.answer()
			}
		})
	}
}

// Handlers that don't block and use the only processor don't keep others from being served. One
// waits for the other, and the scheduler preempts it.
func TestWorkersSpinning(t *testing.T) {
	oneProcessor(t)
	const n = 5
	var served atomic.Int32
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		served.Add(1)
		for served.Load() < n {
		}
		echoPath(rw, r)
	}, nil)
	for i, c := range f.flood(n) {
		if got, want := c.answer(), fmt.Sprint("/", i); got != want {
			t.Errorf("got the answer %q, want %q", got, want)
		}
	}
}

// A worker lets other goroutines of the program run after workers.TurnsMax turns. The spare worker
// may run before them, and so may workers that were preempted. Workers don't yield while the processor
// counts as crowded, as it also does after the machine has stopped the thread for a while.
func TestWorkersYield(t *testing.T) {
	oneProcessor(t)
	const n, most = 16 * workers.TurnsMax, 4 * workers.TurnsMax
	var mu sync.Mutex
	turns := make(map[string]int) // for handlers whose goroutine has not run yet
	var f *fixture
	f = startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		crowded := f.conn().Sight().Crowded
		for path := range turns {
			if turns[path]++; crowded {
				turns[path] = 0
			}
		}
		if len(turns) == 0 {
			turns[r.URL.Path] = 1
			go func() {
				mu.Lock()
				defer mu.Unlock()
				if got := turns[r.URL.Path]; got > most {
					t.Errorf("got %d turns before another goroutine ran, want %d at most", got, most)
				}
				delete(turns, r.URL.Path)
			}()
		}
		echoPath(rw, r)
	}, nil)
	for _, c := range f.flood(n) {
		c.answer()
	}
	testnet.Eventually(t, "the goroutines' end", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(turns) == 0
	})
}

// Shutdown and Close also end the connections that no worker has started on.
func TestWorkersShutdown(t *testing.T) {
	const n = 100
	for _, way := range []string{"Shutdown", "Close"} {
		for _, procs := range []int{1, 4} {
			t.Run(fmt.Sprint(way, "/", procs), func(t *testing.T) {
				before := runtime.GOMAXPROCS(procs)
				t.Cleanup(func() { runtime.GOMAXPROCS(before) })
				begun := make(chan bool, n)
				f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
					begun <- true
					if way == "Close" {
						<-r.Context().Done()
						return
					}
					echoPath(rw, r)
				}, nil)
				clients := f.flood(n)
				testnet.Receive(t, "a request", begun)
				if way == "Close" {
					f.server.Close()
				} else {
					f.shutdown()
				}
				for i, c := range clients {
					answer, _ := io.ReadAll(c.br)
					whole := strings.HasSuffix(string(answer), fmt.Sprint("\r\n\r\n/", i))
					if len(answer) > 0 && (way == "Close" || !whole) {
						t.Errorf("got %q on connection %d", answer, i)
					}
				}
				testnet.Eventually(t, "the workers' end", func() bool { return workersLeft() == 0 })
			})
		}
	}
}

// A worker that has no other connection to serve polls the loop itself. It serves what it finds
// while the loop's goroutine is busy, or queued behind goroutines that compute.
func TestWorkersVisitLoop(t *testing.T) {
	arrived, proceed := make(chan bool), make(chan bool)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			arrived <- true
			<-proceed
		}
		echoPath(rw, r)
	}, func(f *fixture) { f.listenOnLoops(1) })
	holder, other := f.dial(), f.dial()
	for _, c := range []*client{holder, other} {
		c.get("/")
	}
	f.awaitParked(2)
	var l *loop.Loop // the only one
	for nc := range f.snapshot() {
		l = h1.ConnOf(nc).Conn.Loop()
	}
	holder.send(request("/hold"))
	testnet.Receive(t, "the request", arrived)
	held, release := make(chan bool), make(chan bool)
	defer close(release)
	l.Submit(func() {
		close(held)
		<-release
	})
	testnet.Receive(t, "the loop's goroutine being held", held)
	other.send(request("/other"))
	for nc := range f.snapshot() {
		if c := h1.ConnOf(nc); c.RemoteAddr().String() == other.LocalAddr().String() {
			testnet.Eventually(t, "the request being there", func() bool { return hasArrived(t, c.Conn) })
		}
	}
	close(proceed)
	if got := other.answer(); got != "/other" {
		t.Errorf("got the answer %q, want /other", got)
	}
	if got := holder.answer(); got != "/hold" {
		t.Errorf("got the answer %q, want /hold", got)
	}
}

// hasArrived reports whether there is something to read from c.
func hasArrived(t *testing.T, c *percore.Conn) (arrived bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { arrived = sys.Readable(int(fd)) })
	}
	if err != nil {
		t.Error(err)
	}
	return arrived
}
