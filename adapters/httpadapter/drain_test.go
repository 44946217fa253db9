package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// eachDrain runs a test with net/http as the server, and with the adapter, without TLS and with it.
// ours says whether the adapter serves.
func eachDrain(t *testing.T, test func(t *testing.T, ours bool, start func(http.HandlerFunc, ...Option) *fixture)) {
	for _, netHTTP := range []bool{true, false} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("net/http=%t TLS=%t", netHTTP, overTLS), func(t *testing.T) {
				if netHTTP {
					leaveToNetHTTP(t)
				}
				test(t, !netHTTP && canPark, func(h http.HandlerFunc, opts ...Option) *fixture {
					return start(t, h, func(f *fixture) {
						f.srv.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
							return context.WithValue(ctx, userKey{}, "the user's")
						}
						if overTLS {
							withHTTP1TLS(f)
						}
					}, opts...)
				})
			})
		}
	}
}

// userKey is for a value that the ConnContext of eachDrain's servers adds.
type userKey struct{}

// withHTTP1TLS makes a fixture one over TLS that speaks HTTP/1.1.
func withHTTP1TLS(f *fixture) {
	f.srv.TLSConfig, f.client = testnet.TLS(f)
	f.client = f.client.Clone()
	f.client.NextProtos = []string{"http/1.1"}
}

// drain calls Drain and returns when that has begun. The channel gets its result.
func (f *fixture) drain(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f.server.Drain(ctx) }()
	testnet.Eventually(f, "Drain", f.server.draining.Load)
	return done
}

// wantLast makes a request, and wants its answer to say that the connection ends, which then does.
func (c *client) wantLast(path string) {
	c.t.Helper()
	c.send(request(path))
	c.wantLastAnswer(path)
}

func (c *client) wantLastAnswer(body string) {
	c.t.Helper()
	if got, closes := c.answerClosing(); got != body || !closes {
		c.t.Errorf("got %q, Connection: close %t, want %q, and it to be the last", got, closes, body)
	}
	c.awaitEOF()
}

// Connections that wait stay open until their next answer, which is the last, and so is the first of new
// ones. Drain returns with the last connection.
func TestDrain(t *testing.T) {
	eachDrain(t, func(t *testing.T, ours bool, start func(http.HandlerFunc, ...Option) *fixture) {
		begun, goOn := make(chan struct{}), make(chan struct{})
		f := start(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(begun)
				<-goOn
			}
			echoPath(w, r)
		})
		idle, fresh, busy := f.dial(), f.dial(), f.dial()
		if got := idle.get("/first"); got != "/first" {
			t.Errorf("got %q", got)
		}
		busy.send(request("/slow"))
		testnet.Receive(t, "the slow request", begun)
		done := f.drain(t.Context())
		idle.wantLast("/idle")
		fresh.wantLast("/fresh")
		f.dial().wantLast("/new")
		again := f.drain(t.Context())
		select {
		case err := <-done:
			t.Errorf("Drain has returned %v while a request is under way", err)
		default:
		}
		close(goOn)
		// net/http's part of the header is made before the handler: the next answer is the last.
		got, closes := busy.answerClosing()
		if got != "/slow" || closes != ours {
			t.Errorf("a request under way: got %q, Connection: close %t, want %t", got, closes, ours)
		}
		if !closes {
			busy.wantLast("/busy")
		}
		for _, done := range []<-chan error{done, again} {
			if err := testnet.Receive(t, "Drain", done); err != nil {
				t.Errorf("Drain: %v", err)
			}
		}
		f.dial().wantLast("/after")
	})
}

