package conformance

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/internal/testnet"
)

// TestGoroutineLeakProfile: the profile of leaked goroutines has none of a program that works. From Go
// 1.27 on it is in every program's debug/pprof. It takes for leaked what waits on a channel, a lock or a
// sync.Cond that no goroutine can reach that doesn't wait so. A reader of package net waits in the
// runtime's poller, which it never reports; one of percore's waits on a channel, which only the loop
// reaches.  Here the goroutines are all that the program has of its listeners, servers, clients and
// connections. It ends them by their peers, which are package net's.
func TestGoroutineLeakProfile(t *testing.T) {
	if percoreIsNet() {
		t.Skip("built with net in place of the engine")
	}
	profile := pprof.Lookup("goroutineleak")
	if profile == nil {
		t.Skip("this Go has no such profile: take Go 1.27, or build 1.26 with GOEXPERIMENT=goroutineleakprofile")
	}
	var h held
	var peers []net.Conn // of package net, which the test holds
	open := func(addr net.Addr, send string) net.Conn {
		c, err := net.Dial(addr.Network(), addr.String())
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, c)
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		return c
	}

	reading, serving, events, calls := h.readers(t), h.http(t), h.reactor(t), h.grpc(t)
	want := int32(4)
	for range 5 {
		open(reading, "")                                         // read
		open(reading, "w")                                        // written to, and full
		open(reading, "c")                                        // wait with a callback
		open(serving, "GET / HTTP/1.1\r\nHost: test\r\n\r\n")     // idle, without net/http
		open(serving, "GET /wait HTTP/1.1\r\nHost: test\r\n\r\n") // a handler waits
		open(events, "x")
		want += 7 // three that have read nothing yet, then two of them, a handler and a function
	}
	peer := testnet.Listen(t, net.Listen, testnet.TCP4)
	for range 3 {
		h.wait(func() { // the client's end waits
			c, err := percore.Dial("tcp", peer.Addr().String())
			if err == nil {
				_, _ = c.Read(make([]byte, 1))
				_ = c.Close()
			}
		})
		h.wait(func() { // a call waits for its answer, which never comes
			resp, err := (&http.Client{Transport: httpadapter.NewTransport(nil)}).Get("http://" + peer.Addr().String())
			if err == nil {
				_ = resp.Body.Close()
			}
		})
		for range 2 {
			c, err := peer.Accept()
			if err != nil {
				t.Fatal(err)
			}
			peers = append(peers, c)
		}
		h.wait(func() { _ = call(calls, "/test/wait") })
		want += 4 // with the handler of the last
	}

	testnet.Eventually(t, "all goroutines wait, or are about to", func() bool { return h.waiting.Load() >= want })
	if os.Getenv(leakVariable) != "" {
		go func() { <-make(chan struct{}) }()
	}
	for range 5 {
		var out bytes.Buffer
		if err := profile.WriteTo(&out, 1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "total 0\n") {
			t.Fatalf("leaked goroutines are reported:\n%s", out.String())
		}
	}

	open(reading, "q")
	open(events, "q")
	open(serving, "GET /end HTTP/1.1\r\nHost: test\r\n\r\n")
	_ = call(calls, "/test/end")
	_ = peer.Close()
	for _, c := range peers {
		_ = c.Close()
	}
	testnet.Within(t, "the end of all goroutines", h.running.Wait)
}

// leakVariable makes TestGoroutineLeakProfile leak a goroutine.
const leakVariable = "PERCORE_TEST_LEAK"

// TestGoroutineLeakIsSeen: TestGoroutineLeakProfile fails if there is one.
func TestGoroutineLeakIsSeen(t *testing.T) {
	if percoreIsNet() || pprof.Lookup("goroutineleak") == nil {
		t.Skip("TestGoroutineLeakProfile is skipped, too")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestGoroutineLeakProfile$")
	cmd.Env = append(os.Environ(), leakVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "leaked goroutines are reported") {
		t.Errorf("got %v, want a failure:\n%s", err, out)
	}
}

// held counts goroutines, and has nothing else of them.
type held struct {
	running sync.WaitGroup
	waiting atomic.Int32 // have come to where they wait
}

// wait calls f in a goroutine.
func (h *held) wait(f func()) { h.running.Go(func() { h.waiting.Add(1); f() }) }

// readers accepts connections. Their first byte says what their goroutines wait for: q ends the
// listener.
func (h *held) readers(t *testing.T) net.Addr {
	t.Helper()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	serve := func(c *percore.Conn) {
		var first [1]byte
		h.waiting.Add(1)
		if _, err := c.Read(first[:]); err != nil {
			_ = c.Close()
			return
		}
		switch first[0] {
		case 'q':
			_ = ln.Close()
		case 'w':
			h.waiting.Add(1)
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
		case 'c':
			readable := make(chan error)
			if c.OnReadable(func(err error) { readable <- err }) == nil {
				h.waiting.Add(1)
				<-readable
			}
		}
		_ = c.Close()
	}
	h.wait(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c.(*percore.Conn))
		}
	})
	return ln.Addr()
}

// http serves HTTP past net/http, until /end is asked for.
func (h *held) http(t *testing.T) net.Addr {
	t.Helper()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := new(http.Server)
	srv.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/wait":
			h.waiting.Add(1)
			<-r.Context().Done()
		case "/end":
			go func() { _ = srv.Close() }()
		}
	})
	h.wait(func() { _ = httpadapter.Serve(srv, ln) })
	return ln.Addr()
}

// quitter is a reactor's server that a q ends. A function of each of its connections waits.
type quitter struct {
	held   *held
	server *reactor.Server
}

func (q *quitter) Open(c *reactor.Conn) {
	c.GoContext(func(ctx context.Context) { q.held.waiting.Add(1); <-ctx.Done() })
}

func (q *quitter) Data(_ *reactor.Conn, p []byte) int {
	if p[0] == 'q' {
		go func() { _ = q.server.Close() }()
	}
	return len(p)
}

func (q *quitter) Close(*reactor.Conn, error) {}

func (h *held) reactor(t *testing.T) net.Addr {
	t.Helper()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	q := &quitter{held: h}
	var err error
	if q.server, err = reactor.New(q, reactor.Config{}); err != nil {
		t.Fatal(err)
	}
	h.wait(func() { _ = q.server.Serve(ln) })
	return ln.Addr()
}

// grpc serves streams that wait, until /test/end is called.
func (h *held) grpc(t *testing.T) net.Addr {
	t.Helper()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	var srv *grpcadapter.Server
	srv = grpcadapter.NewServer(grpcadapter.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(s); method == "/test/end" {
			go srv.Stop()
		}
		h.waiting.Add(1)
		<-s.Context().Done()
		return nil
	}))
	h.wait(func() { _ = srv.Serve(ln) })
	return ln.Addr()
}

// call makes a call with a client of its own, and waits for the call's end.
func call(addr net.Addr, method string) error {
	c, err := grpcadapter.NewClient(addr.String(), grpcadapter.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = s.RecvMsg(nil)
	}
	return err
}
