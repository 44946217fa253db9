//go:build !percore_net

package reactortls

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// Clients that stop in their handshakes, of one address or of many, at once or after a byte now and
// then, keep no other client from its handshake.
func TestStalledHandshakes(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	hello := clientHello(t, client)
	for _, attack := range []struct {
		name     string
		peers    int
		trickles bool
	}{
		{"one address", 1, false},
		{"many addresses", 40, false},
		{"many addresses, with single bytes", 40, true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			failed := failedHandshakes()
			s, ln := serve(t, server, Limits{HandshakeTimeout: time.Hour, MaxHandshakes: 8}, &handler{data: echo})
			var hostile []net.Conn
			const conns = 80
			for i := range conns {
				from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i%attack.peers))}}
				c, err := from.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				hostile = append(hostile, c)
				if !attack.trickles {
					c.Write(hello[:len(hello)-1])
				}
			}
			stop := make(chan bool)
			var trickling sync.WaitGroup
			if attack.trickles {
				trickling.Go(func() { trickle(hostile, hello[:len(hello)-1], stop) })
			}
			// On a slow machine the first are closed, after a second, before the last come.
			testnet.Eventually(t, "the server has all", func() bool {
				return s.Stats().Conns+failedHandshakes()-failed >= conns
			})
			if err := exchange(dial(t, ln, client)); err != nil {
				t.Error(err)
			}
			close(stop)
			trickling.Wait()
		})
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

// trickle sends text on all connections, one byte at a time, until stop is closed.
func trickle(conns []net.Conn, text []byte, stop <-chan bool) {
	for i := range text {
		for _, c := range conns {
			c.Write(text[i:][:1])
		}
		select {
		case <-stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	<-stop
}