// Drain returns when its context ends, and leaves the connections that wait alone. Shutdown and Close
// end them, and the other calls of Drain.
func TestDrainEnds(t *testing.T) {
	for _, end := range []string{"Shutdown", "Close"} {
		t.Run(end, func(t *testing.T) {
			eachDrain(t, func(t *testing.T, _ bool, start func(http.HandlerFunc, ...Option) *fixture) {
				f := start(echoPath)
				if err := f.server.Drain(t.Context()); err != nil {
					t.Errorf("Drain without connections: %v", err)
				}
				idle := f.dial()
				idle.send("GET /1 HTTP/1.1\r\nHost: test\r\nUpgrade: ignored\r\n\r\n") // which Drain leaves alone
				if got, closes := idle.answerClosing(); got != "/1" || closes {
					t.Errorf("got %q, Connection: close %t", got, closes)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := f.drain(ctx)
				waiting := f.drain(t.Context())
				cancel()
				for _, done := range []<-chan error{done, f.drain(ctx)} {
					if err := testnet.Receive(t, "Drain", done); !errors.Is(err, context.Canceled) {
						t.Errorf("Drain: got %v, want the context's error", err)
					}
				}
				if end == "Close" {
					f.server.Close()
				} else {
					f.shutdown()
				}
				if err := testnet.Receive(t, "Drain", waiting); err != nil {
					t.Errorf("Drain after %s: got %v", end, err)
				}
				idle.awaitEOF()
			})
		})
	}
}

// Drain knows of connections that net/http has to itself.
func TestDrainForeign(t *testing.T) {
	f := start(t, echoPath, func(f *fixture) { f.ln = wrapping{f.ln} })
	idle := f.dial()
	if got := idle.get("/first"); got != "/first" {
		t.Errorf("got %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.server.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain: got %v, want the context's error, since a connection waits", err)
	}
	idle.wantLast("/idle")
	if err := f.server.Drain(t.Context()); err != nil {
		t.Errorf("Drain: %v", err)
	}
}

// Hijacked connections are none of Drain's, and an answer that may switch protocols does not say that
// the connection ends.
func TestDrainUpgrade(t *testing.T) {
	eachDrain(t, func(t *testing.T, _ bool, start func(http.HandlerFunc, ...Option) *fixture) {
		f := start(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hijack" {
				echoPath(w, r)
				return
			}
			// As httputil.ReverseProxy does.
			h := w.Header()
			h.Add("Connection", "Upgrade")
			h.Add("Upgrade", r.Header.Get("Upgrade"))
			c, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			resp := http.Response{StatusCode: 101, ProtoMajor: 1, ProtoMinor: 1, Header: h}
			resp.Write(rw)
			rw.Flush()
			go func() {
				io.Copy(c, rw)
				c.Close()
			}()
		})
		c := f.dial()
		defer c.Close()
		c.get("/first")
		f.drain(t.Context())
		upgrade := func(path string) string {
			return "GET " + path + " HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"
		}
		c.send(upgrade("/ignored"))
		if got, closes := c.answerClosing(); got != "/ignored" || closes {
			t.Errorf("got %q, Connection: close %t, want the connection to stay", got, closes)
		}
		c.send(upgrade("/hijack"))
		resp, err := http.ReadResponse(c.br, nil)
		if err != nil || resp.StatusCode != 101 || len(resp.Header["Connection"]) != 1 {
			t.Fatalf("got %v, %v, want 101 with one Connection", resp, err)
		}
		if err := f.server.Drain(t.Context()); err != nil {
			t.Errorf("Drain: %v", err)
		}
		c.send("hello")
		if got := make([]byte, 5); true {
			if _, err := io.ReadFull(c.br, got); err != nil || string(got) != "hello" {
				t.Errorf("the hijacked connection: got %q, %v", got, err)
			}
		}
	})
}

// HTTP/2 clients of net/http's server are told by the next answer.
func TestDrainNetHTTP2(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%t", secure), func(t *testing.T) {
			testnet.NoLeaks(t)
			f := startHTTP2(t, withAdapter, secure, func(srv *http.Server) { srv.Handler = http.HandlerFunc(echoPath) })
			conns := func() int {
				f.mu.Lock()
				defer f.mu.Unlock()
				return len(f.conns)
			}
			client := f.http2Client()
			client.Transport.(*http.Transport).MaxConnsPerHost = 1 // as in TestHTTP2Server
			defer client.CloseIdleConnections()
			get := func() {
				t.Helper()
				if got := f.get(client, "/path"); got != "/path" {
					t.Errorf("got %q", got)
				}
			}
			get()
			get()
			if n := conns(); n != 1 {
				t.Errorf("got %d connections, want 1", n)
			}
			done := make(chan error, 1)
			go func() { done <- f.ours.Drain(t.Context()) }()
			testnet.Eventually(t, "Drain", f.ours.draining.Load)
			get()
			if err := testnet.Receive(t, "Drain", done); err != nil {
				t.Errorf("Drain: %v", err)
			}
			get()
			if n := conns(); n < 2 {
				t.Errorf("got %d connections, want another one after Drain", n)
			}
		})
	}
}

