package reactortls

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// Clients that leave at any point of a handshake, of a record, or of an echo that they may not read, end
// no other connection, and nothing is left of them.
func TestPeersLeave(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	s, ln := serve(t, server, Limits{}, &handler{data: echo}, quiet)
	connect := func() (raw *net.TCPConn, c *tls.Conn) {
		raw = testnet.Dial(t, ln).(*net.TCPConn)
		return raw, tls.Client(raw, client)
	}
	_, stays := connect()
	goesOn := func() {
		t.Helper()
		io.WriteString(stays, "hello")
		if _, err := io.ReadFull(stays, make([]byte, 5)); err != nil {
			t.Fatalf("the client that stays: %v", err)
		}
	}
	goesOn()
	long := make([]byte, 16<<20) // for the buffers of sockets
	peers := []func(raw *net.TCPConn, c *tls.Conn){
		func(*net.TCPConn, *tls.Conn) {},
		func(_ *net.TCPConn, c *tls.Conn) { c.Handshake() },
		func(_ *net.TCPConn, c *tls.Conn) { io.WriteString(c, "x"); io.ReadFull(c, make([]byte, 1)) }, // behind an echo
		func(_ *net.TCPConn, c *tls.Conn) { io.WriteString(c, "x") },
		func(_ *net.TCPConn, c *tls.Conn) { io.WriteString(c, "x"); c.CloseWrite() },
		func(_ *net.TCPConn, c *tls.Conn) { go c.Write(long) }, // reading no echo
		func(raw *net.TCPConn, c *tls.Conn) {
			io.WriteString(c, "x")
			raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3}) // in a record
		},
	}
	hello := clientHello(t, client)
	for _, n := range []int{1, 5, 100, len(hello) - 1, len(hello)} {
		peers = append(peers, func(raw *net.TCPConn, _ *tls.Conn) { raw.Write(hello[:n]) })
	}
	for i, play := range peers {
		for _, resets := range []bool{false, true} {
			raw, c := connect()
			play(raw, c)
			goesOn()
			if resets {
				_ = raw.SetLinger(0)
			}
			raw.Close()
			goesOn()
			testnet.Eventually(t, fmt.Sprint("the end of connection ", i), func() bool { return s.Stats().Conns == 1 })
		}
	}
}
