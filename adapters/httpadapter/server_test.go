package httpadapter

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/testnet"
)

// TestIdentity: a user that keeps the net.Conn from the hooks, or the value put into the context,
// finds the same one again throughout the life of the connection.
func TestIdentity(t *testing.T) {
	type key struct{}
	var contexts atomic.Int32
	seen := make(chan [4]any, 10)
	hijacked := make(chan net.Conn, 1)
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		seen <- [4]any{
			r.Context().Value(key{}), r.RemoteAddr,
			fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)), r.Context().Value(http.ServerContextKey),
		}
		if r.URL.Path == "/hijack" {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Errorf("Hijack: %v", err)
			}
			hijacked <- conn
		}
	}, func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			contexts.Add(1)
			if ctx.Value(http.ServerContextKey) != f.srv {
				t.Errorf("got server %v in ConnContext, want the user's", ctx.Value(http.ServerContextKey))
			}
			return context.WithValue(ctx, key{}, c)
		}
	})
	c := f.dial()
	var first [4]any
	for i, path := range []string{"/", "/", "/", "/hijack"} {
		c.send(request(path))
		got := testnet.Receive(t, "the handler", seen)
		if i == 0 {
			first = got
			if got[1] != c.LocalAddr().String() || got[2] != c.RemoteAddr().String() || got[3] != f.srv {
				t.Errorf("got %v, want %v, %v and the server", got[1:], c.LocalAddr(), c.RemoteAddr())
			}
		}
		if got != first {
			t.Errorf("request %d: got %v, want %v as before", i, got, first)
		}
		if path == "/" {
			c.answer()
			if canPark {
				f.awaitParked(1)
			}
		}
	}
	conn := testnet.Receive(t, "the hijacked connection", hijacked)
	defer conn.Close()
	if conn != first[0] {
		t.Errorf("Hijack returned %p, want %p, ConnContext's", conn, first[0])
	}
	f.awaitStates("new active idle active idle active idle active hijacked")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.states[conn] == nil {
		t.Error("ConnState got another net.Conn than ConnContext")
	}
	if n := contexts.Load(); n != 1 {
		t.Errorf("ConnContext was called %d times, want once", n)
	}
}

// If the http.Server's own Serve is called after Wrap, it works, and the log says so once.
func TestBypass(t *testing.T) {
	needParking(t)
	var told testnet.Log
	type key struct{}
	srv := &http.Server{
		ErrorLog: log.New(&told, "", 0),
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			fmt.Fprint(rw, r.Context().Value(key{}))
		}),
		BaseContext: func(net.Listener) context.Context { return context.WithValue(context.Background(), key{}, "base") },
	}
	Wrap(srv)
	var serving sync.WaitGroup
	for range 2 {
		ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
		serving.Go(func() { srv.Serve(ln) })
		c := &client{testnet.Dial(t, ln), t, nil}
		c.br = bufio.NewReader(c)
		if got := c.get("/"); got != "base" {
			t.Errorf("got the context's value %q, want the one of BaseContext", got)
		}
		c.Close()
	}
	srv.Close()
	serving.Wait()
	if got := told.Count("the http.Server's own Serve"); got != 1 {
		t.Errorf("got %d lines of the mistake, want 1: %q", got, told.String())
	}
}

// The Server's own Serve does not count as a bypass, whether or not the http.Server was wrapped again.
func TestNoBypass(t *testing.T) {
	f := start(t, echoPath, func(f *fixture) { Wrap(f.srv) })
	f.dial().get("/")
	f.shutdown()
	if got := f.log.String(); got != "" {
		t.Errorf("the log was told %q", got)
	}
}

