//go:build !percore_net

package reactor

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// connBytesMax is the size class of a Conn. A field too many costs each connection 16 bytes.
const connBytesMax = 112

func TestConnSize(t *testing.T) {
	if n := unsafe.Sizeof(Conn{}); n > connBytesMax {
		t.Errorf("a Conn takes %d bytes, want %d at most", n, connBytesMax)
	}
}

// idleBytesMax is the budget of a connection that waits: Conn, percore.Conn and loop.FD, 304 bytes,
// and its places in tables that grow by doubling.
const idleBytesMax = 380

func TestIdleBudget(t *testing.T) {
	if race.Enabled || invariants.Enabled {
		t.Skip("-race and the tag invariants take more memory: run it without")
	}
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{data: echo})
	const warm = 200 // so that the loops have had some
	const conns = 1000 + warm
	before := make([]*percore.Conn, 0, conns)
	clients := make([]net.Conn, 0, conns)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	for range conns {
		client, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
		before = append(before, c.(*percore.Conn))
	}
	var waiting int // with percore's part of the connections, and the loops' buffers
	for i, pc := range before {
		if i == warm {
			waiting = testnet.HeapBytes() - loopBytes(s)
		}
		if _, err := s.Attach(pc, nil, nil); err != nil {
			t.Fatal(err)
		}
		p := []byte("x")
		clients[i].Write(p)
		if _, err := io.ReadFull(clients[i], p); err != nil {
			t.Fatal(err)
		}
	}
	clear(before)
	per := percoreBytes + float64(testnet.HeapBytes()-loopBytes(s)-waiting)/(conns-warm)
	runtime.KeepAlive(clients)
	t.Logf("an idle connection takes %.0f bytes of heap", per)
	if per > idleBytesMax {
		t.Errorf("an idle connection takes %.0f bytes of heap, want %d at most", per, idleBytesMax)
	}
	s.Close()
}

// percoreBytes is the part of an idle connection that percore.Conn's budget has: see
// TestIdleConnBudget there.
const percoreBytes = 200

// loopBytes returns how much of the heap are the buffers that the loops of a server read into. How many
// loops there are depends on the processors and on the load.
func loopBytes(s *Server) (n int) {
	for _, l := range s.loops() {
		size := make(chan int, 1)
		l.engine.Submit(func() { size <- cap(l.input) })
		n += <-size
	}
	return n
}

// A timeout is moved without an allocation, by the handler for each message.
func TestSetTimeoutAllocations(t *testing.T) {
	if race.Enabled || invariants.Enabled {
		t.Skip("-race and the tag invariants allocate: run it without")
	}
	testnet.NoLeaks(t)
	times := []Timeout{ReadIdleTimeout(time.Hour), ReadIdleTimeout(2 * time.Hour), IdleTimeout(time.Hour), WriteTimeout(time.Hour)}
	n := 0
	_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
		c.SetTimeout(times[n%len(times)])
		n++
		return echo(c, p)
	}})
	c := dial()
	p := make([]byte, 1)
	if n := testing.AllocsPerRun(500, func() {
		c.Write(p)
		if _, err := io.ReadFull(c, p); err != nil {
			t.Error(err)
		}
	}); n >= 1 {
		t.Errorf("got %v allocations, want none", n)
	}
}

// A message costs no allocation.
func TestAllocations(t *testing.T) {
	if race.Enabled || invariants.Enabled {
		t.Skip("-race and the tag invariants allocate: run it without")
	}
	testnet.NoLeaks(t)
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		for _, size := range []int{128, 16 << 10} {
			_, dial := serveOn(t, kind, &handler{data: echo})
			c := dial()
			p := make([]byte, size)
			if n := testing.AllocsPerRun(500, func() {
				c.Write(p)
				if _, err := io.ReadFull(c, p); err != nil {
					t.Error(err)
				}
			}); n >= 1 {
				t.Errorf("%s, %d bytes: got %v allocations, want none", kind, size, n)
			}
		}
	}
}
