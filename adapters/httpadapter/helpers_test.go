package httpadapter

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/testnet"
)

// A fixture is a wrapped http.Server on a percore listener.
type fixture struct {
	*testing.T
	srv    *http.Server
	server *Server
	ln     net.Listener
	served chan error
	log    testnet.Log
	client *tls.Config // for clients, if dial does a TLS handshake

	overListener bool // TLS is a listener's, rather than ServeTLS's

	mu     sync.Mutex
	states map[net.Conn][]string // guarded by mu; ConnState's calls
}

// start serves handler until the test ends. configure may change everything before that.
func start(t *testing.T, handler http.HandlerFunc, configure func(f *fixture), opts ...Option) *fixture {
	t.Helper()
	testnet.NoLeaks(t)
	return startBeside(t, handler, configure, opts...)
}

// startBeside is like start, for another server of a test.
func startBeside(t *testing.T, handler http.HandlerFunc, configure func(f *fixture), opts ...Option) *fixture {
	t.Helper()
	f := &fixture{T: t, served: make(chan error, 1), states: make(map[net.Conn][]string)}
	f.srv = &http.Server{Handler: handler, ErrorLog: log.New(&f.log, "", 0), ConnState: f.connState}
	f.ln = testnet.Listen(t, percore.Listen, testnet.TCP4)
	if configure != nil {
		configure(f)
	}
	config := f.srv.TLSConfig
	overTLS := config != nil // Serve will set it in any case
	ln := f.ln
	if f.overListener {
		if config.NextProtos == nil {
			config.NextProtos = []string{"h2", "http/1.1"}
		}
		ln, overTLS, f.srv.TLSConfig = tls.NewListener(f.ln, config), false, nil
	}
	f.server = Wrap(f.srv, opts...)
	go func() {
		if overTLS {
			f.served <- f.server.ServeTLS(f.ln, "", "")
		} else {
			f.served <- f.server.Serve(ln)
		}
	}()
	t.Cleanup(func() {
		f.server.Close()
		if err := testnet.Receive(t, "Serve", f.served); err == nil {
			t.Error("Serve returned nil, want an error")
		}
		testnet.Eventually(t, "all connections being given up", func() bool { return f.server.Stats().Conns == 0 })
	})
	return f
}

func (f *fixture) connState(c net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.states[c] = append(f.states[c], state.String())
}

// awaitStates waits until one connection has gone through the given states, and no other has been seen.
func (f *fixture) awaitStates(want string) {
	f.Helper()
	got := ""
	defer func() {
		if f.Failed() {
			f.Logf("got states %q, want %q", got, want)
		}
	}()
	testnet.Eventually(f, "the states "+want, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		got = ""
		for _, states := range f.states {
			got += strings.Join(states, " ")
		}
		return got == want
	})
}

// awaitParked waits until n connections are parked.
func (f *fixture) awaitParked(n int) {
	f.Helper()
	testnet.Eventually(f, fmt.Sprintf("%d parked connections", n), func() bool { return f.server.Stats().Parked == n })
}

// awaitWaiting waits until n connections wait for their first byte.
func (f *fixture) awaitWaiting(n int) {
	f.Helper()
	testnet.Eventually(f, fmt.Sprintf("%d waiting connections", n), func() bool { return f.server.Stats().Waiting == n })
}

// needParking skips the test on platforms where nothing is ever parked.
func needParking(t testing.TB) {
	t.Helper()
	if !canPark {
		t.Skip("nothing is parked on this platform")
	}
}

// A client is the other end of a connection.
type client struct {
	net.Conn
	t  testing.TB
	br *bufio.Reader
}

// dial connects, and does a TLS handshake if the fixture's clients use TLS.
func (f *fixture) dial() *client {
	f.Helper()
	if f.client != nil {
		return f.dialTLS(f.client)
	}
	return f.dialTCP()
}

func (f *fixture) dialTCP() *client {
	f.Helper()
	return f.dialTo(f.ln)
}

func (f *fixture) dialTo(ln net.Listener) *client {
	f.Helper()
	c := testnet.Dial(f, ln)
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return &client{c, f, bufio.NewReader(c)}
}

// dialAnyway is like dial, for a server whose timeouts may end the handshake. Later steps fail in
// that case.
func (f *fixture) dialAnyway() *client {
	f.Helper()
	c := f.dialTCP()
	if f.client != nil {
		c.Conn = tls.Client(c.Conn, f.client)
		_ = c.Conn.(*tls.Conn).Handshake()
		c.br.Reset(c.Conn)
	}
	return c
}