// TestHijackedConn uses the methods that a percore connection has beyond net.Conn, and the
// readiness callback, which is free at that point.
func TestHijackedConn(t *testing.T) {
	needParking(t)
	hijacked := make(chan net.Conn, 1)
	early := make(chan error, 1)
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("Hijack: %v", err)
		}
		hijacked <- conn
	}, func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			early <- c.(interface{ OnReadable(func(error)) error }).OnReadable(func(error) {})
			return ctx
		}
	})
	c := f.dial()
	c.send(request("/"))
	conn := testnet.Receive(t, "the hijacked connection", hijacked)
	defer conn.Close()
	if err := testnet.Receive(t, "OnReadable before", early); err == nil || !strings.Contains(err.Error(), "is hijacked") {
		t.Errorf("OnReadable before Hijack: got %v, want an error that says why", err)
	}
	readable := make(chan error, 1)
	if err := conn.(interface{ OnReadable(func(error)) error }).OnReadable(func(err error) { readable <- err }); err != nil {
		t.Fatalf("OnReadable: %v", err)
	}
	c.send("hello")
	if err := testnet.Receive(t, "the callback", readable); err != nil {
		t.Errorf("the callback: got %v, want nil", err)
	}
	p := make([]byte, 10)
	if n, err := conn.Read(p); string(p[:n]) != "hello" || err != nil {
		t.Errorf("got %q, %v, want %q", p[:n], err, "hello")
	}
	if got := f.server.Stats(); got.Hijacked != 1 || got.Conns != 0 {
		t.Errorf("got %+v, want one hijacked, none left", got)
	}
	f.shutdown() // does not wait for it
	c.send("more")
	if n, err := conn.Read(p); string(p[:n]) != "more" || err != nil {
		t.Errorf("after Shutdown: got %q, %v, want %q", p[:n], err, "more")
	}
}

// TestIdleWithPartOfHeader: net/http considers a connection idle until it has the whole next header, and
// closes it with the other idle ones. It must not consider a connection new that was parked just before.
func TestIdleWithPartOfHeader(t *testing.T) {
	needParking(t)
	for _, part := range []string{"GE", "GET / HTTP/1.1\r\n"} {
		for name, stop := range map[string]func(f *fixture){
			"Shutdown":             func(f *fixture) { f.shutdown() },
			"SetKeepAlivesEnabled": func(f *fixture) { f.server.SetKeepAlivesEnabled(false) },
		} {
			t.Run(fmt.Sprintf("%s, %q", name, part), func(t *testing.T) {
				f := start(t, echoPath, nil)
				c := f.dial()
				c.get("/")
				f.awaitParked(1)
				c.send(part)
				f.awaitPart()
				stop(f)
				// The client sees a reset if the part has not been read yet.
				if rest, err := io.ReadAll(c.br); len(rest) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("got %q, %v, want the end", rest, err)
				}
				f.awaitStates("new active idle closed")
			})
		}
	}
}

// TestListenerEnds: a connection that a listener returned before it failed is served, even if it is
// of a kind that is never parked.
func TestListenerEnds(t *testing.T) {
	testnet.NoLeaks(t)
	for range 100 {
		ours, peer := net.Pipe()
		s := Wrap(&http.Server{Handler: http.HandlerFunc(echoPath), ErrorLog: log.New(io.Discard, "", 0)})
		served := make(chan error, 1)
		go func() { served <- s.Serve(&listOf{conns: []net.Conn{peer}}) }()
		_ = ours.SetDeadline(time.Now().Add(testnet.HangTimeout))
		c := &client{ours, t, bufio.NewReader(ours)}
		if got := c.get("/x"); got != "/x" {
			t.Errorf("got %q, want %q", got, "/x")
		}
		ours.Close()
		if err := testnet.Receive(t, "Serve", served); err != net.ErrClosed {
			t.Errorf("Serve: got %v, want %v", err, net.ErrClosed)
		}
		s.Close()
	}
}

// listOf is a listener that returns some connections and then fails.
type listOf struct{ conns []net.Conn }

func (l *listOf) Accept() (net.Conn, error) {
	if len(l.conns) == 0 {
		return nil, net.ErrClosed
	}
	c := l.conns[0]
	l.conns = l.conns[1:]
	return c, nil
}

func (l *listOf) Close() error   { return nil }
func (l *listOf) Addr() net.Addr { return &net.TCPAddr{} }

