package percore

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// children are the helper processes of this package's tests. Each file adds its own when it is
// initialized.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	var options []testnet.Option
	for name, run := range children {
		options = append(options, testnet.WithChild(name, run))
	}
	testnet.Main(m, options...)
}

// listen makes a listener with lc's options and closes it when the test ends.
func listen(t testing.TB, lc ListenConfig, network, address string) *Listener {
	t.Helper()
	ln, err := lc.Listen(t.Context(), network, address)
	if err != nil {
		t.Fatalf("listening on %s %s: %v", network, address, err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*Listener)
}

// connect makes a connection through ln. Both ends are closed when the test ends.
func connect(t testing.TB, ln net.Listener) (server *Conn, client net.Conn) {
	t.Helper()
	s, c := testnet.Connect(t, ln)
	return s.(*Conn), c
}

// perLoop splits ln.
func perLoop(t testing.TB, ln *Listener) []*Listener {
	t.Helper()
	subs, err := ln.PerLoop()
	if err != nil {
		t.Fatalf("PerLoop: %v", err)
	}
	return subs
}

// fileOf turns a listener into a copy of its socket, the only one left. It is closed when the test ends.
func fileOf(t testing.TB, ln net.Listener) *os.File {
	t.Helper()
	if ul, ok := ln.(interface{ SetUnlinkOnClose(bool) }); ok {
		ul.SetUnlinkOnClose(false)
	}
	f, err := ln.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatalf("copying the socket of %v: %v", ln.Addr(), err)
	}
	t.Cleanup(func() { f.Close() })
	ln.Close()
	return f
}

// acceptAll accepts until the listeners are closed.
func acceptAll(from ...*Listener) <-chan net.Conn {
	conns := make(chan net.Conn, 1000)
	for _, ln := range from {
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				conns <- c
			}
		}()
	}
	return conns
}

// serveEcho accepts from ln until it is closed and sends all bytes back on each connection.
func serveEcho(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			io.Copy(c, c)
		}()
	}
}

// roundTrip sends text to an echoing peer and returns the answer.
func roundTrip(c net.Conn, text string) (string, error) {
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	b := make([]byte, len(text))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

// wantEcho fails the test unless the peer echoes.
func wantEcho(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if got, err := roundTrip(c, text); got != text || err != nil {
		t.Errorf("echo on %v: got %q, %v, want %q", c.LocalAddr(), got, err, text)
	}
}

// awaitEnd reads from c until it ends, and returns why. nil means the end of the stream and not,
// for example, a reset.
func awaitEnd(c net.Conn) error {
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	_, err := io.Copy(io.Discard, c)
	return err
}

// wantErr fails the test unless err is target, in the form that package net uses: an OpError with
// the operation.
func wantErr(t testing.TB, what string, err error, op string, target error) {
	t.Helper()
	var operr *net.OpError
	if !errors.Is(err, target) || !errors.As(err, &operr) || operr.Op != op {
		t.Errorf("%s: got %v (%T), want an OpError of %q that is %q", what, err, err, op, target)
	}
}

// withoutPort replaces the port in the text of an error.
func withoutPort(err error, addr net.Addr) string {
	if err == nil {
		return "no error"
	}
	if a, ok := addr.(*net.TCPAddr); ok {
		return strings.ReplaceAll(err.Error(), a.String(), a.IP.String()+":PORT")
	}
	return strings.ReplaceAll(err.Error(), addr.String(), "ADDR")
}

// exitChild ends a helper process with a message that its parent's Wait returns.
func exitChild(what string, err error) {
	os.Stderr.WriteString(what + ": " + err.Error() + "\n")
	os.Exit(1)
}
