//go:build !percore_net

package link

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// wrappedConn is a connection of the user's own type.
type wrappedConn struct{ net.Conn }

// deafConn is a wrappedConn that knows no deadlines, as tunnels of SSH don't, and whose Close does not
// end a Read.
type deafConn struct {
	wrappedConn
	closed func()
}

func (c *deafConn) SetDeadline(time.Time) error      { return errors.ErrUnsupported }
func (c *deafConn) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (c *deafConn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
func (c *deafConn) Close() error                     { c.closed(); return nil }

// TestOtherConnReads: reads have deadlines, and end with a close, over a connection that knows neither.
// The next read gets the bytes that come for one that was given up.
func TestOtherConnReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		closed := false
		c := newOther(&deafConn{wrappedConn{client}, func() { closed = true }}, false)
		p := make([]byte, 3)
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := c.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %d, %v, want the deadline", n, err)
		}
		if n, err := c.Read(p); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %d, %v, want the deadline again", n, err)
		}
		if n, err := c.TryRead(p); n != 0 || err != nil {
			t.Errorf("got %d, %v, want nothing", n, err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_, _ = io.WriteString(server, "hello")
		synctest.Wait()
		if !c.hasUnread() {
			t.Error("nothing has come")
		}
		if n, err := c.Read(p); string(p[:n]) != "hel" || err != nil {
			t.Errorf("got %q, %v", p[:n], err)
		}
		if n, err := c.TryRead(p); string(p[:n]) != "lo" || err != nil {
			t.Errorf("got %q, %v", p[:n], err)
		}
		h := make(readable, 1)
		for _, test := range []struct {
			do   func()
			want error
		}{
			{func() { _, _ = io.WriteString(server, "x"); _, _ = c.Read(p) }, nil},
			{func() { _ = c.SetReadDeadline(time.Now().Add(time.Second)); time.Sleep(2 * time.Second) }, os.ErrDeadlineExceeded},
			{func() { _ = c.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
		} {
			_ = c.SetReadDeadline(time.Time{})
			if err := c.NotifyReadable(h); err != nil {
				t.Fatal(err)
			}
			test.do()
			if err := <-h; !errors.Is(err, test.want) {
				t.Errorf("OnReadable got %v, want %v", err, test.want)
			}
		}
		_ = c.SetReadDeadline(time.Time{})
		if err := c.NotifyReadable(h); err != nil || !c.CancelOnReadable() || c.CancelOnReadable() {
			t.Errorf("a handler can't be taken back once: %v", err)
		}
		ended := make(chan error)
		go func() { _, err := c.Read(p); ended <- err }()
		synctest.Wait()
		c.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) || !closed {
			t.Errorf("got %v, want that it is closed: %t", err, closed)
		}
		client.Close()
		server.Close()
	})
}

type readable chan error

func (h readable) OnReadable(err error) { h <- err }

// oddConn is a connection whose Read does what it likes.
type oddConn struct {
	net.Conn
	read func(p []byte) (int, error)
}

func (c oddConn) Read(p []byte) (int, error) { return c.read(p) }
func (oddConn) Close() error                 { return nil }

// TestOtherConnOdd: a Read that returns nothing, too much, data with an error, or not at all ends no
// process, and no call waits for it.
func TestOtherConnOdd(t *testing.T) {
	for name, test := range map[string]struct {
		read func(p []byte) (int, error)
		want string
	}{
		"nothing":  {func([]byte) (int, error) { return 0, nil }, `"" ` + io.ErrNoProgress.Error()},
		"negative": {func([]byte) (int, error) { return -1, io.EOF }, `"" EOF`},
		"both":     {func(p []byte) (int, error) { return copy(p, "both"), io.ErrClosedPipe }, `"both" ` + io.ErrClosedPipe.Error()},
		"no end":   {func([]byte) (int, error) { runtime.Goexit(); return 0, nil }, `"" ` + errReadEnded.Error()},
	} {
		c := newOther(oddConn{read: test.read}, false)
		got, err := io.ReadAll(struct{ io.Reader }{c})
		if text := fmt.Sprintf("%q %v", got, err); text != test.want && !(name == "negative" && err == nil) {
			t.Errorf("%s: got %s, want %s", name, text, test.want)
		}
		c.Close()
	}
	c := newOther(oddConn{read: func(p []byte) (int, error) { return len(p) + 1, nil }}, false)
	if n, err := c.Read(make([]byte, 2*otherBytes)); n != otherBytes || err != nil {
		t.Errorf("too much: got %d, %v", n, err)
	}
	c.Close()
}

// TestMethods lists what each type that embeds a connection has of its own.
func TestMethods(t *testing.T) {
	const conn = "Close LocalAddr RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline Write"
	testnet.CheckMethods[tcpRecords](t, testnet.MethodTable{
		Own: "NetConn Read",
		Promoted: map[string]string{
			"nothing is held back": conn + " CloseRead CloseWrite File MultipathTCP SetKeepAlive SetKeepAliveConfig " +
				"SetKeepAlivePeriod SetLinger SetNoDelay SetReadBuffer SetWriteBuffer SyscallConn",
		},
	})
	testnet.CheckMethods[otherRecords](t, testnet.MethodTable{
		Own:      "NetConn Read",
		Promoted: map[string]string{"nothing is held back": conn},
	})
	testnet.CheckMethods[*otherConn](t, testnet.MethodTable{
		Own:      "CancelOnReadable Close CloseWrite NotifyReadable Read ReadFrom SetDeadline SetReadDeadline TryRead WriteBuffers",
		Promoted: map[string]string{"only reads are ahead": "LocalAddr RemoteAddr SetWriteDeadline Write"},
	})
}
