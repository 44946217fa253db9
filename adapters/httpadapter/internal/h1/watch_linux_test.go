//go:build !percore_net

package h1

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/testnet"
)

// A fixture is a Server without hooks, and its Host.
type fixture struct {
	*testing.T
	ln     net.Listener
	client *tls.Config // nil: in clear
	conns  sync.WaitGroup
}

func (f *fixture) Introduce(c *Conn)               { c.Report(http.StateNew) }
func (f *fixture) Begins() bool                    { return true }
func (f *fixture) Ended() bool                     { return false }
func (f *fixture) KeepAlives() bool                { return true }
func (f *fixture) Draining() bool                  { return false }
func (f *fixture) Switch(c *Conn, _ []byte)        { f.Errorf("%v has switched to another protocol", c) }
func (f *fixture) Left()                           { f.conns.Done() }
func (f *fixture) Logf(format string, args ...any) { f.Errorf(format, args...) }

// ways are the ways to serve HTTP/1: the version of TLS, or 0 for none.
var ways = map[string]uint16{"in clear": 0, "TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

// eachWay runs a test in all ways.
func eachWay(t *testing.T, test func(t *testing.T, version uint16)) {
	for name, version := range ways {
		t.Run(name, func(t *testing.T) { test(t, version) })
	}
}

// start serves handler until the test ends.
func start(t *testing.T, version uint16, handler http.HandlerFunc, connState func(net.Conn, http.ConnState)) *fixture {
	testnet.NoLeaks(t)
	f := &fixture{T: t, ln: testnet.Listen(t, percore.Listen, testnet.TCP4)}
	var side func(net.Conn) *tls.Conn
	if version != 0 {
		var server *tls.Config
		server, f.client = testnet.TLS(t)
		f.client.MaxVersion = version
		side = func(nc net.Conn) *tls.Conn { return tls.Server(nc, server) }
	}
	s := New(Config{
		Host: f, HTTP: &http.Server{Handler: handler}, ConnState: connState, Context: t.Context(), HTTP1: true,
		FieldsMax: 100, Handshakes: serving.NewDefaultHandshakes(), Counts: counters.NewSet(1, Counters).Cells,
	}, []func(net.Conn) *tls.Conn{side})
	accepted := make(chan bool)
	go func() {
		defer close(accepted)
		for {
			nc, err := f.ln.Accept()
			if err != nil {
				return
			}
			f.conns.Add(1)
			s.Queues[0].Accept(nc.(*percore.Conn))
		}
	}()
	t.Cleanup(func() {
		f.ln.Close()
		testnet.Receive(t, "the accept loop's end", accepted)
		s.CloseKept()
		s.CloseServed()
		f.conns.Wait()
		s.Close()
	})
	return f
}

// A client is the other end of a connection.
type client struct {
	net.Conn
	t  *testing.T
	br *bufio.Reader
}

func (f *fixture) dial() *client {
	c := testnet.Dial(f.T, f.ln)
	_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if f.client != nil {
		c = tls.Client(c, f.client)
	}
	return &client{c, f.T, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	if _, err := io.WriteString(c.Conn, text); err != nil {
		c.t.Fatalf("sending %q: %v", text, err)
	}
}

// wantAnswersAndEnd ends the client's stream, and wants n answers and the end of the server's.
func (c *client) wantAnswersAndEnd(n int) {
	_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
	for range n {
		resp, err := http.ReadResponse(c.br, nil)
		if err != nil {
			c.t.Fatalf("reading a response: %v", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	if rest, err := io.ReadAll(c.br); err != nil || len(rest) > 0 {
		c.t.Errorf("got %q, %v, want the end of the stream", rest, err)
	}
}

const first, second = "GET / HTTP/1.1\r\nHost: test\r\n\r\n", "GET /wait HTTP/1.1\r\nHost: test\r\n\r\n"

// A callback for bytes that have already been read doesn't hide the client's end.
func TestSpuriousCallback(t *testing.T) { eachWay(t, testSpuriousCallback) }

func testSpuriousCallback(t *testing.T, version uint16) {
	arrived, conns := make(chan bool, 1), make(chan *Conn, 1)
	f := start(t, version, func(_ http.ResponseWriter, r *http.Request) {
		arrived <- true
		<-r.Context().Done()
	}, func(nc net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns <- ConnOf(nc)
		}
	})
	c := f.dial()
	c.send(first)
	testnet.Receive(t, "the request", arrived)
	served := testnet.Receive(t, "the connection", conns)
	testnet.Eventually(t, "the callback", served.Conn.CancelOnReadable)
	(*waker)(served).OnReadable(nil)
	c.wantAnswersAndEnd(1)
}

// The same between two requests of a pipeline, when no handler is running that the callback could
// be about.
func TestSpuriousCallbackBetween(t *testing.T) { eachWay(t, testSpuriousCallbackBetween) }

func testSpuriousCallbackBetween(t *testing.T, version uint16) {
	arrived := make(chan bool, 1)
	f := start(t, version, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- true
			<-r.Context().Done()
		}
	}, func(nc net.Conn, state http.ConnState) {
		if state == http.StateIdle {
			c := ConnOf(nc)
			c.Conn.CancelOnReadable()
			(*waker)(c).OnReadable(nil)
		}
	})
	f.leaveDuringSecond(arrived)
}

// The same for a callback that comes during a request and is noticed during the next.
func TestSpuriousCallbackLate(t *testing.T) { eachWay(t, testSpuriousCallbackLate) }

func testSpuriousCallbackLate(t *testing.T, version uint16) {
	arrived := make(chan bool, 1)
	var earlier *exchange
	f := start(t, version, func(rw http.ResponseWriter, r *http.Request) {
		x := rw.(*exchange)
		if r.URL.Path != "/wait" {
			earlier = x
			return
		}
		testnet.Eventually(t, "the callback", x.conn.Conn.CancelOnReadable)
		(*waker)(x.conn).after(&earlier.watched, nil)
		arrived <- true
		<-r.Context().Done()
	}, nil)
	f.leaveDuringSecond(arrived)
}

// leaveDuringSecond sends two requests at once. It half-closes when the second, which waits for the
// client's end, has reported that it arrived. Both are answered.
func (f *fixture) leaveDuringSecond(arrived <-chan bool) {
	f.Helper()
	c := f.dial()
	c.send(first + second)
	testnet.Receive(f.T, "the request", arrived)
	c.wantAnswersAndEnd(2)
}

// TestCloseNotifyTwice: a client that goes while the handler returns may be noticed by both watched
// parts of a detached answer. The channel has room for one.
func TestCloseNotifyTwice(t *testing.T) {
	_, cancel := newRequestContext(t.Context(), nil)
	x := watched{canceler: cancel, watching: true, closeNotify: make(chan bool, 1)}
	a := &Answer{watched: watched{canceler: cancel}, owner: gone{}}
	x.detached, a.watched.detached = a, a
	a.takeOver(&x)
	done := make(chan bool, 1)
	go func() {
		x.clientGone() // by a callback that has found it watching
		a.clientGone()
		done <- true
	}()
	testnet.Receive(t, "that the loop goes on", done)
	testnet.Receive(t, "the notice", x.closeNotify)
}

// gone is an Owner of an answer whose client goes.
type gone struct{ semantics.Owner }

func (gone) Gone(error) bool { return true }
