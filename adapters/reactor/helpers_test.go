package reactor

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// handler is a Handler of functions, each of which may be nil.
type handler struct {
	open  func(c *Conn)
	data  func(c *Conn, p []byte) int
	close func(c *Conn, err error)
}

func (h *handler) Open(c *Conn) {
	if h.open != nil {
		h.open(c)
	}
}

func (h *handler) Data(c *Conn, p []byte) int {
	if h.data != nil {
		return h.data(c, p)
	}
	return len(p)
}

func (h *handler) Close(c *Conn, err error) {
	if h.close != nil {
		h.close(c, err)
	}
}

// ender is a handler that is an EndHandler, too.
type ender struct {
	handler
	end func(c *Conn, unused []byte)
}

func (h *ender) End(c *Conn, unused []byte) { h.end(c, unused) }

// told is a handler that is a WritableHandler, too.
type told struct {
	handler
	room func(c *Conn)
}

func (h *told) Writable(c *Conn) {
	if h.room != nil {
		h.room(c)
	}
}

// attachTLS is attach of a connection with a layer. Nothing is on its way after the handshake.
func attachTLS(t *testing.T, s *Server) (c *Conn, peer *tls.Conn) {
	t.Helper()
	server, client := testnet.TLS(t)
	server.MaxVersion = tls.VersionTLS12 // it sends no tickets behind the handshake
	server.DynamicRecordSizingDisabled = true
	pc, raw := testnet.Pair(t, percore.Listen, testnet.TCP4)
	tc, peer := tls.Server(&lower{Conn: pc}, server), tls.Client(raw, client)
	shaken := make(chan error, 1)
	go func() { shaken <- peer.Handshake() }()
	err := tc.Handshake()
	if err = errors.Join(err, testnet.Receive(t, "the client's handshake", shaken)); err == nil {
		c, err = s.Attach(tc, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	endBeforePair(t, s, c)
	return c, peer
}

// endBeforePair ends a connection before the cleanup of its pair: no other code may close a
// connection of the server's.
func endBeforePair(t *testing.T, s *Server, c *Conn) {
	t.Cleanup(func() {
		c.Abort()
		testnet.Eventually(t, "the connections' end", func() bool { return s.Stats().Conns == 0 })
	})
}

// echo sends back what comes.
func echo(c *Conn, p []byte) int {
	c.Write(p)
	return len(p)
}

// serve starts a server with the first config, or with the defaults, which ends with the test, and
// returns a function that dials it.
func serve(t testing.TB, h Handler, config ...Config) (*Server, func() net.Conn) {
	t.Helper()
	return serveOn(t, testnet.TCP4, h, config...)
}

func serveOn(t testing.TB, kind testnet.Kind, h Handler, config ...Config) (*Server, func() net.Conn) {
	t.Helper()
	s, err := New(h, append(config, Config{})[0])
	if err != nil {
		t.Fatal(err)
	}
	ln := testnet.Listen(t, percore.Listen, kind)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ln); err != ErrServerClosed {
			t.Errorf("Serve: got %v, want %v", err, ErrServerClosed)
		}
	})
	t.Cleanup(func() {
		testnet.Within(t, "closing the server", func() {
			end(t, s)
			serving.Wait()
		})
	})
	return s, func() net.Conn {
		t.Helper()
		c := testnet.Dial(t, ln)
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		return c
	}
}

// end closes a server and waits until its last connection has ended.
func end(t testing.TB, s *Server) {
	s.Close()
	testnet.Within(t, "the end of the server's connections", func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown after Close: got %v", err)
		}
	})
}

// closes makes a Close function that tells of its errors.
func closes() (func(c *Conn, err error), chan error) {
	ch := make(chan error, 100)
	return func(c *Conn, err error) { ch <- err }, ch
}
