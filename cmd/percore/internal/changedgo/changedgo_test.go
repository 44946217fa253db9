package changedgo

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// sized notes how much memory it was last given to read into.
type sized struct {
	net.Conn
	last int
}

func (c *sized) Read(p []byte) (int, error) {
	c.last = len(p)
	return c.Conn.Read(p)
}

// TestInEffect runs where .ci/run next has put the overlay in place: a tls.Conn that has read a long
// record reads the next one's beginning into little memory.
func TestInEffect(t *testing.T) {
	if os.Getenv("PERCORE_TEST_NEXT") == "" {
		t.Skip("only with an overlay: see .ci/run next")
	}
	config, client := testnet.TLS(t)
	a, b := net.Pipe()
	below := &sized{Conn: b}
	peer, conn := tls.Client(a, client), tls.Server(below, config)
	const long = 16 << 10
	written := make(chan error, 1)
	go func() {
		_, err := peer.Write(make([]byte, long))
		if err == nil {
			_, err = peer.Write([]byte("x"))
		}
		written <- err
	}()
	if _, err := io.ReadFull(conn, make([]byte, long+1)); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Write", written); err != nil {
		t.Fatal(err)
	}
	if below.last > 1024 {
		t.Errorf("the last read was into %d bytes, want 1024 at most: the overlay is not in effect", below.last)
	}
	_ = a.Close()
}