// TestPrefaceInPieces: a connection that speaks HTTP/2 is recognized however its first bytes
// arrive, and is never parked.
func TestPrefaceInPieces(t *testing.T) {
	needParking(t)
	for cut := range len(preface) {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			conns := make(chan *h1.Conn, 1)
			f := start(t, echoPath, func(f *fixture) {
				f.srv.Protocols = clearHTTP2(true)
				f.srv.ConnState = func(nc net.Conn, state http.ConnState) {
					if state == http.StateNew {
						conns <- h1.ConnOf(nc)
					}
				}
			})
			client := f.dial()
			c := testnet.Receive(t, "the connection", conns)
			if cut > 0 {
				client.send(preface[:cut])
				testnet.Eventually(t, "the first bytes being read", func() bool { return hasPart(c) })
			}
			client.send(preface[cut:] + "\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and SETTINGS
			settings := make([]byte, 9)
			if _, err := io.ReadFull(client.br, settings); err != nil || settings[3] != 4 {
				t.Fatalf("got %q, %v, want the server's SETTINGS", settings, err)
			}
			if got := f.server.Stats(); got.HTTP2 != 1 || !isIn(c.Sight(), "hijacked") {
				t.Errorf("got state %s, %+v, want hijacked", c.Sight().State, got)
			}
		})
	}
}

// TestCloseBeforeNetHTTPAccepts: Close ends a Serve that has only just begun.
func TestCloseBeforeNetHTTPAccepts(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	s := Wrap(&http.Server{})
	s.installed.Do(s.install)
	call := s.newServeCall(ln, nil)
	s.Close()
	served := make(chan error, 1)
	go func() { served <- call.run() }()
	if err := testnet.Receive(t, "Serve", served); err != http.ErrServerClosed {
		t.Errorf("Serve: got %v, want %v", err, http.ErrServerClosed)
	}
}

// TestListenerClosed: connections outlive their listener, as with net/http, and
// Shutdown still finds them.
func TestListenerClosed(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, nil)
	c := f.dial()
	c.get("/")
	f.awaitParked(1)
	f.ln.Close()
	f.wantServed(net.ErrClosed)
	for range 3 {
		if got := c.get("/again"); got != "/again" {
			t.Errorf("got %q, want %q", got, "/again")
		}
		f.awaitParked(1)
	}
	f.shutdown()
	c.awaitEOF()
}

// TestUserCloses: the user may close a connection received from a hook, whether it is parked or not.
func TestUserCloses(t *testing.T) {
	conns := make(chan net.Conn, 1)
	f := start(t, echoPath, func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			conns <- c
			return ctx
		}
	})
	needParking(t) // otherwise net/http's own deadline may come after the user's
	for _, tt := range []struct {
		name   string
		parked bool
		close  func(nc net.Conn)
	}{
		{"waiting", false, func(nc net.Conn) { nc.Close() }},
		{"parked", true, func(nc net.Conn) { nc.Close() }},
		{"by a deadline", true, func(nc net.Conn) { nc.SetReadDeadline(time.Unix(1, 0)) }},
		{"the percore.Conn", true, func(nc net.Conn) { nc.(interface{ NetConn() net.Conn }).NetConn().Close() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := f.dial()
			if tt.parked {
				c.get("/")
				f.awaitParked(1)
			} else {
				f.awaitWaiting(1)
			}
			tt.close(testnet.Receive(t, "the connection", conns))
			c.awaitEOF()
		})
	}
	testnet.Eventually(t, "the connections being given up", func() bool { return f.server.Stats().Conns == 0 })
	// The user is notified from separate goroutines, a little later.
	testnet.Eventually(t, "every connection's end being told", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, states := range f.states {
			if states[len(states)-1] != "closed" {
				return false
			}
		}
		return true
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, states := range f.states {
		if strings.Count(strings.Join(states, " "), "closed") != 1 {
			t.Errorf("got states %v, want one closed", states)
		}
	}
}

