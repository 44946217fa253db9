//go:build !percore_net

package httpadapter

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// TestParkedBudget measures the memory of a connection that is parked after a request, here and in
// the engine. It is 272 bytes: 144 in loop.FD, 48 in percore.Conn, 8 in the loop's table, 64 in
// h1.Conn, and 8 in the list of kept connections. The tables are up to 25 % larger than they need to
// be, and the runtime keeps some of the goroutines that served the requests. The clients are raw
// descriptors, which cost nothing in this process's heap.
func TestParkedBudget(t *testing.T) {
	const (
		n            = 6000
		few          = 500 // to warm up: the runtime keeps all goroutines that it has ever had at once
		heapBytesMax = 350
	)
	needBudget(t, n)
	testnet.NoLeaks(t)
	s, stop := serveOnTwo(t, echoPath, n)
	defer stop()
	connect := rawClients(t, s.addr, true)
	awaitParked := func(n int) {
		testnet.Eventually(t, "all connections parking", func() bool { return s.Stats().Parked == n })
	}
	connect(few)
	awaitParked(few)
	goroutines, before := runtime.NumGoroutine(), testnet.HeapBytes()
	connect(n)
	awaitParked(few + n)
	testnet.Eventually(t, "as few goroutines as with few connections", func() bool { return runtime.NumGoroutine() <= goroutines })
	each := float64(int64(testnet.HeapBytes()-before)) / n
	t.Logf("%.0f bytes of heap per parked connection", each)
	if each > heapBytesMax {
		t.Errorf("got %.0f bytes of heap per parked connection, want at most %d", each, heapBytesMax)
	}
}

// needBudget skips a test that measures the memory of n connections where that can't be done.
func needBudget(t *testing.T, n uint64) {
	t.Helper()
	if race.Enabled {
		t.Skip("the race detector allocates: run it without -race")
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 3*n {
		t.Skipf("needs %d open files, may have %d (%v): raise the limit with ulimit -n", 3*n, limit.Cur, err)
	}
}

// servedOnTwo is a Server and its address.
type servedOnTwo struct {
	*Server
	addr net.Addr
}

// serveOnTwo serves HTTP/1, and HTTP/2 in clear with so many streams, on as many loops as the first
// connections start: each loop has a goroutine.
func serveOnTwo(t *testing.T, h http.HandlerFunc, streams int) (s servedOnTwo, stop func()) {
	t.Helper()
	group, err := loop.NewGroup(loop.Config{Loops: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close() // the listener holds it
	ln, err := (&percore.ListenConfig{Group: group}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = servedOnTwo{Wrap(&http.Server{
		Handler: h, IdleTimeout: time.Hour, Protocols: clearHTTP2(true), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2 * streams},
	}), ln.Addr()}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	return s, func() {
		s.Close()
		<-served
	}
}

// rawClients returns a function that sends n requests to addr, each on a connection of its own, and
// reads what comes first, if the requests are answered. The connections are raw descriptors, which cost
// nothing in the heap. They stay open until the test ends.
func rawClients(t *testing.T, addr net.Addr, answered bool) (connect func(n int)) {
	ask, answer := []byte(request("/")), make([]byte, 4096)
	port := addr.(*net.TCPAddr).Port
	var fds []int
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	return func(n int) {
		fds = slices.Grow(fds, n)
		for range n {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(fd, ask); err != nil {
				t.Fatal(err)
			}
			if !answered {
				continue
			}
			if got, err := unix.Read(fd, answer); got <= 0 {
				t.Fatalf("reading an answer: %d, %v", got, err)
			}
		}
	}
}

// benchServer starts a server for one benchmark and returns its address.
func benchServer(b *testing.B, serve func(srv *http.Server, ln net.Listener) (stop func())) net.Addr {
	b.Helper()
	return benchServerOf(b, serve, echoPath)
}

// benchServerOf is benchServer with a handler.
func benchServerOf(b *testing.B, serve func(srv *http.Server, ln net.Listener) (stop func()), h http.HandlerFunc) net.Addr {
	b.Helper()
	ln, err := percore.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	b.Cleanup(serve(srv, ln))
	return ln.Addr()
}

// arms are the ways of serving that benchmarks compare.
var arms = []struct {
	name  string
	serve func(srv *http.Server, ln net.Listener) (stop func())
}{
	{"http.Server", func(srv *http.Server, ln net.Listener) func() {
		go srv.Serve(ln)
		return func() { srv.Close() }
	}},
	{"httpadapter", func(srv *http.Server, ln net.Listener) func() {
		s := Wrap(srv)
		go s.Serve(ln)
		return func() { s.Shutdown(context.Background()) }
	}},
}

// BenchmarkRequest sends a request on each of a few connections in turn. It measures CPU time of the
// process including the clients.
func BenchmarkRequest(b *testing.B) {
	for _, arm := range arms {
		b.Run(arm.name, func(b *testing.B) { benchmarkRequests(b, arm.serve, 0) })
	}
}

// BenchmarkOdd is like BenchmarkRequest, but one request in so many is not plain.
func BenchmarkOdd(b *testing.B) {
	for _, every := range []int{1, 10} {
		for _, arm := range arms {
			b.Run(fmt.Sprintf("every=%d/%s", every, arm.name), func(b *testing.B) { benchmarkRequests(b, arm.serve, every) })
		}
	}
}

// benchmarkRequests sends plain requests, and every oddEvery-th one that is not plain. If oddEvery
// is 0, all are plain.
func benchmarkRequests(b *testing.B, serve func(*http.Server, net.Listener) func(), oddEvery int) {
	const conns = 32
	addr := benchServer(b, serve)
	plain := []byte(request("/"))
	odd := []byte("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\nx\r\n0\r\n\r\n")
	clients := make([]net.Conn, conns)
	for i := range clients {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		clients[i] = c
	}
	b.ReportAllocs()
	var begin, end syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &begin)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			answer := make([]byte, 4096)
			for n := i; n < b.N; n += conns {
				ask := plain
				if oddEvery > 0 && n/conns%oddEvery == 0 {
					ask = odd
				}
				if _, err := c.Write(ask); err != nil {
					b.Error(err)
					return
				}
				if _, err := c.Read(answer); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	syscall.Getrusage(syscall.RUSAGE_SELF, &end)
	cpu := time.Duration(end.Utime.Nano() + end.Stime.Nano() - begin.Utime.Nano() - begin.Stime.Nano())
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
}
