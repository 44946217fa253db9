//go:build !percore_net

package reactortls

import (
	"net"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// Clients of many addresses that stop in their handshakes keep no other client from its own.
func TestStalledHandshakes(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	hello := clientHello(t, client)
	failed := failedHandshakes()
	s, ln := serve(t, server, Limits{HandshakeTimeout: time.Hour, MaxHandshakes: 8}, &handler{data: echo})
	const conns = 80
	for i := range conns {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%40))}}
		c, err := from.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write(hello[:len(hello)-1])
	}
	// On a slow machine the first are closed, after a second, before the last come.
	testnet.Eventually(t, "the server has all", func() bool {
		return s.Stats().Conns+failedHandshakes()-failed >= conns
	})
	if err := exchange(dial(t, ln, client)); err != nil {
		t.Error(err)
	}
}

// failedHandshakes returns how many the process has had.
func failedHandshakes() (n int) {
	for _, a := range percore.ReadStats().Adapters {
		for _, f := range a.Metrics {
			if f.Name == "failed_handshakes_total" {
				n += int(f.Value)
			}
		}
	}
	return n
}
