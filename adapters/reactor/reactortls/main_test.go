package reactortls

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// handler is a reactor.Handler of functions, each of which may be nil.
type handler struct {
	open  func(c *reactor.Conn)
	data  func(c *reactor.Conn, p []byte) int
	close func(c *reactor.Conn, err error)
}

func (h *handler) Open(c *reactor.Conn) {
	if h.open != nil {
		h.open(c)
	}
}

func (h *handler) Data(c *reactor.Conn, p []byte) int {
	if h.data != nil {
		return h.data(c, p)
	}
	return len(p)
}

func (h *handler) Close(c *reactor.Conn, err error) {
	if h.close != nil {
		h.close(c, err)
	}
}

func echo(c *reactor.Conn, p []byte) int {
	c.Write(p)
	return len(p)
}

// serve starts a server, which ends with the test. If config is nil its connections are plain.
func serve(t testing.TB, config *tls.Config, limits Limits, h reactor.Handler, with ...reactor.Config) (
	*reactor.Server, net.Listener) {
	t.Helper()
	rc := append(with, reactor.Config{})[0]
	if config != nil {
		rc.TLS = Server(config, limits)
	}
	s, err := reactor.New(h, rc)
	if err != nil {
		t.Fatal(err)
	}
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(ln); err != reactor.ErrServerClosed {
			t.Errorf("Serve: got %v, want %v", err, reactor.ErrServerClosed)
		}
	})
	t.Cleanup(func() {
		testnet.Within(t, "closing the server", func() {
			s.Close()
			s.Shutdown(context.Background())
			serving.Wait()
		})
	})
	return s, ln
}

// dial connects a TLS client, without a handshake yet.
func dial(t testing.TB, ln net.Listener, config *tls.Config) *tls.Conn {
	t.Helper()
	c := tls.Client(testnet.Dial(t, ln), config)
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	return c
}

// closes makes a Close function that tells of its errors.
func closes() (func(c *reactor.Conn, err error), chan error) {
	ch := make(chan error, 100)
	return func(c *reactor.Conn, err error) { ch <- err }, ch
}

// readAll reads to the end of the stream, which must be a close_notify: crypto/tls returns io.EOF
// without one, too.
func readAll(t testing.TB, c *tls.Conn) string {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("reading to the end: got %d bytes, %v", len(got), err)
	}
	return string(got)
}

// isAlert reports whether err is a fatal alert of the peer's.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

var quiet = reactor.Config{Log: slog.New(slog.DiscardHandler)}

// bufferBytes is how large sockets' buffers are that are to be small.
const bufferBytes = 8 << 10