// tcp returns the connection without TLS.
func (c *client) tcp() *net.TCPConn {
	if tc, ok := c.Conn.(*tls.Conn); ok {
		return tc.NetConn().(*net.TCPConn)
	}
	return c.Conn.(*net.TCPConn)
}

// closeWrite ends the stream to the server. Over TLS it only sends a close_notify.
func (c *client) closeWrite() {
	_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

// send gives the next steps their time: a whole test may take longer.
func (c *client) send(text string) {
	c.t.Helper()
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatalf("sending %q: %v", text, err)
	}
}

// answer reads a response and returns its body.
func (c *client) answer() string {
	c.t.Helper()
	body, _ := c.answerClosing()
	return body
}

// answerClosing reads a response, and returns its body and whether it says "Connection: close".
func (c *client) answerClosing() (body string, closes bool) {
	c.t.Helper()
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		c.t.Fatalf("reading a response: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("reading a response's body: %v", err)
	}
	return string(b), resp.Close
}

// get sends a request and returns the body of the response.
func (c *client) get(path string) string {
	c.t.Helper()
	c.send(request(path))
	return c.answer()
}

// tryGet is like get, for a server whose timeouts may end the connection first.
func (c *client) tryGet(path string) error {
	if _, err := io.WriteString(c, request(path)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// awaitEOF reads to the end, and fails if more data arrives.
func (c *client) awaitEOF() {
	c.t.Helper()
	rest, err := io.ReadAll(c.br)
	if err != nil || len(rest) > 0 {
		c.t.Errorf("got %q, %v, want the end of the stream", rest, err)
	}
}

func request(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n" }

// echoPath answers with the request's path.
func echoPath(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.URL.Path) }

// wantServed checks Serve's result in a fixture that has ended, and puts it back for the cleanup.
func (f *fixture) wantServed(want error) {
	f.Helper()
	err := testnet.Receive(f, "Serve", f.served)
	if !errors.Is(err, want) {
		f.Errorf("Serve: got %v, want %v", err, want)
	}
	f.served <- err
}

// shutdown shuts the server down, and fails if it takes so long that it counts as a hang.
func (f *fixture) shutdown() {
	f.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	if err := f.server.Shutdown(ctx); err != nil {
		f.Errorf("Shutdown: %v", err)
	}
}

// goroutines counts the goroutines that serve: the test's own don't, nor do the guards'.
func goroutines(*fixture) int {
	buf := make([]byte, 4<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	return strings.Count(stacks, "net/http.(*conn).serve(") - strings.Count(stacks, "httpadapter.(*shutdownGuard).Write(") -
		strings.Count(stacks, "httpadapter.(*idleGuard).Read(")
}

// conn returns the only connection there is.
func (f *fixture) conn() *h1.Conn {
	for nc := range f.snapshot() {
		return h1.ConnOf(nc)
	}
	return nil
}

// hasPart reports whether the only connection waits with a part of a request.
func (f *fixture) hasPart() bool { return hasPart(f.conn()) }

func hasPart(c *h1.Conn) bool {
	s := c.Sight()
	return s.HasPart && (isIn(s, "fresh") || isIn(s, "parked"))
}

// isIn reports whether a connection is in a state of package h1's.
func isIn(s h1.Sight, state string) bool {
	is, _, _ := strings.Cut(s.State, " ")
	return is == state
}

func (f *fixture) awaitPart() {
	f.Helper()
	testnet.Eventually(f, "the beginning of a request being read", f.hasPart)
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// leaveToNetHTTP makes net/http serve what the test gives the adapter.
func leaveToNetHTTP(t *testing.T) { t.Setenv("PERCOREDEBUG", "http=net") }

// snapshot copies the states of all connections.
func (f *fixture) snapshot() map[net.Conn][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	states := make(map[net.Conn][]string)
	for c, s := range f.states {
		states[c] = slices.Clone(s)
	}
	return states
}

// turnBytes is the size of a worker's buffer, and of net/http's. plainBytesMost is the length of the
// longest plain header, and discardMax that of a rest of a body that is read when the handler has
// returned.
var turnBytes = bufio.NewReader(nil).Size()

const (
	plainBytesMost = 64 << 10
	discardMax     = 256 << 10
)

// cutOffIsEnd says that net/http takes a body for ended once it was cut off: see package h1.
var cutOffIsEnd = strings.HasPrefix(runtime.Version(), "go1.26")

// clearHTTP2 is HTTP/2 in clear, alone or beside HTTP/1.
func clearHTTP2(http1 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(http1)
	p.SetUnencryptedHTTP2(true)
	return p
}

// preface is what a client that speaks HTTP/2 in clear begins with.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
