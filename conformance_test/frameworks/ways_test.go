package frameworks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// platformChildren are the helper processes of tests that do not run on all platforms.
var platformChildren []testnet.Option

func TestMain(m *testing.M) {
	testnet.Main(m, append(platformChildren, testnet.WithChild("hub", runHub), testnet.WithChild("tunnel", runTunnel))...)
}

// A way is how an http.Server is run.
type way struct {
	name   string
	listen testnet.ListenFunc
	wrap   func(srv *http.Server) testnet.WebServer
}

// ways lists all ways. The others are compared with the first.
var ways = []way{
	{"net", net.Listen, plain},
	{"percore", percore.Listen, plain},
	{"httpadapter", percore.Listen, func(srv *http.Server) testnet.WebServer { return httpadapter.Wrap(srv) }},
}

// http2Ways are the ways with a server of HTTP/2 of their own.
var http2Ways = []way{ways[0], ways[len(ways)-1]}

func plain(srv *http.Server) testnet.WebServer { return srv }

// A stage runs a script on one way and keeps its notes.
type stage struct {
	*testing.T
	way way

	mu    sync.Mutex
	notes []string // guarded by mu
}

// onEachWay runs a script on each way. A script notes its observations, which must equal its notes
// on net.
func onEachWay(t *testing.T, script func(s *stage)) { onWays(t, ways, script) }

func onWays(t *testing.T, ways []way, script func(s *stage)) {
	var want []string
	for i, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			notes := w.run(t, script)
			if i == 0 {
				want = notes
			}
			if len(want) == 0 {
				t.Error("nothing was noted on net")
			}
			compare(t, notes, want)
		})
	}
}

// run runs a script and returns its notes.
func (w way) run(t *testing.T, script func(s *stage)) []string {
	testnet.NoLeaks(t)
	s := &stage{T: t, way: w}
	script(s)
	return s.notes
}

// compare reports the notes that differ.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		at := func(notes []string) string {
			if i < len(notes) {
				return notes[i]
			}
			return "(nothing)"
		}
		if at(got) != at(want) {
			t.Errorf("note %d:\n got %s\nwant %s", i, at(got), at(want))
		}
	}
}

// note keeps a line for the comparison.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// expect is note, but fails if the line differs from the expected one.
func (s *stage) expect(want, format string, args ...any) {
	s.Helper()
	s.note(format, args...)
	if got := fmt.Sprintf(format, args...); got != want {
		s.Errorf("got %s\nwant %s", got, want)
	}
}

// context returns a context that ends when the test hangs or is over.
func (s *stage) context() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), testnet.HangTimeout)
	s.Cleanup(cancel)
	return ctx
}

// A site is a running server with a client.
type site struct {
	s       *stage
	addr    string
	url     string // without a path
	client  *http.Client
	open    atomic.Int64        // the client's connections
	adapter *httpadapter.Server // nil: nothing is parked
	engine  bool                // percore runs on its engine
}

// setup holds the options of a server besides its handler.
type setup struct {
	around     func(net.Listener) net.Listener // wraps the way's listener
	serverTLS  *tls.Config                     // nil: without TLS
	clientTLS  *tls.Config
	http2      bool // the client uses only HTTP/2
	unanswered bool // requests may be running at the end: Close instead of Shutdown
}

// start runs srv until the test ends.
func (s *stage) start(srv *http.Server, with setup) *site {
	s.Helper()
	ln := testnet.Listen(s, s.way.listen, testnet.TCP4)
	parking := canPark(ln)
	site := &site{s: s, addr: ln.Addr().String(), engine: parking}
	site.url = "http://" + site.addr
	if with.around != nil {
		ln = with.around(ln)
	}
	server := s.way.wrap(srv)
	if adapter, ok := server.(*httpadapter.Server); ok && parking {
		site.adapter = adapter
	}
	if with.serverTLS != nil {
		srv.TLSConfig = with.serverTLS
		site.url = "https://" + site.addr
	}
	testnet.ServeWeb(s, server, ln, with.serverTLS != nil)
	transport := &http.Transport{DialContext: site.dialCounted, TLSClientConfig: with.clientTLS, ForceAttemptHTTP2: true}
	if with.http2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	site.client = &http.Client{Transport: transport, Timeout: testnet.HangTimeout}
	s.Cleanup(func() {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
		defer cancel()
		stop := func() error { return server.Shutdown(ctx) }
		if with.unanswered {
			stop = server.Close
		}
		if err := stop(); err != nil {
			s.Errorf("stopping the server: %v", err)
		}
	})
	return site
}

// canPark reports whether percore runs on its engine here and so can park connections.
func canPark(ln net.Listener) bool {
	l, ok := ln.(*percore.Listener)
	return ok && l.Stats().Sockets > 0
}

// A countedConn is a connection of the site's client.
type countedConn struct {
	net.Conn
	forget func()
}

func (c countedConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// dialCounted dials for the site's client.
func (st *site) dialCounted(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	st.open.Add(1)
	return countedConn{c, sync.OnceFunc(func() { st.open.Add(-1) })}, nil
}

// awaitParked waits until the client's connections, and more connections of the test, are parked,
// where the way parks connections. The client usually has one. It has no connection if net/http has
// closed it. net/http does that if the goroutine that wrote the request hasn't said so 50 ms after
// the response (persistConn.wroteRequest).
func (st *site) awaitParked(more int) {
	st.s.Helper()
	if st.adapter == nil {
		return
	}
	defer func() {
		if st.s.Failed() {
			st.s.Logf("%+v", st.adapter.Stats())
		}
	}()
	testnet.Eventually(st.s, fmt.Sprintf("the client's connections being parked, and %d more", more), func() bool {
		return st.adapter.Stats().Parked == int(st.open.Load())+more
	})
}

// do sends a request and notes the response. It returns the body.
func (st *site) do(method, path, contentType string, body io.Reader, header ...string) string {
	st.s.Helper()
	req, err := http.NewRequestWithContext(st.s.context(), method, st.url+path, body)
	if err != nil {
		st.s.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := st.client.Do(req)
	if err != nil {
		st.s.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	st.s.note("%s %s: %s, error %v", method, path, describe(resp, string(content)), err)
	return string(content)
}

// get is do with the arguments that most tests use.
func (st *site) get(path string, header ...string) string {
	st.s.Helper()
	return st.do("GET", path, "", nil, header...)
}

// want fails the test if the body differs.
func (s *stage) want(what, got, want string) {
	s.Helper()
	if got != want {
		s.Errorf("%s: got %.100q, want %.100q", what, got, want)
	}
}

// dial connects to a site separately from its client.
func (s *stage) dial(st *site) *net.TCPConn {
	s.Helper()
	c, err := net.Dial("tcp", st.addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return c.(*net.TCPConn)
}

// describe returns everything in a response that is the same each time.
func describe(resp *http.Response, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", resp.Proto, resp.Status)
	write := func(header http.Header) {
		type field struct {
			name   string
			values []string
		}
		var fields []field
		for name, values := range header {
			if name != "Date" && name != "Last-Modified" {
				fields = append(fields, field{name, values})
			}
		}
		slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.name, b.name) })
		fmt.Fprint(&b, fields)
	}
	write(resp.Header)
	write(resp.Trailer)
	fmt.Fprintf(&b, " length %d, close %t", resp.ContentLength, resp.Close)
	if len(body) > 200 {
		fmt.Fprintf(&b, " %d bytes, %x", len(body), sha256.Sum256([]byte(body)))
	} else {
		fmt.Fprintf(&b, " %q", body)
	}
	return b.String()
}
