package httpadapter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

// startOurs is like start, where connections wait without goroutines, and over TLS if overTLS says so.
func startOurs(t *testing.T, handler http.HandlerFunc, configure func(f *fixture), opts ...Option) *fixture {
	t.Helper()
	needParking(t)
	var client *tls.Config
	f := start(t, handler, func(f *fixture) {
		if overTLS(t) {
			f.srv.TLSConfig, client = testnet.TLS(t)
			f.overListener = tlsByListener
			if strings.Contains(t.Name(), "/1.2/") {
				client.MaxVersion = tls.VersionTLS12
			}
		}
		if configure != nil {
			configure(f)
		}
	}, opts...)
	f.client = client
	return f
}

// overTLS reports whether a test runs over TLS, by itself or in another.
func overTLS(t *testing.T) bool {
	for _, by := range []string{"TestHTTP1TLS", "TestHTTP1OverTLS/", "TestTLSListener/"} {
		if strings.HasPrefix(t.Name(), by) {
			return true
		}
	}
	return false
}

// wantCounted waits until n requests were served, and of these some that are odd for the given reasons.
func (f *fixture) wantCounted(n uint64, declined ...string) {
	f.Helper()
	want := fmt.Sprint(n, declined)
	got := ""
	testnet.Eventually(f, "the requests being counted", func() bool {
		stats := f.server.Stats()
		var reasons []string
		for reason, n := range stats.Odd {
			for range n {
				reasons = append(reasons, reason)
			}
		}
		slices.Sort(reasons)
		got = fmt.Sprint(stats.Requests, reasons)
		return got == want || stats.Requests > n || len(reasons) > len(declined)
	})
	if got != want {
		f.Errorf("got %s served and of these odd, want %s", got, want)
	}
}

// A connection that waits between two requests has neither a goroutine nor a buffer.
func TestHTTP1HoldsNothing(t *testing.T) {
	const conns = 20
	buffers := buffersAtRest(t)
	f := startOurs(t, echoPath, nil)
	var clients []*client
	for i := range conns {
		c := f.dial()
		if got := c.get(fmt.Sprint("/", i)); got != fmt.Sprint("/", i) {
			t.Errorf("got %q", got)
		}
		clients = append(clients, c)
	}
	clients[0].send("GET /part HTTP/1.1\r\nHo")
	f.wantCounted(conns)
	f.awaitNothingHeld(conns, buffers)
	clients[0].send("st: test\r\n\r\n")
	if got := clients[0].answer(); got != "/part" {
		t.Errorf("got %q, want the answer to a request in two parts", got)
	}
	f.wantCounted(conns + 1)
}

// awaitNothingHeld waits until n connections are parked, no worker is left, and the given number of
// buffers is in use. It checks all of this at once: after bytes have been sent the connection may
// still be parked until a worker reads them.
func (f *fixture) awaitNothingHeld(n, buffers int) {
	f.Helper()
	parked, workers, inUse := 0, 0, 0
	defer func() {
		if f.Failed() {
			f.Logf("got %d connections parked, %d workers, %d buffers in use, want %d, none, %d", parked, workers, inUse, n, buffers)
		}
	}()
	testnet.Eventually(f, "parked connections that hold nothing", func() bool {
		parked, workers, inUse = f.server.Stats().Parked, workersLeft(), pool.ReadStats().BuffersInUse
		return parked == n && workers == 0 && inUse == buffers
	})
}

// buffersAtRest returns how many buffers are in use once the servers of earlier tests have come to an
// end: their last workers may still be about to give one back.
func buffersAtRest(t *testing.T) int {
	t.Helper()
	testnet.Eventually(t, "the end of all workers", func() bool { return workersLeft() == 0 })
	return pool.ReadStats().BuffersInUse
}

// workersLeft counts the workers of all servers.
func workersLeft() int {
	buf := make([]byte, 4<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "workers.(*Pool[...]).work(")
}

