package sys

import (
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
)

// TestSentOf: the answer changes when the peer has read, and not before.
func TestSentOf(t *testing.T) {
	for network, addr := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			l, err := net.Listen(network, addr)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			peer, err := net.Dial(network, l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ask := func() (s Sent) {
				raw, err := c.(interface {
					SyscallConn() (syscall.RawConn, error)
				}).SyscallConn()
				if err != nil {
					t.Fatal(err)
				}
				if err := raw.Control(func(fd uintptr) { s = SentOf(int(fd)) }); err != nil {
					t.Fatal(err)
				}
				return s
			}
			last := ask()
			if again := ask(); again != last {
				t.Errorf("got %v, and then %v without anything sent", last, again)
			}
			for range 3 {
				if _, err := c.Write(make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				sent := ask()
				if sent == last {
					t.Errorf("got %v before and after a Write", sent)
				}
				if _, err := io.ReadFull(peer, make([]byte, 1000)); err != nil {
					t.Fatal(err)
				}
				if last = ask(); network == "unix" && last == sent { // TCP has acknowledged before
					t.Errorf("got %v before and after the peer's Read", last)
				}
				if n := last.Since(sent); network == "unix" && n < 1000 || sent.Since(last) != 0 {
					t.Errorf("%s: the peer has taken %d bytes from %v to %v, and %d back", network, n, sent, last, sent.Since(last))
				}
			}
		})
	}
}
