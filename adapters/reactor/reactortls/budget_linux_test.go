//go:build !percore_net

package reactortls

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// idleBytesMax is the budget of a connection that waits, with what its client's socket takes in the
// test: crypto/tls is most of it.
const idleBytesMax = 14 << 10

func TestIdleBudget(t *testing.T) {
	if race.Enabled || invariants.Enabled {
		t.Skip("-race and the tag invariants take more memory: run it without")
	}
	testnet.NoLeaks(t)
	server, client := testnet.TLS(t)
	for _, version := range versions {
		_, ln := serve(t, at(server, version), Limits{}, &handler{data: echo})
		const warm, conns = 50, 200
		var sockets []net.Conn
		var before, goroutines int
		for i := range warm + conns {
			if i == warm {
				before, goroutines = testnet.HeapBytes(), runtime.NumGoroutine()
			}
			c := dial(t, ln, client)
			c.Write([]byte("x"))
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			sockets = append(sockets, c.NetConn()) // the rest of the client is garbage
		}
		per := float64(testnet.HeapBytes()-before) / conns
		if n := runtime.NumGoroutine() - goroutines; n > conns/2 {
			t.Errorf("got %d goroutines for %d connections that wait, want none", n, conns)
		}
		runtime.KeepAlive(sockets)
		t.Logf("%x: an idle connection takes %.0f bytes of heap", version, per)
		if per > idleBytesMax {
			t.Errorf("%x: an idle connection takes %.0f bytes of heap, want %d at most", version, per, idleBytesMax)
		}
	}
}