// Requests that are not simple, or not plain, are served on the same connection as others.
func TestOddRequests(t *testing.T) {
	var remote atomic.Value
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		if (r.TLS != nil) != overTLS(t) {
			t.Errorf("got Request.TLS %v", r.TLS)
		}
		if was := remote.Swap(r.RemoteAddr); was != nil && was != r.RemoteAddr {
			t.Errorf("got the address %v after %v", r.RemoteAddr, was)
		}
		io.Copy(io.Discard, r.Body)
		echoPath(rw, r)
	}, nil)
	c := f.dial()
	c.get("/1")
	requests, odd := 1, []string(nil)
	for _, tt := range []struct{ name, text, reason string }{
		{"chunks", "POST /x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", ""},
		{"chunks and a trailer", "POST /x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n", ""},
		{"an announced trailer", "POST /x HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n", "coding"},
		{"expect", "POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx", ""},
		{"HTTP/1.0", "GET /x HTTP/1.0\r\nHost: test\r\nConnection: keep-alive\r\n\r\n", ""},
		{"HTTP/1.0 without Host", "GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "host"},
		{"an upgrade", "GET /x HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", "connection option"},
		{"a long header", "GET /x HTTP/1.1\r\nHost: test\r\nX: " + strings.Repeat("x", 70_000) + "\r\n\r\n", "too long"},
		{"an absolute target", "GET http://test/x HTTP/1.1\r\nHost: test\r\n\r\n", "target"},
	} {
		for range 2 {
			c.send(tt.text)
			resp, err := http.ReadResponse(c.br, nil)
			if err == nil && resp.StatusCode == http.StatusContinue {
				resp, err = http.ReadResponse(c.br, nil)
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: got %v, %v, want an answer", tt.name, resp, err)
			}
			if body, _ := io.ReadAll(resp.Body); string(body) != "/x" {
				t.Errorf("%s: got %q, want /x", tt.name, body)
			}
			f.awaitParked(1)
			c.get("/2")
			if requests += 2; tt.reason != "" {
				odd = append(odd, tt.reason)
			}
		}
	}
	slices.Sort(odd)
	f.wantCounted(uint64(requests), odd...)
	c.Close()
	f.awaitStates("new" + strings.Repeat(" active idle", requests) + " closed")
}

// A header that doesn't fit the worker's buffer holds its own memory, and nothing else, while it arrives
// byte by byte. (TestHTTP1Soak has headers of all lengths.)
func TestLongHeader(t *testing.T) {
	buffers := buffersAtRest(t)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.URL.Path, len(r.Header.Get("X"))) }, nil)
	c := f.dial()
	c.get("/first")
	text, want := requestOfBytes("/slow", turnBytes+4)
	c.send(text[:turnBytes])
	for _, b := range []byte(text[turnBytes:]) {
		f.awaitNothingHeld(1, buffers)
		c.send(string(b))
	}
	if got := c.answer(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.wantCounted(2)
}

// requestOfBytes returns a request with a header of size bytes, and the answer to it.
func requestOfBytes(path string, size int) (text, answer string) {
	text = "GET " + path + " HTTP/1.1\r\nHost: test\r\nX: \r\n\r\n"
	value := strings.Repeat("x", size-len(text))
	return strings.Replace(text, "X: ", "X: "+value, 1), fmt.Sprint(path, len(value))
}

// A header is refused from the same length on as with net/http.
func TestLongHeaderLimit(t *testing.T) {
	needParking(t)
	for _, limit := range []int{1, 5000, plainBytesMost} {
		pair := newPair(t, withAdapter, func(srv *http.Server) { srv.MaxHeaderBytes = limit })
		for _, size := range []int{limit + 4095, limit + 4096, limit + 4097} {
			text, _ := requestOfBytes("/", size)
			got := pair.play(t, &connectionScript{pieces: []piece{{text: text}}, end: halfCloses})
			if refused := strings.HasPrefix(got, "HTTP/1.1 431 "); refused != (size > limit+4096) {
				t.Errorf("limit %d, %d bytes: refused: %t", limit, size, refused)
			}
		}
	}
}

// TestHTTP1Context: a handler finds in its request's context what net/http puts there, and the
// context reports that the client has left. A request that follows does not end it.
func TestHTTP1Context(t *testing.T) {
	t.Run("background", func(t *testing.T) { testHTTP1Context(t, context.Background()) })
	t.Run("cancellable", func(t *testing.T) { testHTTP1Context(t, t.Context()) })
}