// wantOfTimeout checks the outcome of a timeout. On a busy machine a short one may pass before the
// client has sent anything. So a wrong outcome counts only if a long timeout also has it.
func wantOfTimeout(t *testing.T, want string, shortest time.Duration, outcome func(d time.Duration) string) {
	t.Helper()
	got := ""
	for d := shortest; d < 100*shortest; d *= 4 {
		if got = outcome(d); got == want {
			return
		}
	}
	t.Errorf("got %s, want %s", got, want)
}

// Timeouts that mean never must not overflow.
func TestEndlessTimeouts(t *testing.T) {
	needParking(t)
	for name, configure := range map[string]func(srv *http.Server){
		"IdleTimeout":       func(srv *http.Server) { srv.IdleTimeout = math.MaxInt64 },
		"ReadHeaderTimeout": func(srv *http.Server) { srv.ReadHeaderTimeout = math.MaxInt64 },
		"ReadTimeout":       func(srv *http.Server) { srv.ReadTimeout = math.MaxInt64 },
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, echoPath, func(f *fixture) { configure(f.srv) })
			c := f.dial()
			f.awaitWaiting(1) // for the first byte
			for range 3 {
				c.get("/")
				f.awaitParked(1)
			}
		})
	}
}

// TestReadTimeoutOfBody: for a request that comes after parking, ReadTimeout begins with its fourth
// byte. For a new connection it begins when the connection is accepted. It also covers bytes that
// come after the header.
func TestReadTimeoutOfBody(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before int // requests
		begin  string
		rest   string // after 0.8 of the timeout; then 0.6 of it pass before the body
		want   string
	}{
		{"after parking", 1, "P", "OST /late HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\n", "body <nil>"},
		{"of a new connection", 0, "", "POST /late HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\n", " i/o timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			readBody := func(rw http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil && isTimeout(err) {
					err = errors.New("i/o timeout")
				}
				fmt.Fprintf(rw, "%s %v", body, err)
			}
			wantOfTimeout(t, tt.want, 100*time.Millisecond, func(d time.Duration) string {
				f := start(t, readBody, func(f *fixture) { f.srv.ReadTimeout = d; f.srv.IdleTimeout = time.Hour })
				c := f.dial()
				for range tt.before {
					if err := c.tryGet("/"); err != nil {
						return err.Error() // the timeout has passed already
					}
					if canPark {
						f.awaitParked(1)
					}
				}
				io.WriteString(c, tt.begin)
				time.Sleep(d * 8 / 10)
				io.WriteString(c, tt.rest)
				time.Sleep(d * 6 / 10)
				io.WriteString(c, "body")
				resp, err := http.ReadResponse(c.br, nil)
				if err != nil {
					return err.Error()
				}
				body, _ := io.ReadAll(resp.Body)
				return string(body)
			})
		})
	}
}

// TestDeadlineInIdleHook: net/http's deadline replaces the user's, which does not prevent parking.
func TestDeadlineInIdleHook(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, func(f *fixture) {
		f.srv.ConnState = func(c net.Conn, state http.ConnState) {
			f.connState(c, state)
			if state == http.StateIdle {
				_ = c.SetReadDeadline(time.Now().Add(-time.Hour))
			}
		}
	})
	c := f.dial()
	for range 3 {
		c.get("/")
		f.awaitParked(1)
	}
}

// TestHeaderTimeStartsWithTheRequest: time spent parked does not count.
func TestHeaderTimeStartsWithTheRequest(t *testing.T) {
	needParking(t)
	for _, tt := range []struct{ before, begin, end string }{
		{request("/"), "GE", "T /late HTTP/1.1\r\nHost: test\r\n\r\n"},
		{"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n", request("/late")},
	} {
		t.Run(fmt.Sprintf("%q", tt.begin), func(t *testing.T) {
			f := start(t, echoPath, func(f *fixture) {
				f.srv.ReadHeaderTimeout = testnet.HangTimeout
				f.srv.IdleTimeout = -1
			})
			c := f.dial()
			c.send(tt.before)
			c.answer()
			f.awaitParked(1)
			c.send(tt.begin)
			f.awaitPart()
			c.send(tt.end)
			if got := c.answer(); got != "/late" {
				t.Errorf("got %q, want %q", got, "/late")
			}
		})
	}
}

