//go:build !percore_net

package h2

import (
	"bytes"
	"net"
	"runtime"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// idleBytesMost is the heap that a connection in clear may have when it waits: the Conn, its core,
// the percore.Conn, and the test's own end of it, some 1,750 bytes. The rest is for what the process
// holds besides, divided by the connections; it is less than any buffer.
const idleBytesMost = 2100

const idleConns = 400

// checkIdleBytes opens connections, of which one is open already, lets them rest, and checks what they
// hold. all returns the Conns at one of the ends, or both.
func checkIdleBytes(t *testing.T, open func(), all func() []*Conn, ends int) {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	before := testnet.HeapBytes()
	for range idleConns {
		open()
	}
	testnet.Eventually(t, "the connections' rest", func() bool {
		resting := 0
		for _, c := range all() {
			c.mu.Lock()
			if c.rested {
				resting++
			}
			c.mu.Unlock()
		}
		return resting > ends*idleConns
	})
	testnet.Eventually(t, "the workers' end", func() bool { return runtime.NumGoroutine() <= goroutines })
	bytes := (testnet.HeapBytes() - before) / idleConns
	t.Logf("a connection that waits, with both of its ends: %d bytes", bytes)
	if bytes > idleBytesMost {
		t.Errorf("got %d bytes for a connection that waits, want %d at most", bytes, idleBytesMost)
	}
}

// TestIdleMemory: connections that have had a request and wait have neither a goroutine nor a buffer.
func TestIdleMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's memory counts: run it without -race")
	}
	f := serve(t, HandlerFunc(hello), Config{})
	hello := f.peer().Request(1, true).Out
	clients := make([]net.Conn, 0, idleConns+1)
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
	if f.server.conns()[0].below.PC == nil {
		t.Skip("a goroutine reads from each connection: run it without the build tag percore_net")
	}
	checkIdleBytes(t, open, f.server.conns, 1)
	runtime.KeepAlive(clients)
}

// TestClientIdleMemory: connections of a client that have had a call and wait have neither a goroutine
// nor a buffer.
func TestClientIdleMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's memory counts: run it without -race")
	}
	f := serve(t, HandlerFunc(hello), Config{})
	client := NewClient(ClientConfig{})
	defer client.Close()
	conns := make([]*Conn, 0, idleConns+1)
	open := func() {
		nc, err := percore.Dial("tcp", f.l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.Attach(nc, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, body, _, err := call(c, Message{End: true}); string(body) != "Hello, World!" || err != nil {
			t.Fatalf("got %q and %v", body, err)
		}
		conns = append(conns, c)
	}
	open()
	if conns[0].below.PC == nil {
		t.Skip("a goroutine reads from each connection: run it without the build tag percore_net")
	}
	checkIdleBytes(t, open, func() []*Conn { return append(f.server.conns(), conns...) }, 2)
	runtime.KeepAlive(conns)
}