func testHTTP1Context(t *testing.T, base context.Context) {
	type key struct{}
	waiting := make(chan bool)
	ended := make(chan error, 1)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if got := ctx.Value(key{}); got != "base, conn" {
			t.Errorf("got %v, want the hooks' value", got)
		}
		if srv, ok := ctx.Value(http.ServerContextKey).(*http.Server); !ok || srv.Handler == nil {
			t.Errorf("got %v, want the server", srv)
		}
		if got := ctx.Value(http.LocalAddrContextKey).(net.Addr).String(); got != r.URL.Query().Get("at") {
			t.Errorf("got the local address %v, want %v", got, r.URL.Query().Get("at"))
		}
		if r.URL.Path != "/wait" {
			return
		}
		//lint:ignore SA1019 frameworks use it
		gone := rw.(http.CloseNotifier).CloseNotify()
		waiting <- true
		select {
		case <-gone:
			<-ctx.Done()
			ended <- ctx.Err()
		case <-waiting:
			ended <- ctx.Err()
		}
	}, func(f *fixture) {
		f.srv.BaseContext = func(net.Listener) context.Context { return context.WithValue(base, key{}, "base") }
		f.srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
			return context.WithValue(ctx, key{}, fmt.Sprint(ctx.Value(key{}), ", conn"))
		}
	})
	at := "?at=" + f.ln.Addr().String()
	for _, end := range []string{"pipelined", "half-close", "close", "reset"} {
		c := f.dial()
		c.get("/" + at)
		c.send(request("/wait" + at))
		testnet.Receive(t, "the handler", waiting)
		want := context.Canceled
		switch end {
		case "pipelined":
			want = nil
			c.send(request("/" + at))
			testnet.Eventually(t, "the request being noticed", func() bool {
				for nc := range f.snapshot() {
					if isIn(h1.ConnOf(nc).Sight(), "notified") {
						return true
					}
				}
				return false
			})
			waiting <- true
		case "half-close":
			c.closeWrite()
		case "reset":
			_ = c.tcp().SetLinger(0)
			c.tcp().Close()
		case "close":
			c.Close()
		}
		if err := testnet.Receive(t, "the handler's end", ended); err != want {
			t.Errorf("%s: got %v, want %v", end, err, want)
		}
		if end == "pipelined" {
			c.answer()
			c.answer()
			c.Close()
		}
	}
}

// TestHTTP1Ends: Shutdown and Close treat requests as net/http does, and so does SetKeepAlivesEnabled:
// an answer in progress is the connection's last. That holds for the Server's methods and for the
// http.Server's.
func TestHTTP1Ends(t *testing.T) {
	type ender interface {
		Shutdown(context.Context) error
		SetKeepAlivesEnabled(bool)
		Close() error
	}
	for _, end := range []string{"Shutdown", "SetKeepAlivesEnabled", "Close"} {
		for _, whose := range []string{"Server", "http.Server"} {
			t.Run(end+" of "+whose, func(t *testing.T) {
				arrived, release := make(chan bool), make(chan bool)
				f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/wait" {
						arrived <- true
						select {
						case <-release:
						case <-r.Context().Done():
						}
					}
				}, nil)
				server := ender(f.server)
				if whose == "http.Server" {
					server = f.srv
				}
				idle, busy := f.dial(), f.dial()
				idle.get("/")
				f.awaitParked(1)
				busy.send(request("/wait"))
				testnet.Receive(t, "the request", arrived)
				ended := make(chan error, 1)
				go func() {
					switch end {
					case "Shutdown":
						ended <- server.Shutdown(t.Context())
					case "SetKeepAlivesEnabled":
						server.SetKeepAlivesEnabled(false)
						ended <- nil
					case "Close":
						ended <- server.Close()
					}
				}()
				idle.awaitEOF()
				if end == "Close" {
					if _, err := busy.br.ReadByte(); err == nil {
						t.Error("got an answer after Close")
					}
					return
				}
				if end == "Shutdown" {
					select {
					case err := <-ended:
						t.Errorf("Shutdown returned %v with a request under way", err)
					case <-time.After(20 * time.Millisecond):
					}
				}
				close(release)
				if _, closes := busy.answerClosing(); !closes {
					t.Error("the answer doesn't say that the connection is closed")
				}
				busy.awaitEOF()
				if end != "Shutdown" {
					return
				}
				if err := testnet.Receive(t, "Shutdown", ended); err != nil {
					t.Errorf("Shutdown: %v", err)
				}
			})
		}
	}
}