// TestHeaderTimeStartsWithTheConnection: for the first request, time spent without a byte does count.
func TestHeaderTimeStartsWithTheConnection(t *testing.T) {
	needParking(t)
	conns := make(chan *h1.Conn, 1)
	f := start(t, echoPath, func(f *fixture) {
		f.srv.ReadHeaderTimeout = time.Hour
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			conns <- h1.ConnOf(c)
			return ctx
		}
	})
	client := f.dial()
	c := testnet.Receive(t, "the connection", conns)
	f.awaitWaiting(1)
	want := c.Sight().ReadDeadline
	client.send(request("/")[:20])
	testnet.Eventually(t, "the first bytes being read", func() bool { return isIn(c.Sight(), "fresh") && f.hasPart() })
	if got := c.Sight().ReadDeadline; !got.Equal(want) || got.IsZero() {
		t.Errorf("got the deadline %v after the first bytes, want %v as when it was accepted", got, want)
	}
}

// TestHeaderTimeIncludesEmptyLines: once four bytes have arrived after parking they count, even if
// they are skipped.
func TestHeaderTimeIncludesEmptyLines(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, func(f *fixture) {
		f.srv.ReadHeaderTimeout = time.Hour
		f.srv.IdleTimeout = -1
	})
	client := f.dial()
	client.send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")
	client.answer()
	f.awaitParked(1)
	c := f.conn()
	client.send("\r\n\r\n")
	testnet.Eventually(t, "the header's deadline", func() bool { return !c.Sight().ReadDeadline.IsZero() })
	want := c.Sight().ReadDeadline
	client.send("GET")
	testnet.Eventually(t, "the request being read", func() bool {
		s := c.Sight()
		return isIn(s, "parked") && s.Part == len("GET")
	})
	if got := c.Sight().ReadDeadline; !got.Equal(want) {
		t.Errorf("got the deadline %v, want %v as after the empty lines", got, want)
	}
}

// wrapping is a listener that returns connections of its own type.
type wrapping struct{ net.Listener }

type wrapped struct{ net.Conn }

func (l wrapping) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrapped{c}, nil
}

// TestForeignConns: connections of other types are served but not parked.
func TestForeignConns(t *testing.T) {
	f := start(t, echoPath, func(f *fixture) { f.ln = wrapping{f.ln} })
	c := f.dial()
	for range 3 {
		if got := c.get("/x"); got != "/x" {
			t.Errorf("got %q, want %q", got, "/x")
		}
	}
	if got := f.server.Stats(); got.Foreign != 1 || got.Conns != 0 {
		t.Errorf("got %+v, want one foreign connection", got)
	}
	other := f.dial()
	other.get("/")
	const want = "httpadapter: net/http serves connections of type httpadapter.wrapped: "
	if got := f.log.String(); canPark && (!strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1) {
		t.Errorf("got log %q, want %q, once", got, want)
	}
	f.shutdown()
	c.awaitEOF()
	other.awaitEOF()
	testnet.Eventually(t, "the states", func() bool {
		ends := 0
		for _, states := range f.snapshot() {
			switch strings.Join(states, " ") {
			case "new active idle active idle active idle closed", "new active idle closed":
				ends++
			}
		}
		return ends == 2
	})
}

// failing is a listener whose Accept fails for a while.
type failing struct {
	net.Listener
	left atomic.Int32
}

type temporaryError struct{ error }

func (temporaryError) Timeout() bool   { return false }
func (temporaryError) Temporary() bool { return true }

func (l *failing) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, temporaryError{errors.New("not now")}
	}
	return l.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	f := start(t, echoPath, func(f *fixture) {
		l := &failing{Listener: f.ln}
		l.left.Store(2)
		f.ln = l
	})
	f.dial().get("/")
	want := "http: Accept error: not now; retrying in 5ms\nhttp: Accept error: not now; retrying in 10ms\n"
	if got := f.log.String(); got != want {
		t.Errorf("got log %q, want %q", got, want)
	}
}