// While clients make requests all the time, Drain loses none of them: each connection ends with an
// answer that says so.
func TestDrainUnderLoad(t *testing.T) {
	eachDrain(t, func(t *testing.T, _ bool, start func(http.HandlerFunc, ...Option) *fixture) {
		f := start(echoPath)
		const clients, enough = 4, 5
		var made, told [clients]atomic.Int32
		var stop atomic.Bool
		var all sync.WaitGroup
		defer all.Wait()
		defer stop.Store(true)
		for i := range clients {
			all.Go(func() {
				for c := f.tryDial(); !stop.Load(); {
					closes, err := c.exchange(fmt.Sprintf("/%d", made[i].Add(1)))
					if err != nil {
						t.Errorf("client %d, request %d: %v", i, made[i].Load(), err)
						return
					}
					if closes {
						told[i].Add(1)
						c = f.tryDial()
					}
				}
			})
		}
		each := func(n *[clients]atomic.Int32) bool {
			for i := range n {
				if n[i].Load() < enough && !t.Failed() {
					return false
				}
			}
			return true
		}
		testnet.Eventually(t, "requests", func() bool { return each(&made) })
		for i := range told {
			if n := told[i].Load(); n > 0 {
				t.Errorf("before Drain %d connections of a client were ended", n)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := f.drain(ctx)
		testnet.Eventually(t, "ends of connections", func() bool { return each(&told) })
		cancel()
		testnet.Receive(t, "Drain", done) // with or without an error: for a moment no connection may be left
		stop.Store(true)
		all.Wait()
	})
}

// tryDial is dial for other goroutines than the test's.
func (f *fixture) tryDial() *tryClient {
	c, err := net.Dial("tcp", f.ln.Addr().String())
	if err == nil && f.client != nil {
		c = tls.Client(c, f.client)
	}
	return &tryClient{c, bufio.NewReader(c), err}
}

// tryClient is a client that returns errors.
type tryClient struct {
	net.Conn
	br  *bufio.Reader
	err error // of dialing
}

// exchange makes a request. If its answer says that the connection ends, that has ended.
func (c *tryClient) exchange(path string) (closes bool, err error) {
	if c.err != nil {
		return false, c.err
	}
	defer func() {
		if err != nil || closes {
			c.Close()
		}
	}()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.WriteString(c, request(path)); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return false, err
	}
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != path {
		return false, fmt.Errorf("got body %q, %w", body, err)
	}
	if resp.Close {
		if b, err := c.br.ReadByte(); err != io.EOF {
			return false, fmt.Errorf("after the last answer: got %d, %w", b, err)
		}
	}
	return resp.Close, nil
}

// Drain, HandOver, Shutdown, Close and SetKeepAlivesEnabled, at the same time, while clients make
// requests and leave, and while the user closes connections, all return. Nothing is left, and the end
// of each connection is reported once.
func TestDrainBesideOthers(t *testing.T) {
	const rounds = 5
	eachDrain(t, func(t *testing.T, _ bool, start func(http.HandlerFunc, ...Option) *fixture) {
		for range rounds {
			f := start(echoPath)
			var stop atomic.Bool
			var clients, calls sync.WaitGroup
			var made atomic.Int32
			for range 4 {
				clients.Go(func() {
					for !stop.Load() {
						c := f.tryDial()
						for closes, err := c.exchange("/"); err == nil && !closes; closes, err = c.exchange("/") {
							if made.Add(1)%7 == 0 {
								c.Close()
							}
						}
					}
				})
			}
			testnet.Eventually(t, "requests", func() bool { return made.Load() > 10 })
			ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
			for _, call := range []func(){
				func() { _ = f.server.Drain(ctx) },
				func() { _ = f.server.Drain(ctx) },
				func() { f.server.SetKeepAlivesEnabled(false) },
				func() {
					_ = f.server.HandOver(ctx, f.ln, func([]percore.WaitingConn) error { return errors.New("a test's") })
				},
				func() {
					if err := f.server.Shutdown(ctx); err != nil {
						t.Errorf("Shutdown: %v", err)
					}
				},
				func() { f.server.Close() },
				func() {
					for nc := range f.snapshot() {
						nc.Close()
					}
				},
			} {
				calls.Go(call)
			}
			testnet.Within(t, "all calls", calls.Wait)
			cancel()
			stop.Store(true)
			testnet.Within(t, "all clients", clients.Wait)
			f.wantClosedOnce()
		}
	})
}
