//go:build !percore_net

package reactortls

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// Connections that stop in their handshakes or in a record take memory within a bound, stacks and both
// ends included.
func TestAttackMemory(t *testing.T) {
	server, client := testnet.TLS(t)
	hello := clientHello(t, client)
	shaken := func(t *testing.T, ln net.Listener) *tls.Conn {
		c := dial(t, ln, client)
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, a := range []struct {
		name string
		play func(t *testing.T, ln net.Listener) net.Conn
		most uint64 // bytes, for each
	}{
		{"nothing", func(t *testing.T, ln net.Listener) net.Conn { return testnet.Dial(t, ln) }, 8 << 10},
		{"half a ClientHello", func(t *testing.T, ln net.Listener) net.Conn {
			c := testnet.Dial(t, ln)
			c.Write(hello[:len(hello)-1])
			return c
		}, 40 << 10},
		{"a ClientHello alone", func(t *testing.T, ln net.Listener) net.Conn {
			c := testnet.Dial(t, ln)
			c.Write(hello)
			return c
		}, 80 << 10},
		{"half a record", func(t *testing.T, ln net.Listener) net.Conn {
			c := shaken(t, ln)
			c.NetConn().Write(append([]byte{23, 3, 3, 64, 0}, make([]byte, 16<<10-1)...))
			return c
		}, 80 << 10},
		{"a record, and nothing more", func(t *testing.T, ln net.Listener) net.Conn {
			c := shaken(t, ln)
			c.Write(make([]byte, 16<<10))
			return c
		}, 80 << 10},
	} {
		t.Run(a.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			const warm, conns = 20, 100
			s, ln := serve(t, server, Limits{HandshakeTimeout: time.Hour, MaxHandshakes: 4 * (warm + conns)}, &handler{})
			var clients []net.Conn
			var before uint64
			for i := range warm + conns {
				if i == warm {
					before = memory(t, s, warm)
				}
				c := a.play(t, ln)
				defer c.Close()
				clients = append(clients, c)
			}
			per := (int(memory(t, s, warm+conns)) - int(before)) / conns
			runtime.KeepAlive(clients)
			t.Logf("a connection takes %d bytes", per)
			if per > int(a.most) && !race.Enabled && !invariants.Enabled {
				t.Errorf("a connection takes %d bytes, want %d at most", per, a.most)
			}
		})
	}
}

// memory returns how much of it is used once the server has its connections and reads no more.
func memory(t *testing.T, s *reactor.Server, conns int) (bytes uint64) {
	testnet.Eventually(t, "the server has all, and has read what has come", func() bool {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		last := bytes
		bytes = m.HeapAlloc + m.StackInuse
		return s.Stats().Conns == conns && max(bytes, last)-min(bytes, last) < 16<<10
	})
	return bytes
}
