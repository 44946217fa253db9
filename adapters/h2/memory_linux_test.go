//go:build !percore_net

package h2

import (
	"bytes"
	"net"
	"runtime"
	"testing"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// idleBytesMost is the heap that a connection in clear may have when it waits: the Conn, its core,
// the percore.Conn, and the test's own end of it, some 1,800 bytes. The rest is for what the process
// holds besides, divided by the connections; it is less than any buffer.
const idleBytesMost = 3000

// TestIdleMemory: connections that have had a request and wait have neither a goroutine nor a
// buffer.
func TestIdleMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's memory counts: run it without -race")
	}
	f := serve(t, HandlerFunc(hello), Config{})
	hello := f.peer().Request(1, true).Out
	const n = 200
	clients := make([]net.Conn, 0, n+1)
	open := func() {
		c := f.dial()
		clients = append(clients, c)
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1024)
		for n := 0; !bytes.Contains(b[:n], []byte("Hello, World!")); {
			m, err := c.Read(b[n:])
			if err != nil {
				t.Fatal(err)
			}
			n += m
		}
	}
	open()
	if f.server.conns()[0].below.pc == nil {
		t.Skip("a goroutine reads from each connection: run it without the build tag percore_net")
	}
	goroutines := runtime.NumGoroutine()
	before := testnet.HeapBytes()
	for range n {
		open()
	}
	testnet.Eventually(t, "the connections' rest", func() bool {
		resting := 0
		for _, c := range f.server.conns() {
			c.mu.Lock()
			if c.clock.rested {
				resting++
			}
			c.mu.Unlock()
		}
		return resting > n
	})
	testnet.Eventually(t, "the workers' end", func() bool { return runtime.NumGoroutine() <= goroutines })
	bytes := (testnet.HeapBytes() - before) / n
	t.Logf("a connection that waits, with both of its ends: %d bytes", bytes)
	if bytes > idleBytesMost {
		t.Errorf("got %d bytes for a connection that waits, want %d at most", bytes, idleBytesMost)
	}
	runtime.KeepAlive(clients)
}
