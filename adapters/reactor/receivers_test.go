package reactor

import (
	"bytes"
	"context"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

// attachMany gives a server connections that are all on one loop, and returns them with their peers.
func attachMany(t *testing.T, s *Server, n int) (conns []*Conn, peers []net.Conn) {
	t.Helper()
	if onGoroutines && runtime.GOMAXPROCS(0) > 1 {
		t.Skip("connections get loops in turn here: run it with GOMAXPROCS=1")
	}
	group, err := loop.NewGroup(loop.Config{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	lc := percore.ListenConfig{Group: group}
	ln := testnet.Listen(t, func(network, address string) (net.Listener, error) {
		return lc.Listen(context.Background(), network, address)
	}, testnet.TCP4)
	for len(conns) < n {
		pc, peer := testnet.Connect(t, ln)
		c, err := s.Attach(pc, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		conns, peers = append(conns, c), append(peers, peer)
	}
	t.Cleanup(func() { end(t, s) }) // before the pairs': no other code may close a connection of the server's
	l := conns[0].loop
	testnet.Eventually(t, "all are open", func() bool { return countOpen(l) == n })
	return conns, peers
}

// A function for many connections leaves the loop to others between its turns.
func TestTurns(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	const n = 3 * turnConns
	attachMany(t, s, n)
	called := 0 // by the loop
	between := make(chan int, 1)
	all := make(chan bool, 1)
	s.Each(func(c *Conn) {
		if called++; called == 1 {
			c.loop.Execute(func() { between <- called })
		}
		if called == n {
			all <- true
		}
	})
	testnet.Receive(t, "the last call", all)
	if got := testnet.Receive(t, "a function in between", between); got == n {
		t.Errorf("a function of the loop waited for all %d calls of Each, want some", n)
	}
}

// A callback that writes a short message to many connections takes one buffer, and each of them is sent
// to before long; other writes come in their order.
func TestManyReceivers(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	conns, peers := attachMany(t, s, 3*turnConns)
	message := bytes.Repeat([]byte("m"), 100)
	testnet.Eventually(t, "the end of other tests' buffers", func() bool { return pool.ReadStats().BuffersInUse == 0 })
	buffers := make(chan int, 1)
	conns[0].loop.Execute(func() {
		b := pool.Get(len(message))
		copy(b.Bytes(), message)
		for _, c := range conns {
			c.WriteShared(b)
		}
		b.Release()
		buffers <- pool.ReadStats().BuffersInUse
		for _, c := range conns[:10] {
			c.Write([]byte("more"))
		}
	})
	if n := testnet.Receive(t, "the writes", buffers); n != 1 {
		t.Errorf("got %d buffers for one message, want 1", n)
	}
	for i, peer := range peers {
		want := message
		if i < 10 {
			want = append(bytes.Clone(message), "more"...)
		}
		got := make([]byte, len(want))
		if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("peer %d: got %q, %v, want %q", i, got, err, want)
		}
	}
}

// Broadcast tells whom it misses, and those stay open if the program wants them to.
func TestBroadcastTellsMissed(t *testing.T) {
	testnet.NoLeaks(t)
	for _, tells := range []bool{false, true} {
		room := make(chan *Conn, 1)
		var h Handler = &handler{open: smallBuffer}
		if tells {
			h = &told{handler: handler{open: smallBuffer}, room: func(c *Conn) { room <- c }}
		}
		s, _ := serve(t, h, WriteHardLimit(256<<10))
		c, peer := attach(t, s)
		peer.(*net.TCPConn).SetReadBuffer(socketBytes)
		testnet.Eventually(t, "it is open", func() bool { return countOpen(c.loop) == 1 })
		missed := make(chan *Conn, 1)
		for n := 0; len(missed) == 0; n++ {
			s.Broadcast(make([]byte, 64<<10), func(c *Conn) {
				select {
				case missed <- c:
				default:
				}
			})
			awaitWalks(t, s) // so that each broadcast is done before the next
			if open := countOpen(c.loop); open != 1 || n > 1<<10 {
				t.Fatalf("told %t: %d connections are open after %d broadcasts of 64 KiB", tells, open, n)
			}
		}
		if got := <-missed; got != c {
			t.Errorf("told %t: got %v, want %v", tells, got, c)
		}
		if !tells {
			c.Abort()
			continue
		}
		go io.Copy(io.Discard, peer)
		if got := testnet.Receive(t, "Room", room); got != c {
			t.Errorf("Room: got %v, want %v", got, c)
		}
	}
}