// The http.Server's own SetKeepAlivesEnabled also counts, both before and after Serve.
func TestHTTP1KeepAlivesOffByServer(t *testing.T) {
	f := startOurs(t, echoPath, func(f *fixture) { f.srv.SetKeepAlivesEnabled(false) })
	for _, on := range []bool{false, true, false} {
		f.srv.SetKeepAlivesEnabled(on)
		c := f.dial()
		c.send(request("/"))
		resp, err := http.ReadResponse(c.br, nil)
		if err != nil || resp.Close == on {
			t.Fatalf("with keep-alives %t: got %+v, %v", on, resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if on {
			c.get("/")
			f.awaitParked(1)
			c.Close()
			f.awaitParked(0)
		} else {
			c.awaitEOF()
		}
	}
}

// TestHTTP1Timeouts: a WriteTimeout ends a write, and a handler's deadlines its own request.
// (TestSlowRequests has the timeouts of reads.)
func TestHTTP1Timeouts(t *testing.T) {
	t.Run("write", func(t *testing.T) {
		shortest := 50 * time.Millisecond
		if overTLS(t) {
			shortest = time.Second // it also limits the handshake
		}
		wantOfTimeout(t, "a timeout", shortest, func(d time.Duration) string {
			failed := make(chan error, 1)
			f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					return
				}
				for {
					if _, err := rw.Write(make([]byte, 1<<20)); err != nil {
						failed <- err
						return
					}
				}
			}, func(f *fixture) { f.srv.WriteTimeout = d })
			c := f.dialAnyway()
			if err := c.tryGet("/"); err != nil {
				return err.Error()
			}
			c.send(request("/endless"))
			if err := testnet.Receive(t, "the handler's error", failed); !isTimeout(err) {
				return err.Error()
			}
			return "a timeout"
		})
	})
	t.Run("handler", func(t *testing.T) {
		f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(rw)
			if err := errors.Join(rc.SetReadDeadline(time.Now().Add(-time.Hour)), rc.SetWriteDeadline(time.Now().Add(time.Hour)), rc.EnableFullDuplex()); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
			echoPath(rw, r)
		}, nil)
		c := f.dial()
		for range 3 { // one request's deadline must not apply to the next
			c.get("/")
			f.awaitParked(1)
		}
	})
}

// A handler that writes after it has returned does not change a later answer.
func TestHTTP1LateWrites(t *testing.T) {
	wrote := make(chan error, 1)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			ctx := r.Context()
			go func() {
				<-ctx.Done() // cancelled when the handler has returned
				_, err := rw.Write([]byte("late"))
				wrote <- err
			}()
		}
		echoPath(rw, r)
	}, nil)
	c := f.dial()
	for range 20 {
		if got := c.get("/late"); got != "/late" && got != "/latelate" {
			t.Fatalf("got %q", got)
		}
		testnet.Receive(t, "the late write", wrote)
		if got := c.get("/next"); got != "/next" {
			t.Fatalf("got %q", got)
		}
	}
}

// Each request of a pipeline sees the client's end, even if the end comes during an earlier request.
func TestHTTP1EndOfPipeline(t *testing.T) {
	arrived := make(chan bool, 3)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
		echoPath(rw, r)
	}, nil)
	c := f.dial()
	c.send(request("/1") + request("/2") + request("/3"))
	testnet.Receive(t, "the first request", arrived)
	c.closeWrite()
	for _, want := range []string{"/1", "/2", "/3"} {
		if got := c.answer(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.awaitEOF()
	f.wantCounted(3)
}

// The hook may close the connection that a handler hijacks.
func TestHTTP1CloseInHijack(t *testing.T) {
	returned := make(chan error, 1)
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _, err := http.NewResponseController(rw).Hijack()
		if ctx := r.Context(); ctx.Err() != nil {
			t.Errorf("Hijack: got the context's %v", ctx.Err())
		}
		returned <- err
	}, func(f *fixture) {
		f.srv.ConnState = func(nc net.Conn, state http.ConnState) {
			f.connState(nc, state)
			if state == http.StateHijacked {
				nc.Close()
			}
		}
	})
	c := f.dial()
	c.send(request("/"))
	c.awaitEOF()
	if err := testnet.Receive(t, "Hijack", returned); err != nil {
		t.Errorf("Hijack: %v", err)
	}
	f.awaitStates("new active hijacked")
}

// A hook that panics or ends its goroutine closes its own connection, as with net/http, and no other.
func TestHTTP1HooksPanic(t *testing.T) {
	for _, state := range []http.ConnState{http.StateActive, http.StateIdle} {
		for _, end := range []func(){func() { panic("a reason") }, runtime.Goexit} {
			var ends atomic.Bool
			f := startOurs(t, echoPath, func(f *fixture) {
				f.srv.ConnState = func(nc net.Conn, s http.ConnState) {
					f.connState(nc, s)
					if s == state && ends.CompareAndSwap(true, false) {
						end()
					}
				}
			})
			other := f.dial()
			other.get("/")
			f.awaitParked(1) // its own hook was called
			ends.Store(true)
			c := f.dial()
			c.send(request("/"))
			if state == http.StateIdle {
				c.answer()
			}
			c.awaitEOF()
			other.get("/")
			testnet.Eventually(t, "one connection being left", func() bool { return f.server.Stats().Conns == 1 })
		}
	}
}
