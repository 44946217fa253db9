package h2

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// ways are the kinds of connections that a server has.
var ways = []struct {
	name   string
	tls    bool
	listen testnet.ListenFunc
}{
	{"plain", false, percore.Listen},
	{"tls", true, percore.Listen},
	{"net", false, net.Listen},
	{"tls on net", true, net.Listen},
}

// eachWay runs a test on each kind of connection.
func eachWay(t *testing.T, test func(t *testing.T, start func(h Handler, config Config) *fixture)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			test(t, func(h Handler, config Config) *fixture {
				f := &fixture{t: t}
				if way.tls {
					config.TLS, f.tls = testnet.TLS(t)
				}
				f.start(way.listen, h, config)
				return f
			})
		})
	}
}

// fixture is a server under test.
type fixture struct {
	t      testing.TB
	tls    *tls.Config // the client's
	server *Server
	l      net.Listener
	served chan error
}

// serve starts a server on plain connections of percore's.
func serve(t testing.TB, h Handler, config Config) *fixture {
	f := &fixture{t: t}
	f.start(percore.Listen, h, config)
	return f
}

func (f *fixture) start(listen testnet.ListenFunc, h Handler, config Config) {
	if config.BeginTimeout == 0 {
		config.BeginTimeout = testnet.HangTimeout // the machine may be busy
	}
	f.server = New(h, config)
	l := testnet.Listen(f.t, listen, testnet.TCP4)
	f.l, f.served = l, make(chan error, 1)
	go func() { f.served <- f.server.Serve(l) }()
	f.t.Cleanup(func() {
		f.server.Close()
		if err := testnet.Receive(f.t, "Serve's return", f.served); err != ErrServerClosed {
			f.t.Errorf("Serve returned %v, want %v", err, ErrServerClosed)
		}
	})
}

// client returns an HTTP client of net/http's, which ends with the test.
func (f *fixture) client() *http.Client {
	return testnet.HTTP2Client(f.t, f.tls)
}

func (f *fixture) url(path string) string {
	return testnet.URL(f.l, f.tls != nil, path)
}

// dial returns a connection to the server.
func (f *fixture) dial() net.Conn {
	c, err := net.Dial("tcp", f.l.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	if f.tls != nil {
		config := f.tls.Clone()
		config.NextProtos = []string{"h2"}
		c = tls.Client(c, config)
	}
	f.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return c
}

// peer dials, and says hello, with settings that are written as id, value.
func (f *fixture) peer(settings ...uint32) *frames.Peer {
	return frames.NewPeer(f.t, f.dial(), settings...)
}

// pipePeer gives the server a connection in memory, and returns that and its client. The server ends
// with the test.
func pipePeer(t *testing.T, server *Server, settings ...uint32) (*Conn, *frames.Peer) {
	t.Helper()
	ours, theirs := net.Pipe()
	c, err := server.Attach(ours, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return c, frames.NewPeer(t, theirs, settings...)
}

// shutdown drains the server.
func (f *fixture) shutdown() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	if err := f.server.Shutdown(ctx); err != nil {
		f.t.Errorf("Shutdown: %v", err)
	}
}
