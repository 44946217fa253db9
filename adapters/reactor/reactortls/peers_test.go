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
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			testnet.NoLeaks(t)
			server, client := testnet.TLS(t)
			if !overTLS {
				server = nil
			}
			s, ln := serve(t, server, Limits{}, &handler{data: echo}, quiet)
			testPeersLeave(t, ln, func() int { return s.Stats().Conns }, client, overTLS)
		})
	}
}

func testPeersLeave(t *testing.T, ln net.Listener, conns func() int, config *tls.Config, overTLS bool) {
	connect := func() (raw *net.TCPConn, c net.Conn) {
		raw = testnet.Dial(t, ln).(*net.TCPConn)
		if overTLS {
			return raw, tls.Client(raw, config)
		}
		return raw, raw
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
	peers := map[string]func(raw *net.TCPConn, c net.Conn){
		"at once":        func(*net.TCPConn, net.Conn) {},
		"behind an echo": func(_ *net.TCPConn, c net.Conn) { io.WriteString(c, "x"); io.ReadFull(c, make([]byte, 1)) },
		"before an echo": func(_ *net.TCPConn, c net.Conn) { io.WriteString(c, "x") },
		"behind the end": func(_ *net.TCPConn, c net.Conn) {
			io.WriteString(c, "x")
			c.(interface{ CloseWrite() error }).CloseWrite()
		},
		"reading no echo": func(_ *net.TCPConn, c net.Conn) { go c.Write(long) },
	}
	if overTLS {
		hello := clientHello(t, config)
		for _, n := range []int{1, 5, 100, len(hello) - 1, len(hello)} {
			peers[fmt.Sprintf("behind %d bytes of a handshake", n)] = func(raw *net.TCPConn, _ net.Conn) { raw.Write(hello[:n]) }
		}
		peers["behind the handshake"] = func(_ *net.TCPConn, c net.Conn) { c.(*tls.Conn).Handshake() }
		peers["in a record"] = func(raw *net.TCPConn, c net.Conn) {
			io.WriteString(c, "x")
			raw.Write([]byte{23, 3, 3, 0, 100, 1, 2, 3})
		}
	}
	for _, play := range peers {
		for _, resets := range []bool{false, true} {
			raw, c := connect()
			play(raw, c)
			goesOn()
			if resets {
				_ = raw.SetLinger(0)
			}
			raw.Close()
			goesOn()
			testnet.Eventually(t, "the end of the connection", func() bool { return conns() == 1 })
		}
	}
}