// TestLeftToNetHTTP: the switch makes net/http serve everything.
func TestLeftToNetHTTP(t *testing.T) {
	leaveToNetHTTP(t)
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		if _, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok {
			t.Error("no local address in the context")
		}
	}, func(f *fixture) {
		f.srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if _, ok := c.(*percore.Conn); !ok {
				t.Errorf("ConnContext got a %T, want the *percore.Conn itself", c)
			}
			return ctx
		}
	})
	f.dial().get("/")
	if got := f.server.Stats(); got.Conns+got.Waiting+got.Serving > 0 || got.Requests+got.Foreign+got.HTTP2 > 0 {
		t.Errorf("got %+v, want nothing counted", got)
	}
}

// failingClose is a listener whose Close reports an error.
type failingClose struct{ net.Listener }

var errClose = errors.New("could not close")

func (l failingClose) Close() error {
	l.Listener.Close()
	return errClose
}

// TestShutdownReportsListener: Shutdown returns the error of the listener's Close, but only after
// everything is closed.
func TestShutdownReportsListener(t *testing.T) {
	needParking(t)
	const n = 100
	f := start(t, echoPath, func(f *fixture) { f.ln = failingClose{f.ln} })
	for range n {
		f.dial().get("/")
	}
	f.awaitParked(n)
	if err := f.server.Shutdown(t.Context()); err != errClose {
		t.Errorf("Shutdown: got %v, want %v", err, errClose)
	}
	if got := f.server.Stats(); got.Conns != 0 {
		t.Errorf("got %+v after Shutdown, want no connections", got)
	}
}

// TestTwoListeners: one Server, one Shutdown, and a base context for each listener.
func TestTwoListeners(t *testing.T) {
	type key struct{}
	f := start(t, func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprint(rw, r.Context().Value(key{}))
	}, func(f *fixture) {
		f.srv.BaseContext = func(l net.Listener) context.Context {
			return context.WithValue(context.Background(), key{}, l.Addr())
		}
	})
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	served := make(chan error, 1)
	go func() { served <- f.server.Serve(ln) }()
	nc := testnet.Dial(t, ln)
	first, second := f.dial(), &client{nc, t, bufio.NewReader(nc)}
	for range 2 {
		for _, c := range []*client{first, second} {
			if got, want := c.get("/"), c.RemoteAddr().String(); got != want {
				t.Errorf("got the base context of the listener %s, want %s", got, want)
			}
		}
		if canPark {
			f.awaitParked(2)
		}
	}
	f.shutdown()
	if err := testnet.Receive(t, "the second Serve", served); err != http.ErrServerClosed {
		t.Errorf("got %v, want http.ErrServerClosed", err)
	}
	first.awaitEOF()
	second.awaitEOF()
}

func TestListenAndServe(t *testing.T) {
	testnet.NoLeaks(t)
	addrs := make(chan net.Addr, 1)
	srv := &http.Server{Addr: "127.0.0.1:0", Handler: http.HandlerFunc(echoPath), BaseContext: func(l net.Listener) context.Context {
		addrs <- l.Addr()
		return context.Background()
	}}
	s := Wrap(srv)
	down := make(chan struct{})
	s.RegisterOnShutdown(func() { close(down) })
	served := make(chan error, 1)
	go func() { served <- s.ListenAndServe() }()
	addr := testnet.Receive(t, "the address", addrs)
	nc, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	c := &client{nc, t, bufio.NewReader(nc)}
	if got := c.get("/x"); got != "/x" {
		t.Errorf("got %q, want %q", got, "/x")
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	testnet.Receive(t, "the function registered for Shutdown", down)
	for _, serve := range []func() error{func() error { return <-served }, s.ListenAndServe, func() error { return s.ListenAndServeTLS("", "") }} {
		if err := serve(); err != http.ErrServerClosed {
			t.Errorf("got %v, want http.ErrServerClosed", err)
		}
	}
}
